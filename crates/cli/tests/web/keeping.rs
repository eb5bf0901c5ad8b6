//! What visitors teach is kept.

use super::*;

/// What is learned is kept each minute, and may have to wait for a busy machine.
const A_MINUTE: Duration = Duration::from_secs(90);

#[test]
fn what_visitors_taught_survives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("site.model");
    let model = path.to_str().unwrap();
    let upstream = upstream(Duration::ZERO);
    let mut web = Web::start(&upstream, &["--model", model, "--trust-forwarded"]);
    support::eventually("an empty model", || path.exists());
    let before = fs::read(&path).unwrap();
    for visitor in 1..25 {
        for page in ["/a", "/b"] {
            visit(&web, visitor, page);
        }
    }
    support::eventually_within(A_MINUTE, "the model of a minute later", || {
        fs::read(&path).unwrap() != before
    });
    web.process.0.kill().unwrap();
    web.process.0.wait().unwrap();

    let mut web = Web::start(&upstream, &["--model", model, "--hold-back", "0"]);
    until_hinted(&web, "/a", "/b");
    web.signal("-TERM");
    assert!(web.rest().iter().all(|event| event["event"] != "model-aside"));
}

#[test]
fn what_is_barred_goes_on_from_one_process_to_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("site.model");
    let bars = folder.path().join("site.model.bars");
    let upstream = leading_elsewhere();
    let arguments = ["--model", path.to_str().unwrap()];
    let mut lengths = Vec::new();
    for page in ["/a", "/b", "/b"] {
        let mut web = Web::start(&upstream, &arguments);
        assert!(web.get(page).starts_with("HTTP/1.1 302 "));
        web.signal("-TERM");
        web.wait_for("stopped");
        assert!(web.process.0.wait().unwrap().success());
        lengths.push(fs::metadata(&bars).unwrap().len());
    }
    assert!(lengths[0] < lengths[1] && lengths[1] == lengths[2], "{lengths:?}");

    fs::write(&bars, "a shopping list").unwrap();
    let mut command = lull(&["web", "--listen", "127.0.0.1:0", "--upstream", &upstream]);
    let output = command.args(arguments).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("site.model.bars"), "{said}");
}

/// An upstream whose pages all lead elsewhere.
fn leading_elsewhere() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut line = String::new();
            while stream.read_line(&mut line).is_ok_and(|count| count > 0) && line != "\r\n" {
                line.clear();
            }
            let found = "HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nConnection: close\r\n\
                         Content-Length: 0\r\n\r\n";
            let _ = stream.get_mut().write_all(found.as_bytes());
        }
    });
    format!("http://{address}")
}

/// A page on its way to one of many visitors behind another proxy.
fn visit(web: &Web, visitor: u32, page: &str) {
    let mut stream = web.connect();
    write!(
        stream,
        "GET {page} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAccept: text/html\r\n\
         User-Agent: Mozilla/5.0 Chrome/156.0.0.0\r\nX-Forwarded-For: 192.0.2.{visitor}\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}
