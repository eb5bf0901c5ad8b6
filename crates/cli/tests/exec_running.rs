//! `lull exec --pid` on processes that make it hard: with many sockets, and many children.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use lull_testing::needs;
use support::{Kept, Variant, finish, shell};

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
