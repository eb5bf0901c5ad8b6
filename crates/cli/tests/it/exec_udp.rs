//! `lull exec --udp yield`: UDP uploads of a program yield.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use lull_testing::{bound, needs};
use serde_json::Value;

use crate::support::{LULL, Variant, finish, finish_within, lull, shell};

/// `examples/quic.rs`, which cargo builds with the tests.
fn quic() -> PathBuf {
    let quic = Path::new(LULL).with_file_name("examples").join("quic");
    assert!(quic.exists(), "cargo builds {} with the tests of this package", quic.display());
    quic
}

/// Sends a datagram each third of a millisecond for a second, and prints the errors.
const SENDS: &str = "import collections, socket, sys, time
is_v4 = '.' in sys.argv[1]
sock = socket.socket(socket.AF_INET if is_v4 else socket.AF_INET6, socket.SOCK_DGRAM)
if sys.argv[2] == 'errors':
    sock.setsockopt(*((0, 11) if is_v4 else (41, 25)), 1)
sock.connect((sys.argv[1], 9999))
errors, end = collections.Counter(), time.time() + 1
while time.time() < end:
    try:
        sock.send(bytes(1200))
    except OSError as error:
        errors[error.errno] += 1
    time.sleep(0.0003)
print(list(errors))";

/// Sends four times, and writes output and summary of each to its own file.
const FOUR_TIMES: &str = r#"
ip netns exec right1 python3 -c 'import socket, time
sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
sock.bind(("::", 9999))
time.sleep(60)' &
sleep 1
for errors in none errors; do
    for family in 4 6; do
        to=$LULL_RIGHT_1
        [ $family = 4 ] || to=$LULL_RIGHT_1_V6
        "$LULL" exec --udp yield --cc "$NAME" --automatic=lull --json="$OUT/json-$errors-$family" -- \
            python3 -c "$SENDS" "$to" "$errors" >"$OUT/out-$errors-$family" || exit 1
    done
done
kill %1
"#;

/// The sender offers 28 Mbit/s to a link of 2 Mbit/s.
#[test]
fn dropped_datagrams_are_no_errors_of_their_sender() {
    needs!(lull_testing::bpf(), lull_testing::root(), lull_testing::command("python3"));
    let control = Variant::unloaded();
    let out = tempfile::tempdir().unwrap();
    let script = r#""$LULL" lab emulate --rate 2mbit --rtt 20ms -- bash -c "$FOUR_TIMES""#;
    let mut command = shell(script, &[]);
    command.env("LULL", LULL).env("FOUR_TIMES", FOUR_TIMES).env("SENDS", SENDS);
    command.env("OUT", out.path()).env("NAME", &control.0);
    let said = finish(&mut command);
    assert_eq!(said.code(), Some(0), "{said:?}");
    let read = |name: String| fs::read_to_string(out.path().join(name)).unwrap();
    for family in ["4", "6"] {
        assert_eq!(read(format!("out-none-{family}")).trim(), "[]");
        // Sockets that ask for errors get that of a full queue: ENOBUFS, never EPERM.
        assert_eq!(read(format!("out-errors-{family}")).trim(), "[105]");
        for errors in ["none", "errors"] {
            let summary: Value =
                serde_json::from_str(&read(format!("json-{errors}-{family}"))).unwrap();
            assert_eq!(summary["shortfalls"], Value::Array(vec![]), "{summary}");
            let udp = &summary["udp_in_the_background"];
            let number = |name: &str| udp[name].as_u64().unwrap_or_else(|| panic!("{summary}"));
            assert!(number("packets_dropped") > 100, "{udp}");
            println!("{errors} {family}: {udp}");
            // 250 kB pass in the second, and the start may have twice as much. A busy machine learns the limit late.
            assert!(number("bytes") < bound(u64::MAX, 750_000), "{udp}");
            assert_eq!(
                (number("networks_without_echo"), number("packets_marked")),
                (0, 0),
                "{udp}"
            );
        }
    }
}

/// A QUIC upload for eight seconds, and a TCP upload of the same host beside it from the second to the seventh.
const BESIDE: &str = r#"
ip netns exec right1 "$QUIC" receive "[::]:4433" "$OUT/certificate" >"$OUT/background" &
quic=$!
ip netns exec right2 python3 -c 'import socket, time
listener = socket.create_server(("", 5001))
sock, _ = listener.accept()
total, end = 0, time.time() + 5
while part := sock.recv(1 << 18):
    # What the sender has still buffered then arrives when the other upload has ended.
    if time.time() < end:
        total += len(part)
print(total)' >"$OUT/foreground" &
tcp=$!
# The receiver listens once it has written its certificate.
for _ in $(seq 600); do
    [ -s "$OUT/certificate" ] && break
    sleep 0.1
done
"$LULL" exec --udp "$UDP" --cc "$NAME" --automatic=lull --json="$OUT/json" -- \
    "$QUIC" send "$LULL_RIGHT_1:4433" "$OUT/certificate" 8 >"$OUT/sender" &
job=$!
sleep 2
python3 -c 'import socket, sys, time
sock = socket.socket()
sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
sock.connect((sys.argv[1], 5001))
sock.settimeout(1)
end = time.time() + 5
while time.time() < end:
    try:
        sock.send(bytes(1 << 14))
    except TimeoutError:
        pass' "$LULL_RIGHT_2"
wait $job || exit 1
wait $tcp || exit 1
wait $quic || exit 1
"#;

/// Bytes of background and foreground, and the summary.
fn beside(udp: &str) -> (u64, u64, Value) {
    let control = Variant::unloaded();
    let out = tempfile::tempdir().unwrap();
    let script = r#""$LULL" lab emulate --rate 10mbit --rtt 40ms --right 2 -- bash -c "$BESIDE""#;
    let mut command = shell(script, &[]);
    command.env("LULL", LULL).env("QUIC", quic()).env("BESIDE", BESIDE).env("UDP", udp);
    command.env("OUT", out.path()).env("NAME", &control.0);
    let said = finish_within(&mut command, std::time::Duration::from_secs(90));
    assert_eq!(said.code(), Some(0), "{said:?}");
    let read = |name| fs::read_to_string(out.path().join(name)).unwrap();
    let bytes = |name| read(name).trim().parse().unwrap_or_else(|why| panic!("{why}: {said:?}"));
    println!("{udp}: {}", read("sender"));
    let summary: Value = serde_json::from_str(&read("json")).unwrap();
    (bytes("background"), bytes("foreground"), summary)
}

/// Without Lull, the foreground has less than half of the link in these five seconds.
#[test]
fn quic_upload_yields_to_a_tcp_upload() {
    needs!(lull_testing::bpf(), lull_testing::root(), lull_testing::command("python3"));
    // Each over a link of its own, at the same time: the machine is as busy for both.
    let [(background, foreground, summary), (other_background, other_foreground, other_summary)] =
        thread::scope(|scope| {
            ["yield", "pass"]
                .map(|udp| scope.spawn(move || beside(udp)))
                .map(|run| run.join().unwrap())
        });
    println!("background {background}, foreground {foreground}");
    println!("--udp pass: background {other_background}, foreground {other_foreground}");
    let udp = &summary["udp_in_the_background"];
    assert_eq!((&summary["exit_code"], &summary["udp"]), (&0.into(), &"yield".into()));
    // quinn supports ECN.
    assert!(udp["packets_marked"].as_u64().unwrap() > 0, "{summary}");
    assert!(background > 100_000, "it makes progress: {background}");
    assert_eq!(other_summary["udp_in_the_background"], Value::Null, "{other_summary}");
    // A busy machine forwards less than the link carries, and so neither is held up by the other.
    assert!(foreground > bound(0, other_foreground), "{foreground} {other_foreground}");
    assert!(background < bound(u64::MAX, other_background), "{background} {other_background}");
    assert!(foreground > bound(0, background), "{foreground} beside {background}");
}

#[test]
fn udp_of_a_running_process_cannot_yield() {
    let said = finish(&mut lull(&["exec", "--udp", "yield", "--pid", "1"]));
    said.fails(125, "cannot be used with");
}
