//! Downloads of a program under `lull exec` yield as well.

use std::process::Stdio;
use std::thread;

use crate::support::{LULL, Variant, finish, lull, shell};
use lull_testing::needs;
use serde_json::Value;

/// Downloads over loopback, and prints the window scale, the largest clamp of the window, and whether all bytes
/// are right.
const RECEIVES: &str = "import socket, threading
listener = socket.create_server(('127.0.0.1', 0))
data = bytes(range(256)) * 20_000
def serve():
    server, _ = listener.accept()
    with server:
        server.sendall(data)
threading.Thread(target=serve, daemon=True).start()
client = socket.create_connection(listener.getsockname())
received, clamp = bytearray(), 0
while part := client.recv(1 << 16):
    received += part
    clamp = max(clamp, client.getsockopt(6, 10))
scale = client.getsockopt(6, 11, 8)[6] >> 4
print(scale, clamp, received == data)";

/// Receives 40 bytes one by one. After half of them the program sets a clamp of its own. Prints the last clamp.
const SETS_CLAMP: &str = "import socket, threading, time
listener = socket.create_server(('127.0.0.1', 0))
def serve():
    server, _ = listener.accept()
    with server:
        for _ in range(40):
            time.sleep(0.01)
            server.sendall(b'.')
threading.Thread(target=serve, daemon=True).start()
client = socket.create_connection(listener.getsockname())
received, clamp = 0, 0
while part := client.recv(1 << 16):
    received += len(part)
    clamp = client.getsockopt(6, 10)
    if received <= 20 < received + len(part):
        client.setsockopt(6, 10, 4_000_001)
print(clamp)";

/// Runs the script with these options: window scale, clamp and whether all arrived; and the summary.
fn download(options: &[&str]) -> (i64, i64, bool, Value) {
    let control = Variant::unloaded();
    let mut command = lull(&["exec", "--cc", &control.0, "--automatic", "--json"]);
    command.args(options).args(["--", "python3", "-c", RECEIVES]).stdin(Stdio::null());
    let said = finish(&mut command);
    assert_eq!(said.code(), Some(0), "{said:?}");
    let words: Vec<&str> = said.out.split_whitespace().collect();
    let [scale, clamp, is_equal] = words[..] else { panic!("{said:?}") };
    let summary = serde_json::from_str(&said.err).unwrap_or_else(|why| panic!("{why}: {said:?}"));
    (scale.parse().unwrap(), clamp.parse().unwrap(), is_equal == "True", summary)
}

#[test]
fn received_bytes_are_in_the_background_by_default() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let (scale, clamp, is_equal, summary) = download(&[]);
    assert!(is_equal);
    assert_eq!(summary["received_in_the_background"], true, "{summary}");
    assert!(summary["tcp_bytes_received"].as_u64().unwrap() >= 5_120_000, "{summary}");
    // A larger scale would make the smallest window more than a packet.
    assert!(scale <= 7, "{scale}");
    assert!(clamp < 8 << 20, "{clamp}");
}

/// The kernel raises the clamp as well, with the buffer of a socket that receives much.
#[test]
fn clamp_that_others_have_raised_is_set_again() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let control = Variant::unloaded();
    let mut command = lull(&["exec", "--cc", &control.0, "--automatic", "--quiet"]);
    command.args(["--", "python3", "-c", SETS_CLAMP]).stdin(Stdio::null());
    let said = finish(&mut command);
    let clamp: u32 = said.out.trim().parse().unwrap_or_else(|why| panic!("{why}: {said:?}"));
    assert!(clamp < 4_000_001, "{clamp}");
}

#[test]
fn downloads_are_left_alone_with_direction_send() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let (_, _, is_equal, summary) = download(&["--direction", "send"]);
    assert!(is_equal);
    assert_eq!(summary["received_in_the_background"], false, "{summary}");
}

#[test]
fn uploads_are_left_alone_with_direction_receive() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let control = Variant::unloaded();
    let script = "import socket
listener = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(listener.getsockname())
print(client.getsockopt(6, 13, 16).rstrip(bytes(1)).decode())
client.setsockopt(6, 13, b'reno')
print(client.getsockopt(6, 13, 16).rstrip(bytes(1)).decode(), client.getsockopt(0, 1))";
    let mut command = lull(&["exec", "--cc", &control.0, "--automatic", "--quiet"]);
    command.args(["--direction", "receive", "--", "python3", "-c", script]);
    let said = finish(&mut command);
    let out: Vec<&str> = said.out.lines().collect();
    assert_ne!(out[0], control.0, "{said:?}");
    assert_eq!(out[1], "reno 0", "neither congestion control nor mark is changed: {said:?}");
}

/// A background download of four connections, and a foreground one that begins three seconds after it and lasts for six,
/// over 10 Mbit/s. The servers are ordinary. Each download logs the time and the bytes so far: on a busy machine a
/// program starts seconds late.
const BESIDE: &str = r#"
serve='import socket, threading
listener = socket.create_server(("", 5001))
def send(sock):
    try:
        while True:
            sock.sendall(bytes(65536))
    except OSError:
        pass
while True:
    threading.Thread(target=send, args=(listener.accept()[0],), daemon=True).start()'
load='import os, selectors, socket, sys, time
host, count, seconds, log, end = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4], sys.argv[5]
socks = [socket.create_connection((host, 5001)) for _ in range(count)]
selector = selectors.DefaultSelector()
for sock in socks:
    sock.setblocking(False)
    selector.register(sock, 1)
begin, total = time.time(), 0
with open(log, "w", buffering=1) as out:
    while (now := time.time()) < begin + seconds and not os.path.exists(end):
        print(now, total, file=out)
        for key, _ in selector.select(0.1):
            try:
                total += len(key.fileobj.recv(1 << 18))
            except BlockingIOError:
                continue'
ip netns exec right1 python3 -c "$serve" &
ip netns exec right2 python3 -c "$serve" &
sleep 1
"$LULL" exec --cc "$NAME" --automatic --quiet $DIRECTION -- \
    python3 -c "$load" "$LULL_RIGHT_1" 4 40 "$OUT/background" "$OUT/end" &
background=$!
for _ in $(seq 600); do
    [ -s "$OUT/background" ] && break
    sleep 0.1
done
sleep 3
python3 -c "$load" "$LULL_RIGHT_2" 1 6 "$OUT/foreground" "$OUT/end"
touch "$OUT/end"
wait $background || exit 1
"#;

/// Bytes of background and foreground in the last four seconds of the foreground.
fn beside(direction: &str) -> (u64, u64) {
    let control = Variant::unloaded();
    let out = tempfile::tempdir().unwrap();
    let mut command = shell(
        r#""$LULL" lab emulate --rate 10mbit --rtt 40ms --right 2 -- bash -c "$BESIDE""#,
        &[],
    );
    command.env("LULL", LULL).env("BESIDE", BESIDE).env("NAME", &control.0);
    command.env("OUT", out.path()).env("DIRECTION", direction);
    let said = finish(&mut command);
    assert_eq!(said.code(), Some(0), "{said:?}");
    let log = |name| -> Vec<(f64, u64)> {
        let text = std::fs::read_to_string(out.path().join(name)).unwrap();
        let line = |line: &str| {
            let (time, bytes) = line.split_once(' ')?;
            Some((time.parse().ok()?, bytes.parse().ok()?))
        };
        text.lines().map(|text| line(text).unwrap_or_else(|| panic!("{text:?}"))).collect()
    };
    let (background, foreground) = (log("background"), log("foreground"));
    let (start, end) = (foreground[0].0 + 2.0, foreground[0].0 + 6.0);
    let received = |log: &[(f64, u64)]| {
        let by = |time| log.iter().rev().find(|(at, _)| *at <= time).map_or(0, |(_, bytes)| *bytes);
        by(end) - by(start)
    };
    (received(&background), received(&foreground))
}

/// Without Lull, four connections beside one have four fifths of the link.
#[test]
fn background_download_yields_to_another_download() {
    needs!(lull_testing::bpf(), lull_testing::root(), lull_testing::command("python3"));
    // Each over a link of its own, at the same time: the machine is as busy for both.
    let [(background, foreground), (other_background, other_foreground)] = thread::scope(|scope| {
        ["", "--direction=send"]
            .map(|direction| scope.spawn(move || beside(direction)))
            .map(|run| run.join().unwrap())
    });
    println!("background {background}, foreground {foreground}");
    println!("--direction send: background {other_background}, foreground {other_foreground}");
    assert!(background > 0, "it makes progress");
    assert!(foreground > 3 * background, "{foreground} beside {background}");
    assert!(other_foreground < other_background, "{other_foreground} beside {other_background}");
}
