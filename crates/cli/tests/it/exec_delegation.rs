//! The traffic that a program under `lull exec` has others send.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::support::{Kept, LULL, Service, Variant, finish, lull, shell, unique_name};
use lull_testing::needs;

const SFTP_SERVER: &str = "/usr/lib/openssh/sftp-server";

/// The lines of the summary about the foreground.
fn foreground(said: &crate::support::Said) -> Vec<&str> {
    said.err
        .lines()
        .filter_map(|line| line.strip_prefix("lull: in the foreground stays: "))
        .collect()
}

/// The file system is mounted before, in a separate mount namespace.
#[test]
fn writes_to_network_file_system_are_reported() {
    needs!(lull_testing::bpf(), lull_testing::fuse(), lull_testing::command("sshfs"));
    if !std::path::Path::new(SFTP_SERVER).exists() {
        lull_testing::skip("writes_to_network_file_system_are_reported", "no sftp-server");
        return;
    }
    let script = "set -e; d=$(mktemp -d); mkdir $d/there $d/mount
        printf '#!/bin/sh\nexec %s\n' $1 >$d/ssh; chmod +x $d/ssh
        sshfs -o ssh_command=$d/ssh host:$d/there $d/mount
        \"$LULL\" exec --cc reno -- sh -c 'exec 3>$1/file; sleep 1; echo >&3' sh $d/mount
        \"$LULL\" exec --cc reno -- sh -c 'exec 3<$1/file; sleep 0.5' sh $d/mount
        ls $d/there; umount $d/mount; rm -r $d";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh", SFTP_SERVER]).env("LULL", LULL);
    let said = finish(command.stdin(Stdio::null()));
    assert_eq!(said.out, "file\n", "{said:?}");
    let lines = foreground(&said);
    let [line] = lines[..] else { panic!("{said:?}") };
    assert!(line.starts_with("writes to /tmp/"), "{line}");
    assert!(line.contains("(fuse.sshfs), which was mounted before: move 'sshfs' with"), "{line}");
}

#[test]
fn window_of_running_terminal_server_is_reported() {
    needs!(lull_testing::bpf(), lull_testing::command("tmux"));
    let name = unique_name();
    let script = "export TMUX_TMPDIR=$(mktemp -d) TERM=dumb SHELL=/bin/sh
        tmux -L $1 -f /dev/null new-session -d 'sleep 20'
        \"$LULL\" exec --cc reno -- tmux -L $1 new-window true
        tmux -L $1 kill-server; rm -r $TMUX_TMPDIR";
    let said = finish(&mut shell(script, &[&name]));
    let lines = foreground(&said);
    let [line] = lines[..] else { panic!("{said:?}") };
    assert!(line.starts_with("programs in windows of 'tmux: server' (process "), "{line}");
    // A server that the program starts itself is in the background.
    let script = "export TMUX_TMPDIR=$(mktemp -d) TERM=dumb SHELL=/bin/sh
        \"$LULL\" exec --cc reno -- sh -c 'tmux -L $1 -f /dev/null new-session -d sleep 20
            tmux -L $1 new-window true; tmux -L $1 kill-server' sh $1; rm -r $TMUX_TMPDIR";
    let said = finish(&mut shell(script, &[&name]));
    assert_eq!(foreground(&said), Vec::<&str>::new(), "{said:?}");
}

/// By SCM_RIGHTS of unix(7).
#[test]
fn socket_from_another_process_is_moved_to_the_background() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let outside = "import socket, subprocess, sys
listener = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(listener.getsockname())
here, there = socket.socketpair(socket.AF_UNIX)
child = subprocess.Popen([*sys.argv[1:], str(there.fileno())], pass_fds=[there.fileno()])
socket.send_fds(here, [b'x'], [client.fileno()])
sys.exit(child.wait())";
    let inside = "import socket, sys, time
_, (fd,), _, _ = socket.recv_fds(socket.socket(fileno=int(sys.argv[1])), 1, 1)
sock = socket.socket(fileno=fd)
state = lambda: (sock.getsockopt(6, 13, 16).rstrip(bytes(1)).decode(), sock.getsockopt(0, 1) & 0xfc)
deadline = time.monotonic() + 20
while state()[0] != sys.argv[2] and time.monotonic() < deadline:
    time.sleep(0.02)
print(*state())";
    let nice = Variant::load(&[]);
    let wrapped = "exec \"$LULL\" exec --cc $1 -- python3 -c \"$2\" $3 $1";
    let mut command = Command::new("python3");
    command.args(["-c", outside, "sh", "-c", wrapped, "sh", &nice.0, inside]).env("LULL", LULL);
    let said = finish(command.stdin(Stdio::null()));
    assert_eq!(said.out, format!("{} 4\n", nice.0), "{said:?}");
    assert_eq!(foreground(&said), Vec::<&str>::new(), "{said:?}");
}

/// Like the containers of podman.
#[test]
fn child_that_is_moved_elsewhere_is_reported() {
    needs!(lull_testing::bpf());
    let service = Service::make();
    let script = "sleep 0.5 & echo $! | tee $1/cgroup.procs; wait";
    let mut command = lull(&["exec", "--cc", "reno", "--", "sh", "-c", script, "sh"]);
    let said = finish(command.arg(&service.0));
    let child = said.out.trim();
    let expected = format!(
        "process {child}, which was moved to cgroup {}: if it is still running, move it with \
         'lull exec --pid {child} --children'",
        service.name()
    );
    assert_eq!(foreground(&said), [&expected], "{said:?}");
}

/// By another process, like systemd for podman.
#[test]
fn child_that_others_move_is_reported() {
    needs!(lull_testing::bpf());
    let service = Service::make();
    let mut command = lull(&["exec", "--cc", "reno", "--", "sh", "-c", "sleep 30 & echo $!; wait"]);
    let mut kept = Kept::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let mut line = String::new();
    BufReader::new(kept.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let child = line.trim();
    service.take(child);
    finish(&mut shell("sleep 0.2; kill $1", &[child])).ok();
    kept.0.wait().unwrap();
    let lines = BufReader::new(kept.0.stderr.take().unwrap()).lines();
    let told: Vec<String> = lines.map(Result::unwrap).collect();
    let start = format!("lull: in the foreground stays: process {child}, which was moved to");
    assert!(told.iter().any(|line| line.starts_with(&start)), "{told:?}");
}
