//! `lull exec --pid` on difficult processes: with threads, many sockets, sockets that cannot be changed, and
//! many children.

use crate::support;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::support::{Kept, Service, Variant, cgroup_of, finish, lull, program, shell};
use lull_testing::needs;
use serde_json::Value;

/// The limit of most logins is 1024, and busy servers raise theirs.
#[test]
fn more_sockets_than_the_descriptor_limit_are_fixed() {
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
    let (mut kept, mut lines) = Kept::ready(script);
    let nice = Variant::load(&[]);
    let mut command =
        shell("ulimit -S -n 64; exec \"$LULL\" exec --cc $1 --pid $2", &[&nice.0, &kept.pid()]);
    let said = finish(&mut command).ok();
    assert!(said.contains("with 200 open connections and 1 listener\n"), "{said}");
    assert!(!said.contains("in the foreground"), "{said}");
    writeln!(kept.0.stdin.as_mut().unwrap()).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), format!("{{'{}'}}", nice.0));
}

/// `ps -L` shows numbers of threads, and the kernel moves the process of any of them.
#[test]
fn thread_id_selects_its_process() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let script = "import socket, sys, threading
listener = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
thread = threading.Thread(target=threading.Event().wait, daemon=True)
thread.start()
print('ready')
print(thread.native_id, flush=True)
sys.stdin.readline()
print({sock.getsockopt(6, 13, 16).rstrip(bytes(1)).decode() for sock in (client, server)})";
    let (mut kept, mut lines) = Kept::ready(script);
    let (process, thread) = (kept.pid(), lines.next().unwrap().unwrap());
    assert_ne!(thread, process);
    let nice = Variant::load(&[]);
    let said = finish(&mut lull(&["exec", "--cc", &nice.0, "--json", "--pid", &thread]));
    let report: Value = serde_json::from_str(&said.ok()).unwrap();
    assert_eq!(report["processes"], serde_json::json!([process.parse::<i32>().unwrap()]));
    assert_eq!((&report["connections"], &report["listeners"]), (&2.into(), &1.into()), "{report}");
    assert_eq!(report["foreground"], serde_json::json!([]));
    writeln!(kept.0.stdin.as_mut().unwrap()).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), format!("{{'{}'}}", nice.0));
}

/// A route may lock the congestion control of its connections; the others are changed all the same.
#[test]
fn foreground_connections_are_reported_by_address() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("ip"));
    let script = "import ctypes, socket, subprocess, sys
NEW_NETWORK = 0x40000000
assert ctypes.CDLL(None).unshare(NEW_NETWORK) == 0
for words in 'link set lo up', 'route add local 10.9.0.1 dev lo congctl lock reno':
    subprocess.run(['ip', *words.split()], check=True)
def pair(address):
    listener = socket.create_server((address, 0))
    client = socket.create_connection(listener.getsockname())
    return listener, client, listener.accept()[0]
locked = [pair('10.9.0.1') for _ in range(2)]
free = pair('127.0.0.1')
print('ready')
print(*(sock.getsockname()[1] for pair in locked for sock in pair[1:]), flush=True)
sys.stdin.readline()
for pair in *locked, free:
    print(*(sock.getsockopt(6, 13, 16).rstrip(bytes(1)).decode() for sock in pair[1:]), end=' ')
print()";
    let (mut kept, mut lines) = Kept::ready(script);
    let ports = lines.next().unwrap().unwrap();
    let nice = Variant::load(&[]);
    let said = finish(&mut lull(&["exec", "--cc", &nice.0, "--pid", &kept.pid()])).ok();
    assert!(said.contains("with 2 open connections and 3 listeners\n"), "{said}");
    let stays: Vec<_> = said.lines().filter(|line| line.contains("foreground stays")).collect();
    let [line] = stays[..] else { panic!("{said}") };
    let locked = format!("in the foreground stays: 4 sockets of process {} (10.9.0.1:", kept.pid());
    assert!(line.starts_with(&locked), "{said}");
    assert!(line.ends_with(" and 1 more): Operation not permitted (os error 1)"), "{said}");
    let told = ports.split(' ').filter(|port| line.contains(&format!("10.9.0.1:{port} -> ")));
    assert_eq!(told.count(), 3, "{ports}: {said}");
    writeln!(kept.0.stdin.as_mut().unwrap()).unwrap();
    let states = lines.next().unwrap().unwrap();
    assert_eq!(states.trim(), format!("reno reno reno reno {0} {0}", nice.0));
}

/// A filter of system calls, as in a container, makes the sockets inaccessible.
#[test]
fn unreachable_sockets_are_reported() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let script = "import socket, sys
listener = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(listener.getsockname())
again = client.dup()
print('ready', flush=True)
sys.stdin.readline()";
    let (kept, _lines) = Kept::ready(script);
    let mut command = Command::new("python3");
    command.arg(program("denied.py")).args(["to fetch", support::LULL, "exec", "--cc", "reno"]);
    let said = finish(command.args(["--pid", &kept.pid()]).stdin(Stdio::null())).ok();
    let told = format!(
        "in the foreground stays: 2 sockets of process {} that cannot be fetched: \
         Operation not permitted (os error 1)\n",
        kept.pid()
    );
    assert!(said.contains("with 0 open connections and 0 listeners\n"), "{said}");
    assert!(said.contains(&told), "{said}");
}

/// A child every few milliseconds: there are new ones at each check.
#[test]
fn children_born_in_background_are_not_reported() {
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
    let (mut kept, mut lines) = Kept::ready(script);
    let exec = ["exec", "--cc", "reno", "--children", "--json", "--pid", &kept.pid()];
    let said = finish(&mut lull(&exec));
    // It may have ended already.
    let _ = writeln!(kept.0.stdin.as_mut().unwrap());
    let outside: usize = lines.next().unwrap().unwrap().parse().unwrap();
    let report: Value = serde_json::from_str(&said.ok()).unwrap();
    let processes = report["processes"].as_array().unwrap().len();
    assert!((1..=1 + outside).contains(&processes), "{processes}, {outside} outside");
    assert_eq!(report["foreground"], serde_json::json!([]));
}

/// A program on the outer cgroup, which permits no others below, keeps the first one where it is.
#[test]
fn immovable_child_does_not_block_the_others() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let service = Service::make();
    let (sock_ops, cgroup_sock_ops, exclusive) = (13, 3, 0);
    service.attach(sock_ops, cgroup_sock_ops, exclusive, 1);
    let mut command = shell("for i in 1 2; do sleep 30 & echo $!; done; wait", &[]);
    let mut kept = Kept::spawn(command.stdout(Stdio::piped()));
    let lines = BufReader::new(kept.0.stdout.take().unwrap()).lines();
    let sleepers: Vec<String> = lines.take(2).map(Result::unwrap).collect();
    service.take(&sleepers[0]);

    let nice = Variant::load(&[]);
    let exec = ["exec", "--cc", &nice.0, "--children", "--json", "--pid", &kept.pid()];
    let said = finish(&mut lull(&exec));
    let places: Vec<String> = sleepers.iter().map(|pid| cgroup_of(pid)).collect();
    for pid in &sleepers {
        finish(&mut shell("kill $1", &[pid])).ok();
    }
    kept.0.wait().unwrap();
    let report: Value = serde_json::from_str(&said.ok()).unwrap();
    let processes = report["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 2, "{report}");
    let stays = format!("process {}: cannot attach a program to the cgroup: ", sleepers[0]);
    assert!(report["foreground"][0].as_str().unwrap().starts_with(&stays), "{report}");
    assert_eq!(places[0], service.name());
    assert!(places[1].contains("/lull."), "{places:?}");
    assert!(!fs::read_dir(&service.0).unwrap().flatten().any(|inside| inside.path().is_dir()));
}

/// The program `peer.py` under `lull exec`, with its own id.
struct Background {
    kept: Kept,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    pid: String,
}

impl Background {
    fn start(congestion: &str) -> Self {
        let mut command = lull(&["exec", "--cc", congestion, "--", "python3"]);
        command.arg(program("peer.py")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut kept = Kept::spawn(command.stderr(Stdio::piped()));
        let mut lines = BufReader::new(kept.0.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        let cgroups = support::cgroups(&format!("lull.{congestion}.{}.", kept.pid()));
        let pid = fs::read_to_string(cgroups[0].join("cgroup.procs")).unwrap().trim().to_owned();
        Background { kept, lines, pid }
    }

    fn ask(&mut self, question: &str) -> String {
        writeln!(self.kept.0.stdin.as_mut().unwrap(), "{question}").unwrap();
        self.lines.next().unwrap().unwrap()
    }
}

#[test]
fn foreground_option_takes_process_and_sockets_back() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let nice = Variant::load(&[]);
    let mut background = Background::start(&nice.0);
    assert_eq!(background.ask("state"), format!("{0}/4 {0}/4", nice.0));
    let service = cgroup_of(&background.kept.pid());
    let said = finish(&mut lull(&["exec", "--pid", &background.pid, "--foreground"])).ok();
    let expected = format!(
        "process {} is in the foreground now, with 2 open connections and 1 listener\n",
        background.pid
    );
    assert_eq!(said, expected);
    assert_eq!(cgroup_of(&background.pid), service);
    let default = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
    let default = format!("{}/0", default.trim());
    assert_eq!(background.ask("state"), [&*default; 2].join(" "));
    // Including connections that the listener accepts, which was made in the background.
    assert_eq!(background.ask("new"), [&*default; 4].join(" "));
    let said = finish(&mut lull(&["exec", "--cc", &nice.0, "--pid", &background.pid])).ok();
    assert!(said.contains("is in the background now, with 4 open connections"), "{said}");
    assert_eq!(background.ask("state"), vec![format!("{}/4", nice.0); 4].join(" "));
}

/// The hooks of the first background let the call succeed and set their own.
#[test]
fn background_process_takes_another_congestion_control() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let nice = Variant::load(&[]);
    let mut background = Background::start(&nice.0);
    let exec = ["exec", "--cc", "reno", "--dscp", "none", "--pid", &background.pid];
    let said = finish(&mut lull(&exec)).ok();
    assert!(said.contains("with 2 open connections and 1 listener\n"), "{said}");
    assert_eq!(background.ask("new"), ["reno/0"; 4].join(" "));
}

#[test]
fn foreground_option_leaves_choices_of_programs_alone() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let script = "import socket, sys
listener = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(listener.getsockname())
client.setsockopt(6, 13, b'reno')
client.setsockopt(0, 1, 0x48)
print('ready', flush=True)
sys.stdin.readline()
print(client.getsockopt(6, 13, 16).rstrip(bytes(1)).decode(), client.getsockopt(0, 1) & 0xfc)";
    let (mut kept, mut lines) = Kept::ready(script);
    let said = finish(&mut lull(&["exec", "--pid", &kept.pid(), "--foreground"])).ok();
    assert!(said.contains("with 0 open connections and 0 listeners\n"), "{said}");
    writeln!(kept.0.stdin.as_mut().unwrap()).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "reno 72");
}
