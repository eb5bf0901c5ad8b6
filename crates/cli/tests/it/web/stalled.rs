//! A stopped reader of the proxy's output blocks neither traffic nor signals.

use std::io::{PipeReader, pipe};

use super::*;

/// The capacity of a pipe (pipe(7)).
const PIPE: usize = 64 << 10;

/// The end of a full pipe, and the other one, which is never read.
fn full_pipe() -> (Stdio, PipeReader) {
    let (reader, mut writer) = pipe().unwrap();
    writer.write_all(&vec![b'x'; PIPE]).unwrap();
    (writer.into(), reader)
}

#[test]
fn proxy_serves_although_its_output_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("site.model");
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (events, _events) = full_pipe();
    let (log, _log) = full_pipe();
    let mut command = lull(&["web", "--access-log", "-", "--upstream", &upstream(Duration::ZERO)]);
    command.args(["--listen", &address.to_string(), "--model", model.to_str().unwrap()]);
    let mut process = Kept::spawn(command.stderr(events).stdout(log));
    let get = || {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        ask(&mut stream, "/");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    };
    support::eventually("an answer", || get().is_some_and(|answer| answer.ends_with("ok")));
    // Until the log's thread waits for its pipe.
    thread::sleep(Duration::from_millis(500));
    let signal = |name: &str| {
        assert!(Command::new("kill").args([name, &process.pid()]).status().unwrap().success());
    };
    signal("-HUP");
    thread::sleep(Duration::from_millis(100));
    assert!(get().is_some_and(|answer| answer.ends_with("ok")));
    signal("-TERM");
    let begun = Instant::now();
    let status = loop {
        match process.0.try_wait().unwrap() {
            Some(status) => break status,
            None => assert!(begun.elapsed() < LIMIT, "it does not end"),
        }
        thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success(), "{status}");
    assert!(model.exists(), "what was learned is lost");
}
