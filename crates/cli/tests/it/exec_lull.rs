//! `lull exec`: connections of all jobs to one network share one window.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Kept, LULL, Variant, eventually, finish, lull, private_shell, shell};
use lull_testing::needs;
use serde_json::Value;

/// Opens a connection in a job, sends, and waits for a line on standard input.
const SENDS: &str = "import socket, sys
listener = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
def send(count):
    client.sendall(bytes(count))
    while count:
        count -= len(server.recv(count))
send(20_000)
print('ready', flush=True)
sys.stdin.readline()
send(20_000)
print(client.getsockopt(6, 13, 16).rstrip(bytes(1)).decode(), flush=True)";

/// Whether pins of a congestion control are in the BPF file system.
fn is_pinned(name: &str) -> bool {
    Path::new("/sys/fs/bpf/lull").join(name).exists()
}

/// A job that has sent, and waits for a line. It runs in the background from the start.
fn start_job(name: &str) -> Kept {
    let mut command = lull(&["exec", "--cc", name, "--automatic=lull", "--json", "--"]);
    command.args(["python3", "-c", SENDS]);
    start(command)
}

fn start(mut command: Command) -> Kept {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut kept = Kept::spawn(&mut command);
    let out = kept.0.stdout.as_mut().unwrap();
    let mut line = String::new();
    BufReader::with_capacity(1, out).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    kept
}

/// Lets a job continue. Returns its output, and its summary.
fn end_job(mut kept: Kept) -> (String, Value) {
    use std::io::read_to_string;

    writeln!(kept.0.stdin.take().unwrap()).unwrap();
    let out = read_to_string(kept.0.stdout.take().unwrap()).unwrap();
    let err = read_to_string(kept.0.stderr.take().unwrap()).unwrap();
    assert!(kept.0.wait().unwrap().success(), "{out} {err}");
    (out, serde_json::from_str(&err).unwrap_or_else(|error| panic!("{error}: {err}")))
}

/// Destination and connections of each path.
fn paths(control: &Variant) -> Vec<(String, u64)> {
    let status = control.status().expect("it is loaded");
    let paths = status["paths"].as_array().expect("it shares paths");
    let path = |path: &Value| {
        (path["destination"].as_str().unwrap().to_owned(), path["connections"].as_u64().unwrap())
    };
    paths.iter().map(path).collect()
}

#[test]
fn jobs_share_one_path_and_leave_nothing() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let control = Variant::unloaded();
    let first = start_job(&control.0);
    assert_eq!(paths(&control), [("127.0.0.0/24".to_owned(), 2)]);
    let second = start_job(&control.0);
    assert_eq!(paths(&control), [("127.0.0.0/24".to_owned(), 4)]);
    assert!(is_pinned(&control.0));
    let (out, summary) = end_job(first);
    assert_eq!(out, format!("{}\n", control.0));
    assert_eq!(
        (&summary["connections"], &summary["shortfalls"]),
        (&2.into(), &Value::Array(vec![]))
    );
    eventually("its connections leave", || paths(&control) == [("127.0.0.0/24".to_owned(), 2)]);
    end_job(second);
    eventually("it is unloaded", || !control.is_loaded());
    assert_eq!(control.cgroups(), Vec::<PathBuf>::new());
    assert!(!is_pinned(&control.0));
}

/// An upgrade unloads a control that jobs use. They continue with it; the new version has its own table.
#[test]
fn job_outlives_unload_and_reload_of_lull() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let control = Variant::unloaded();
    let job = start_job(&control.0);
    let unload = ["kernel", "unload", "--name", &control.0];
    finish(&mut lull(&unload)).fails(1, "1 program");
    finish(lull(&unload).arg("--force")).ok();
    let load = ["kernel", "load", "--algorithm", "lull", "--name", &control.0];
    finish(&mut lull(&load)).ok();
    assert_eq!(paths(&control), []);
    let (out, _) = end_job(job);
    assert_eq!(out, format!("{}\n", control.0));
    assert!(control.is_loaded(), "it was loaded to stay");
}

#[test]
fn running_process_joins_a_path_and_leaves_it() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let control = Variant::load(&["--algorithm", "lull"]);
    let mut command = Command::new("python3");
    command.args(["-c", SENDS]);
    let kept = start(command);
    let exec = |words: &[&str]| {
        let mut command = lull(&["exec", "--pid", &kept.pid()]);
        finish(command.args(words)).ok()
    };
    let said = exec(&["--cc", &control.0]);
    assert!(said.contains("2 open connections and 1 listener"), "{said}");
    assert_eq!(paths(&control), [("127.0.0.0/24".to_owned(), 2)]);
    exec(&["--foreground"]);
    assert_eq!(paths(&control), [("127.0.0.0/24".to_owned(), 0)]);
}

/// As in a container: the same addresses are another path there.
#[test]
fn job_in_a_network_namespace_has_a_path_of_its_own() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("ip"));
    let control = Variant::unloaded();
    let outside = start_job(&control.0);
    let script = "exec \"$LULL\" exec --quiet --cc \"$1\" --automatic=lull -- \
        unshare --net sh -c 'ip link set lo up; exec python3 -c \"$1\"' sh \"$2\"";
    let inside = start(shell(script, &[&control.0, SENDS]));
    let both = [("127.0.0.0/24".to_owned(), 2), ("127.0.0.0/24".to_owned(), 2)];
    assert_eq!(paths(&control), both);
    drop((outside, inside));
}

/// The name of a job's control is taken by Nice where the kernel refuses `lull`.
#[test]
fn fallback_to_nice_is_reported_in_one_line() {
    needs!(lull_testing::bpf());
    let control = Variant::load(&["--algorithm", "nice"]);
    let exec = ["exec", "--cc", &control.0, "--automatic=lull", "--", "true"];
    let said = finish(&mut lull(&exec));
    assert_eq!(said.code(), Some(0));
    let line = format!("lull: this kernel cannot run '{}': connections use TCP Nice", control.0);
    let lines: Vec<&str> = said.err.lines().collect();
    assert_eq!(lines[1..], [line], "{said:?}");
}

/// Connections lead in turn, in proportion to their weights: 2.5 s and 10 s. The part of each is counted at the receiver.
#[test]
fn jobs_share_a_link_by_weight() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("ip"));
    let control = Variant::unloaded();
    let receiver = "import json, socket, sys, threading, time
listener = socket.create_server(('', 5001))
counts = {'5': 0, '20': 0}
def receive(connection):
    weight = connection.makefile('rb').readline().decode().strip()
    while chunk := connection.recv(1 << 16):
        counts[weight] += len(chunk)
for _ in counts:
    threading.Thread(target=receive, args=(listener.accept()[0],), daemon=True).start()
time.sleep(50)
print(json.dumps(counts), flush=True)";
    let sender = "import socket, sys
client = socket.create_connection((sys.argv[1], 5001))
client.sendall(sys.argv[2].encode() + b'\\n')
while True:
    client.sendall(bytes(65536))";
    let script = "ip netns exec right1 python3 -c \"$2\" & receiver=$!
until ip netns exec right1 ss -ltn | grep -q 5001; do sleep 0.05; done
for weight in 5 20; do
    \"$LULL\" exec --quiet --cc \"$1\" --automatic=lull --weight $weight -- \
        python3 -c \"$3\" \"$LULL_RIGHT_1\" $weight 2>/dev/null &
done
wait $receiver; kill $(jobs -p); wait";
    let mut command = lull(&["lab", "emulate", "--rate", "10mbit", "--rtt", "20ms", "--"]);
    command.args(["sh", "-c", script, "sh", &control.0, receiver, sender]).env("LULL", LULL);
    let said = finish(&mut command);
    let counts: Value = serde_json::from_str(said.out.lines().next().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {said:?}"));
    let (light, heavy) = (counts["5"].as_f64().unwrap(), counts["20"].as_f64().unwrap());
    assert!(light > 0.0 && heavy > 2.0 * light && heavy < 8.0 * light, "{counts}");
}

/// Connections that start together are spread out by short timeouts before their first SYN. Those
/// timeouts are no sign of a router that drops packets with a mark.
#[test]
fn crowd_behind_a_late_link_keeps_its_mark() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("ip"));
    lull_testing::enter_own_namespaces();
    let script = "import select, socket, subprocess, sys, time
def ip(words):
    subprocess.run(['ip', *words.split()], check=True)
began = time.monotonic()
connections = []
for _ in range(24):
    connection = socket.socket()
    connection.setblocking(False)
    connection.connect_ex(('10.1.0.2', 7000))
    connections.append(connection)
# Their first SYNs get no answer, their second ones do.
time.sleep(max(0, began + 0.6 - time.monotonic()))
ip('-n far link set vb up')
late = time.monotonic() - began > 0.9
for connection in connections:
    select.select([], [connection], [], 20)
print(late, sum(connection.getsockopt(1, 4) == 0 for connection in connections))";
    let setup = "set -e
ip link set lo up
ip netns add far
ip link add va type veth peer name vb
ip link set vb netns far
ip link set va up
ip addr add 10.1.0.1/24 dev va
ip -n far addr add 10.1.0.2/24 dev vb
ip -n far link set vb up
mac=$(ip netns exec far cat /sys/class/net/vb/address)
ip neigh replace 10.1.0.2 lladdr $mac dev va nud permanent
ip -n far link set vb down
ip netns exec far python3 -c \"import socket
listener = socket.create_server(('10.1.0.2', 7000), backlog=64)
listener.accept()
import time; time.sleep(60)\" & server=$!
trap 'kill $server; ip -n far link del vb; ip netns del far' EXIT
until ip netns exec far ss -ltn | grep -q 7000; do sleep 0.05; done
\"$LULL\" exec --cc \"$1\" --automatic=lull --json -- python3 -c \"$2\"";
    // A busy machine sometimes brings the link up too late.
    for _ in 0..5 {
        let control = Variant::unloaded();
        let mut command = shell(setup, &[&control.0, script]);
        let said = finish(command.env("LULL", LULL));
        let summary = said.err.lines().last().unwrap_or_default();
        let summary: Value =
            serde_json::from_str(summary).unwrap_or_else(|error| panic!("{error}: {said:?}"));
        if said.out == "False 24\n" {
            assert_eq!(summary["connections_without_mark"], 0, "{said:?}");
            return;
        }
        assert!(said.out.starts_with("True"), "{said:?}");
    }
    panic!("the link never came up in time");
}

/// Opens two ends of a connection, and prints `lull kernel status --json` meanwhile.
const SHOWS_STATUS: &str = "import os, socket, subprocess
listener = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(listener.getsockname())
server = listener.accept()[0]
client.sendall(bytes(1000))
server.recv(1000)
print(subprocess.run([os.environ['LULL'], 'kernel', 'status', '--json'], stdout=subprocess.PIPE, text=True).stdout)";

/// It has a BPF file system of its own, and the host's congestion controls.
#[test]
fn container_sees_connections_and_yielding_times() {
    needs!(lull_testing::bpf(), lull_testing::root(), lull_testing::command("python3"));
    let control = Variant::load(&["--algorithm", "lull"]);
    let script =
        r#"mount -t bpf none /sys/fs/bpf && exec "$LULL" exec --cc "$1" --json -- python3 -c "$2""#;
    let said = finish(&mut private_shell(script, &[&control.0, SHOWS_STATUS]));
    assert_eq!(said.code(), Some(0), "{said:?}");
    let all: Value =
        serde_json::from_str(&said.out).unwrap_or_else(|why| panic!("{why}: {said:?}"));
    let mut all = all.as_array().unwrap().iter();
    let own = all.find(|status| status["name"] == control.0.as_str());
    let own = own.unwrap_or_else(|| panic!("{said:?}"));
    assert_eq!(own["sockets"].as_array().map(Vec::len), Some(2), "{own}");
    assert_eq!(own["paths"].as_array().map(Vec::len), Some(1), "{own}");
    let summary: Value = serde_json::from_str(&said.err).unwrap();
    assert!(summary["yielding_seconds"].is_number(), "{summary}");
}
