//! `lull exec --pid` on processes that make it hard: with many sockets, and many children.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use lull_testing::needs;
use serde_json::Value;
use support::{Kept, Variant, finish, lull, shell};

/// The limit of most logins is 1024, and busy servers raise theirs.
#[test]
fn more_sockets_are_mended_than_we_may_have_open() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let script = "import socket, sys
listener = socket.create_server(('127.0.0.1', 0), backlog=100)
sockets = []
for _ in range(100):
    client = socket.create_connection(listener.getsockname())
    sockets += [client, listener.accept()[0]]
print('ready', flush=True)
sys.stdin.readline()
print({sock.getsockopt(6, 13, 16).rstrip(bytes(1)).decode() for sock in sockets})";
    let mut command = Command::new("python3");
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut kept = Kept::spawn(&mut command);
    let mut lines = BufReader::new(kept.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let nice = Variant::load(&[]);
    let mut command =
        shell("ulimit -S -n 64; exec \"$LULL\" exec --cc $1 --pid $2", &[&nice.0, &kept.pid()]);
    let said = finish(&mut command).ok();
    assert!(said.contains("with 200 open connections and 1 listener\n"), "{said}");
    assert!(!said.contains("in the foreground"), "{said}");
    writeln!(kept.0.stdin.as_mut().unwrap()).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), format!("{{'{}'}}", nice.0));
}

/// A child every few milliseconds: there are new ones whenever one looks.
#[test]
fn children_that_are_born_in_the_background_are_no_news() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let script = "import os, select, signal, sys, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
outside = 0
print('ready', flush=True)
deadline = time.monotonic() + 15
while time.monotonic() < deadline:
    with open('/proc/self/cgroup') as cgroup:
        outside += '/lull.' not in cgroup.read()
    if not os.fork():
        time.sleep(0.2)
        os._exit(0)
    if select.select([0], [], [], 0.001)[0]:
        break
print(outside)";
    let mut command = Command::new("python3");
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut kept = Kept::spawn(&mut command);
    let mut lines = BufReader::new(kept.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let exec = ["exec", "--cc", "reno", "--children", "--json", "--pid", &kept.pid()];
    let said = finish(&mut lull(&exec));
    // It may be over already.
    let _ = writeln!(kept.0.stdin.as_mut().unwrap());
    let outside: usize = lines.next().unwrap().unwrap().parse().unwrap();
    let report: Value = serde_json::from_str(&said.ok()).unwrap();
    let processes = report["processes"].as_array().unwrap().len();
    assert!((1..=1 + outside).contains(&processes), "{processes}, {outside} outside");
    assert_eq!(report["foreground"], serde_json::json!([]));
}
