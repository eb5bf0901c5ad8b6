//! `lull exec` over routes with a fixed congestion control (ip-route(8), congctl).

use std::process::{Command, Stdio};

use crate::support::{LULL, Variant, finish};
use lull_testing::needs;
use serde_json::{Value, json};

/// Runs a program alone in a network namespace that connects to itself over such a route and sends 100 kB.
/// Returns its output about the client and the server, and the summary.
fn over_a_route(congctl: &str, exec: &[&str]) -> (Value, Value) {
    let script = "import json, os, socket, struct, subprocess
listener = socket.create_server(('10.9.0.1', 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
pair = client, server
# The kernel sets a window of its own before the control has its turn, with the first packet.
client.sendall(bytes(1))
window = struct.unpack_from('I', client.getsockopt(6, 11, 256), 80)[0]
client.sendall(bytes(99_999))
got = 0
while got < 100_000:
    got += len(server.recv(1 << 16))
status = subprocess.run([os.environ['LULL'], 'kernel', 'status', '--json'], capture_output=True)
print(json.dumps({
    'congestion': [sock.getsockopt(6, 13, 16).rstrip(bytes(1)).decode() for sock in pair],
    'classes': [sock.getsockopt(0, 1) & 0xfc for sock in pair],
    'window': window,
    'sockets': {one['name']: len(one['sockets']) for one in json.loads(status.stdout)},
}))";
    let inside = "ip link set lo up; ip route add local 10.9.0.1 dev lo congctl $1; shift
        exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", inside, "sh", congctl, LULL, "exec", "--json"]);
    command.args(exec).args(["--", "python3", "-c", script]).env("LULL", LULL);
    let said = finish(command.stdin(Stdio::null()));
    let summary = serde_json::from_str(&said.err).unwrap_or_else(|_| panic!("{said:?}"));
    (serde_json::from_str(&said.ok()).unwrap(), summary)
}

/// The kernel replaces the chosen control by the route's when the client connects. The connection begins with
/// the window of a new one all the same.
#[test]
fn route_does_not_take_connections_from_background() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("ip"));
    for (algorithm, first) in [("lull", 3), ("nice", 2), ("background", 1)] {
        let control = Variant::load(&["--algorithm", algorithm]);
        let exec = ["--cc", &control.0, "--network-honours-le"];
        let (said, summary) = over_a_route("reno", &exec);
        assert_eq!(said["congestion"], json!([control.0, control.0]), "{said}");
        assert_eq!(said["classes"], json!([4, 4]), "{said}");
        assert!(said["window"].as_u64().unwrap() <= first, "{algorithm}: {said}");
        assert_eq!(said["sockets"][&control.0], 2, "{said}");
        assert_eq!(summary["connections"], 2, "{summary}");
        assert_eq!(summary["connections_in_the_foreground"], 0, "{summary}");
    }
}

#[test]
fn connections_over_route_with_locked_control_are_reported() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("ip"));
    let nice = Variant::load(&[]);
    let (said, summary) = over_a_route("lock reno", &["--cc", &nice.0]);
    assert_eq!(said["congestion"], json!(["reno", "reno"]), "{said}");
    // The mark is not the route's.
    assert_eq!(said["classes"], json!([4, 4]), "{said}");
    // The client had a state of nice for a moment.
    assert_eq!(said["sockets"][&nice.0], 0, "{said}");
    assert_eq!(summary["connections"], 2, "{summary}");
    assert_eq!(summary["connections_in_the_foreground"], 2, "{summary}");
}
