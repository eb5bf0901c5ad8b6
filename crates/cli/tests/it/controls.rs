//! The effects of the congestion controls in `bpf/` on the sockets of the real kernel.

use std::process::{Command, Stdio};

use crate::support::{LULL, Variant, finish, program};
use lull_testing::needs;
use serde_json::Value;

const ALGORITHMS: [&str; 2] = ["nice", "background"];

/// Otherwise Nice reacts to the jitter of a busy machine.
const UNDISTURBED: [&str; 6] = ["--algorithm", "nice", "--threshold", "0.99", "--fraction", "1"];

/// The sockets with the congestion control, by `lull kernel status`.
const SOCKETS: &str = "import json, os, socket, struct, subprocess, sys, time
def sockets():
    said = subprocess.run([os.environ['LULL'], 'kernel', 'status', '--json'], capture_output=True)
    return next(one['sockets'] for one in json.loads(said.stdout) if one['name'] == sys.argv[1])
";

/// The JSON output of a script about a control, alone in a network namespace with the loopback up.
fn python(script: &str, control: &Variant) -> Value {
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", "ip link set lo up; exec \"$@\"", "sh", "python3", "-c"]);
    command.arg(format!("{SOCKETS}{script}")).arg(&control.0);
    command.env("LULL", LULL).stdin(Stdio::null());
    serde_json::from_str(&finish(&mut command).ok()).unwrap()
}

#[test]
fn socket_that_changes_control_keeps_no_state_or_pace() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("ip"));
    let script = "
def pace():
    return struct.unpack_from('Q', client.getsockopt(6, 11, 256), 104)[0]
listener = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
client.setsockopt(6, 13, sys.argv[1].encode())
client.sendall(bytes(100_000))
got = 0
while got < 100_000:
    got += len(server.recv(1 << 16))
said = {'sockets': len(sockets()), 'pace': pace()}
client.setsockopt(6, 13, b'reno')
said |= {'sockets_after': len(sockets()), 'pace_after': pace()}
client.sendall(b'x'); server.recv(1)
print(json.dumps(said))";
    for algorithm in ALGORITHMS {
        let control = Variant::load(&["--algorithm", algorithm]);
        let said = python(script, &control);
        assert_eq!(said["sockets"], 1, "{algorithm}: {said}");
        assert!(said["pace"].as_u64().unwrap() < 1 << 50, "{algorithm}: {said}");
        assert_eq!(said["sockets_after"], 0, "{algorithm}: {said}");
        // As for a new socket.
        assert_eq!(said["pace_after"], u64::MAX, "{algorithm}: {said}");
    }
}

/// Two packets for Nice, one for algorithm 1 of the filler paper. `the_first_flight_of_a_client` in
/// exec_sockets.rs tests the first flight with the hooks of `lull exec`.
#[test]
fn connection_begins_with_at_most_two_packets() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("ip"));
    let script = "
def window(sock):
    return struct.unpack_from('I', sock.getsockopt(6, 11, 256), 80)[0]
listener = socket.socket()
listener.setsockopt(6, 13, sys.argv[1].encode())
listener.bind(('127.0.0.1', 0))
listener.listen()
early = socket.socket()
early.setsockopt(6, 13, sys.argv[1].encode())
early.connect(listener.getsockname())
accepted, _ = listener.accept()
late = socket.create_connection(listener.getsockname())
late.setsockopt(6, 13, sys.argv[1].encode())
print(json.dumps([window(early), window(accepted), window(late)]))";
    for (algorithm, first) in [("nice", 2), ("background", 1)] {
        let control = Variant::load(&["--algorithm", algorithm]);
        let windows = serde_json::json!([first, first, first]);
        assert_eq!(python(script, &control), windows, "{algorithm}");
    }
}

/// RFC 5681 4.1. The kernel reports the start of sending by an event, from 7.1 by an operation.
#[test]
fn pause_restarts_the_connection_like_a_new_one() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("ip"));
    let script = "
def window(sock):
    return struct.unpack_from('I', sock.getsockopt(6, 11, 256), 80)[0]
def send(count):
    client.sendall(bytes(count))
    while count > 0:
        count -= len(server.recv(1 << 16))
listener = socket.create_server(('127.0.0.1', 0))
client = socket.socket()
client.setsockopt(6, 2, 1000)
client.setsockopt(6, 13, sys.argv[1].encode())
client.connect(listener.getsockname())
server, _ = listener.accept()
said = {'grown': 0}
for _ in range(20):
    send(50_000)
    said['grown'] = window(client)
    if said['grown'] > 4:
        break
time.sleep(1)
send(1)
said['after_a_pause'] = window(client)
print(json.dumps(said))";
    const BACKGROUND: [&str; 2] = ["--algorithm", "background"];
    for (algorithm, parameters, first) in
        [("nice", &UNDISTURBED[..], 2), ("background", &BACKGROUND, 1)]
    {
        let control = Variant::load(parameters);
        let said = python(script, &control);
        assert!(said["grown"].as_u64().unwrap() > 4, "{algorithm}: {said}");
        assert_eq!(said["after_a_pause"], first, "{algorithm}: {said}");
    }
}

/// `ip route ... cwnd N`: a window that only grew on paper would have to be halved many times before its
/// yielding has an effect.
#[test]
fn window_stays_within_the_limit_of_the_route() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("ip"));
    let script = "
subprocess.run('ip route replace local 127.0.0.1 dev lo table local cwnd lock 6'.split(), check=True)
listener = socket.create_server(('127.0.0.1', 0))
# The kernel takes it over with what it keeps of a path, which an earlier connection has to leave.
first = socket.create_connection(listener.getsockname())
second, _ = listener.accept()
for _ in range(20):
    first.send(b'x'); second.recv(1)
first.close(); second.close()
client = socket.socket()
client.setsockopt(6, 13, sys.argv[1].encode())
client.connect(listener.getsockname())
server, _ = listener.accept()
windows = []
for turn in range(40):
    client.sendall(bytes(500_000))
    left = 500_000
    while left > 0:
        left -= len(server.recv(1 << 16))
    # On a busy machine one look takes more than a second.
    if turn % 5 == 4:
        windows += [one['window_packets'] for one in sockets()]
print(json.dumps(max(windows)))";
    let control = Variant::load(&UNDISTURBED);
    assert_eq!(python(script, &control), 6.0);
}

/// Request and answer, each after a pause, below two packets: an idle connection does not yield.
#[test]
fn idle_application_does_not_yield() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("ip"));
    let script = "
def yielded():
    return next((one['window_packets'], one['yielding_seconds']) for one in sockets())
listener = socket.create_server(('127.0.0.1', 0))
client = socket.socket()
client.setsockopt(6, 13, sys.argv[1].encode())
client.connect(listener.getsockname())
server, _ = listener.accept()
client.send(b'x'); server.recv(1)
# A timeout leaves a window of one packet (Nice 2.2).
subprocess.run('ip link set lo down'.split(), check=True)
client.send(b'x')
time.sleep(1)
subprocess.run('ip link set lo up'.split(), check=True)
server.recv(1)
before = yielded()
for _ in range(4):
    time.sleep(0.6)
    client.send(b'x'); server.recv(1)
print(json.dumps([before, yielded()]))";
    let control = Variant::load(&UNDISTURBED);
    let said = python(script, &control);
    let [before, after] = [0, 1].map(|at| said[at][1].as_f64().unwrap());
    assert!(said[0][0].as_f64().unwrap() <= 1.0 && said[1][0] == said[0][0], "{said}");
    assert!(after - before < 0.2, "{said}");
}

/// RFC 3168 6.1.2 and RFC 6675 5: one reaction to all congestion of a window of data.
#[test]
fn mark_and_loss_of_one_window_reduce_once() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("ip"));
    const BACKGROUND: [&str; 2] = ["--algorithm", "background"];
    const LULL: [&str; 2] = ["--algorithm", "lull"];
    let controls = [("nice", &UNDISTURBED[..]), ("background", &BACKGROUND), ("lull", &LULL)];
    for (algorithm, parameters) in controls {
        let control = Variant::load(parameters);
        let mut command = Command::new("unshare");
        command.args(["--net", "python3", "-B"]).arg(program("marks.py")).arg(&control.0);
        let said = finish(command.stdin(Stdio::null())).ok();
        let said: Value = serde_json::from_str(&said).unwrap();
        let window = |when: &str| said[when].as_u64().unwrap();
        assert!(window("grown") >= 8, "{algorithm}: {said}");
        let share = window("marked") as f64 / window("grown") as f64;
        let expected = if algorithm == "background" { 0.75 } else { 0.5 };
        assert!((share - expected).abs() < 0.1, "{algorithm}: {said}");
        assert_eq!(window("lost_in_the_same_window"), window("marked"), "{algorithm}: {said}");
        // Losses still cut the window.
        let cut = window("before") as f64 * (expected + 0.1) + 1.0;
        assert!(window("lost_in_another_window") as f64 <= cut, "{algorithm}: {said}");
    }
}
