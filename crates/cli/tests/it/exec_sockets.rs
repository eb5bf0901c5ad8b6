//! Every kind of connection of a program under `lull exec` is in the background.

use crate::support;
use std::process::{Command, Stdio};

use crate::support::{LULL, Said, Variant, finish, program};
use lull_testing::needs;
use serde_json::{Value, json};

const LOWER_EFFORT: u8 = 0x04;

/// Runs the script of all connections under `lull exec` in a separate network namespace.
fn connections(exec: &[&str], script: &[&str]) -> Said {
    let mut command = Command::new("unshare");
    command.args(["--net", LULL, "exec"]).args(exec).args(["--", "python3"]);
    command.arg(program("connections.py")).args(script).stdin(Stdio::null());
    finish(&mut command)
}

#[track_caller]
fn check_all(said: Said, congestion: &str, class: u8, with_syn: bool) {
    let kinds: Value = serde_json::from_str(&said.ok()).unwrap();
    let kinds = kinds.as_object().unwrap();
    assert_eq!(kinds.len(), 6);
    for (kind, found) in kinds {
        assert_eq!(found["congestion"], json!([congestion, congestion, congestion]), "{kind}");
        assert_eq!(found["classes"]["rest"], json!([class]), "{kind}: {found}");
        if with_syn {
            assert_eq!(found["classes"]["syn"], json!([class]), "{kind}: {found}");
        }
    }
}

#[test]
fn every_kind_of_connection_takes_congestion_control_and_dscp() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("ip"));
    check_all(connections(&["--cc", "reno"], &[]), "reno", LOWER_EFFORT, true);
    let nice = Variant::load(&[]);
    check_all(connections(&["--cc", &nice.0], &[]), &nice.0, LOWER_EFFORT, true);
    let background = Variant::load(&["--algorithm", "background"]);
    let exec = ["--cc", &background.0, "--network-honours-le"];
    check_all(connections(&exec, &[]), &background.0, LOWER_EFFORT, true);
}

#[test]
fn settings_of_the_program_have_no_effect() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("ip"));
    let nice = Variant::load(&[]);
    check_all(connections(&["--cc", &nice.0], &["try"]), &nice.0, LOWER_EFFORT, true);
}

#[test]
fn program_marks_its_packets_with_dscp_none() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("ip"));
    check_all(connections(&["--cc", "reno", "--dscp", "none"], &[]), "reno", 0, true);
    let said = connections(&["--cc", "reno", "--dscp", "none"], &["try"]);
    let kinds: Value = serde_json::from_str(&said.ok()).unwrap();
    assert_eq!(kinds["v4"]["classes"]["rest"], json!([0x48]));
    assert_eq!(kinds["v6"]["classes"]["rest"], json!([0x10]));
    assert_eq!(kinds["v4"]["congestion"], json!(["reno", "reno", "reno"]));
}

/// The workaround for kernels before 6.13: the first packets of a mapped client are not marked.
#[test]
fn system_calls_mark_mapped_connections_without_hooks() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("ip"));
    let said = connections(&["--cc", "reno", "--mapped-by-parent"], &["--wait", "--wait"]);
    check_all(said, "reno", LOWER_EFFORT, false);
}

/// The limit of most logins is 1024, and busy servers raise theirs.
#[test]
fn mapped_connections_beyond_descriptor_limit_are_marked() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let script = "import socket, time
listener = socket.socket(socket.AF_INET6)
listener.bind(('::', 0))
listener.listen(100)
sockets = []
for _ in range(100):
    client = socket.socket(socket.AF_INET6)
    client.connect(('::ffff:127.0.0.1', listener.getsockname()[1]))
    sockets += [client, listener.accept()[0]]
def marked():
    return sum(sock.getsockopt(0, 1) & 0xfc == 4 for sock in sockets)
deadline = time.monotonic() + 5
while marked() < 200 and time.monotonic() < deadline:
    time.sleep(0.05)
print(marked())";
    let mut command = support::shell(
        "ulimit -S -n 64; exec \"$LULL\" exec --quiet --cc reno --mapped-by-parent -- \
            sh -c 'ulimit -S -n 1024; exec python3 -c \"$1\"' sh \"$1\"",
        &[script],
    );
    assert_eq!(finish(&mut command).ok(), "200\n");
}

#[test]
fn unmarkable_connection_is_reported() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let script = "import socket, time
listener = socket.socket(socket.AF_INET6)
listener.bind(('::', 0))
listener.listen()
time.sleep(0.3)";
    let mut command = Command::new("python3");
    command.arg(program("denied.py")).args(["to fetch", LULL, "exec", "--cc", "reno"]);
    command.args(["--mapped-by-parent", "--", "python3", "-c", script]).stdin(Stdio::null());
    let said = finish(&mut command);
    let told =
        "lull: in the foreground stays: the DSCP of IPv4 connections of IPv6 sockets of process ";
    assert!(said.err.lines().nth(1).is_some_and(|line| line.starts_with(told)), "{said:?}");
}

#[test]
fn restricted_control_serves_unprivileged_programs() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("setpriv"));
    let nice = Variant::load(&["--restrict"]);
    let script = "import socket
s = socket.socket()
s.setsockopt(6, 13, b'reno')
l = socket.create_server(('127.0.0.1', 0))
s.connect(l.getsockname())
print(s.getsockopt(6, 13, 16).rstrip(bytes(1)).decode())";
    let mut command = Command::new(LULL);
    command.args(["exec", "--cc", &nice.0, "--", "setpriv", "--reuid=65534", "--regid=65534"]);
    command.args(["--clear-groups", "--inh-caps=-all", "--", "/usr/bin/env", "PATH=/usr/bin:/bin"]);
    command.args(["python3", "-c", script]).current_dir("/").stdin(Stdio::null());
    assert_eq!(finish(&mut command).ok().trim(), nice.0);
}

#[test]
fn udp_is_counted_and_not_slowed() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let script = "import socket
for family, address in (socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1'):
    there = socket.socket(family, socket.SOCK_DGRAM)
    there.bind((address, 0))
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x10)
    assert s.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == 0x10
    s.sendto(b'x' * 700, there.getsockname()[:2])
l = socket.create_server(('127.0.0.1', 0))
c = socket.create_connection(l.getsockname())
a, _ = l.accept()
c.sendall(b'x' * 100000)
got = 0
while got < 100000:
    got += len(a.recv(1 << 16))";
    let mut command = support::lull(&["exec", "--cc", "reno", "--json", "--", "python3", "-c"]);
    let said = finish(command.arg(script));
    let summary: Value = serde_json::from_str(&said.err).unwrap();
    assert_eq!(summary["udp_bytes"], 1400, "{summary}");
    assert_eq!(summary["tcp_bytes"], 100_000, "{summary}");
    assert_eq!(summary["connections"], 2, "{summary}");
    assert_eq!(summary["connections_in_the_foreground"], 0, "{summary}");
    assert_eq!(summary["yielding_seconds"], Value::Null, "reno does not tell");
}

/// The client connects and writes 100 kB at once, or a part of it with its SYN; nothing else is acknowledged.
/// Two packets are Lull's and Nice's, one is TCP-Background's (algorithm 1 of its paper).
#[test]
fn first_flight_of_a_client_is_at_most_two_packets() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("ip"));
    const MSS: u32 = 1460;
    let lull = Variant::load(&["--algorithm", "lull"]);
    let nice = Variant::load(&["--algorithm", "nice"]);
    let background = Variant::load(&["--algorithm", "background"]);
    for fast_open in [&[][..], &["--fast-open"]] {
        let first_flight = |exec: &[&str]| -> u32 {
            let mut command = Command::new("unshare");
            command.args(["--net", "python3", "-B"]).arg(program("first_flight.py"));
            command.args(fast_open).args([LULL, "exec", "--quiet"]).args(exec).arg("--");
            let said = finish(command.stdin(Stdio::null())).ok();
            let (sent, in_syn) = said.trim().split_once(' ').unwrap();
            assert_eq!(in_syn != "0", !fast_open.is_empty(), "{said}");
            sent.parse().unwrap()
        };
        // RFC 6928: the kernel's default, which is thus seen here.
        assert_eq!(first_flight(&["--cc", "reno"]), 10 * MSS, "{fast_open:?}");
        for pairs in [&lull, &nice] {
            let sent = first_flight(&["--cc", &pairs.0]);
            assert!((1..=2 * MSS).contains(&sent), "{fast_open:?}: {} packets", sent.div_ceil(MSS));
        }
        let sent = first_flight(&["--cc", &background.0, "--network-honours-le"]);
        assert_eq!(sent, MSS, "{fast_open:?}");
    }
}

/// Beside a flow that keeps the queue of 2 Mbit/s full. Connections that are open when the program has ended
/// count, too.
#[test]
fn summary_reports_how_long_connections_yielded() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("ip"));
    for (algorithm, mode) in
        [("nice", "closed"), ("nice", "open"), ("lull", "closed"), ("lull", "open")]
    {
        let control = Variant::load(&["--algorithm", algorithm]);
        let file = std::env::temp_dir().join(support::unique_name());
        let mut command = support::lull(&["lab", "emulate", "--rate", "2mbit", "--rtt", "20ms"]);
        command.args(["--buffer", "4bdp", "--congestion-control", "reno", "--", "python3", "-B"]);
        command.arg(program("yielding.py")).args([mode, LULL, "exec", "--cc", &control.0]);
        command.arg(format!("--json={}", file.display())).arg("--");
        finish(command.stdin(Stdio::null())).ok();
        let summary = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let summary: Value = serde_json::from_str(&summary).unwrap();
        let [yielding, lived, share] = ["yielding_seconds", "connection_seconds", "yielding_share"]
            .map(|name| summary[name].as_f64().unwrap_or_else(|| panic!("{summary}")));
        assert!(
            lived > 4.0 && yielding > 0.2 && yielding <= lived,
            "{algorithm}, {mode}: {summary}"
        );
        assert!((share - yielding / lived).abs() < 0.01, "{algorithm}, {mode}: {summary}");
    }
}

#[test]
fn children_and_static_binaries_are_in_the_background() {
    needs!(lull_testing::bpf(), lull_testing::command("gcc"));
    let folder = std::env::temp_dir().join(support::unique_name());
    std::fs::create_dir(&folder).unwrap();
    let binary = folder.join("client");
    let built = Command::new("gcc")
        .args(["-static", "-O1", "-o"])
        .arg(&binary)
        .arg(program("client.c"))
        .status()
        .unwrap();
    assert!(built.success());
    // Also a grandchild that has left its session.
    let mut command = support::shell(
        r#""$LULL" exec --cc reno -- sh -c '"$1"; (setsid --wait "$1")' sh "$1""#,
        &[binary.to_str().unwrap()],
    );
    let said = finish(&mut command);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(said.ok(), "reno 4\nreno 4\n");
}

#[test]
fn inherited_listeners_are_in_the_background() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let script = "import os, socket, subprocess, sys
l = socket.create_server(('127.0.0.1', 0))
os.dup2(l.fileno(), 0)
inner = '''import socket
l = socket.socket(fileno=0)
c = socket.create_connection(l.getsockname())
a, _ = l.accept()
print(a.getsockopt(6, 13, 16).rstrip(bytes(1)).decode(), a.getsockopt(0, 1) & 0xfc)'''
subprocess.run([sys.argv[1], 'exec', '--cc', 'reno', '--', 'python3', '-c', inner], check=True)";
    let mut command = Command::new("python3");
    command.args(["-c", script, LULL]);
    assert_eq!(finish(&mut command).ok().trim(), "reno 4");
}

#[test]
fn inherited_foreground_sockets_are_reported() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let script = "import socket, subprocess, sys
listener = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(listener.getsockname())
multi = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 262)
subprocess.run([sys.argv[1], 'exec', '--cc', 'reno', *sys.argv[2:], '--', 'true'], check=True,
    pass_fds=[listener.fileno(), multi.fileno()])";
    let exec = |arguments: &[&str]| {
        let mut command = Command::new("python3");
        finish(command.args(["-c", script, LULL]).args(arguments).stdin(Stdio::null()))
    };
    let stays =
        ["1 connection that a listener has not accepted yet", "the DSCP of MPTCP over IPv6"];
    let said = exec(&[]);
    let lines: Vec<_> = said.err.lines().skip(1).collect();
    assert_eq!(lines, stays.map(|what| format!("lull: in the foreground stays: {what}")));
    let summary: Value = serde_json::from_str(&exec(&["--json"]).err).unwrap();
    assert_eq!(summary["foreground"], json!(stays));
}

/// Subflows that join later, from either side, after the program has set its own options.
#[test]
fn subflows_that_join_are_in_the_background() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("ip"));
    let script = "import socket, subprocess, time
def ip(words):
    subprocess.run(['ip'] + words.split(), check=True)
ip('link set lo up')
ip('address add 10.0.0.1/32 dev lo')
ip('address add 10.0.0.2/32 dev lo')
ip('mptcp limits set subflow 4 add_addr_accepted 4')
ip('mptcp endpoint add 10.0.0.1 dev lo signal')
ip('mptcp endpoint add 10.0.0.2 dev lo signal')
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
for sock in listener, client:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
listener.bind(('0.0.0.0', 0))
listener.listen()
client.connect(('127.0.0.1', listener.getsockname()[1]))
server, _ = listener.accept()
server.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
for _ in range(100):
    client.sendall(b'x' * 100); server.recv(100); server.sendall(b'x'); client.recv(1)
    found = subprocess.run(['ss', '-tniH', '--tos'], capture_output=True, text=True).stdout
    if found.count('ESTAB') >= 6:
        break
    time.sleep(0.05)
time.sleep(0.1)
found = subprocess.run(['ss', '-tniH', '--tos'], capture_output=True, text=True).stdout
print(found.count('ESTAB'), found.count('\\t reno '), found.count('tos:0x4'))";
    let mut command = Command::new("unshare");
    command.args(["--net", LULL, "exec", "--cc", "reno", "--", "python3", "-c", script]);
    assert_eq!(finish(command.stdin(Stdio::null())).ok().trim(), "6 6 6");
}

/// The other side sends, outside of the background.
#[test]
fn download_is_reported_by_its_direction() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let script = "import socket, subprocess, sys
listener = socket.create_server(('127.0.0.1', 0))
client = 'import socket, sys; c = socket.socket(); c.connect((sys.argv[1], int(sys.argv[2])))\\n'
client += 'while c.recv(1 << 16): pass'
listener.settimeout(20)
address = [str(part) for part in listener.getsockname()]
child = subprocess.Popen([*sys.argv[1:], '--', sys.executable, '-c', client, *address])
connection, _ = listener.accept()
connection.sendall(bytes(3_000_000))
connection.close()
sys.exit(child.wait())";
    let run = |how: &[&str]| {
        let mut command = Command::new("python3");
        command.args(["-c", script, LULL, "exec", "--cc", "reno"]).args(how);
        finish(command.stdin(Stdio::null()))
    };
    // What a busy machine makes the sender repeat is counted as well.
    let received = |said: &Said, place: &str| {
        let line = said.err.lines().nth(1).unwrap_or_default();
        let megabytes = line.strip_prefix("lull: received ")?.strip_suffix(place)?.parse().ok()?;
        (3.0..4.0_f64).contains(&megabytes).then_some(())
    };
    let said = run(&[]);
    assert!(received(&said, " MB over TCP in the background").is_some(), "{said:?}");
    let said = run(&["--direction", "send"]);
    assert!(received(&said, " MB over TCP in the foreground").is_some(), "{said:?}");
    let summary: Value = serde_json::from_str(&run(&["--json"]).err).unwrap();
    assert!(summary["tcp_bytes_received"].as_u64().unwrap() >= 3_000_000, "{summary}");
}

/// Like some routers. The second connection to a destination does not wait for that again.
#[test]
fn connection_goes_unmarked_where_marked_packets_are_dropped() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("nft"));
    let run = |how: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--net", "python3", "-B"]).arg(program("unmarked.py"));
        command.args([LULL, "exec", "--cc", "reno"]).args(how).arg("--");
        finish(command.stdin(Stdio::null()))
    };
    let said = run(&["--json"]);
    assert_eq!(said.out, "0 0 0 0 0 0 0 0 0 0 ", "{said:?}");
    let summary: Value = serde_json::from_str(&said.err).unwrap();
    assert_eq!(summary["connections_without_mark"], 6, "{summary}");
    let said = run(&[]);
    let note = "lull: 6 connections without the DSCP mark: marked packets got no answer";
    assert!(said.err.lines().any(|line| line.starts_with(note)), "{said:?}");
    // Without a mark from Lull, the mark of the program passes.
    let said = run(&["--dscp", "none", "--json"]);
    assert_eq!(said.out, "72 72 72 72 72 72 72 72 72 72 ", "{said:?}");
}
