//! Real programs under `lull exec`: downloads of the programs that CI has, and progress beside a full foreground.
//! `scripts/real-programs.sh` runs more of them, and `scripts/survival.sh` runs uploads for ten minutes.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lull_testing::{bound, needs};

use crate::support::{LULL, Said, Variant, finish, finish_within, shell};

fn real_programs(words: &[&str]) -> Said {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/real-programs.sh");
    let mut command = Command::new(script);
    command.args(["--no-install", "--size", "2000000", "--rate", "50mbit", "--beside", "2"]);
    command.args(["--lull", LULL]).args(words).stdin(Stdio::null());
    finish_within(&mut command, Duration::from_secs(180))
}

/// The script compares exit codes and bytes with those of the same programs without Lull.
#[test]
fn real_downloads_have_the_same_result_in_the_background() {
    needs!(lull_testing::bpf(), lull_testing::root());
    let programs =
        ["nginx", "curl", "wget", "git", "rsync", "sshd", "sftp", "ssh-keygen", "python3"];
    for program in programs {
        needs!(lull_testing::command(program));
    }
    let said =
        real_programs(&["--modes", "exec", "curl:exec,exec6,pid", "wget", "git", "rsync", "sftp"]);
    println!("{}", said.out);
    assert_eq!(said.code(), Some(0), "{said:?}");
    let count = |words: &str| said.out.lines().filter(|line| line.contains(words)).count();
    assert_eq!(
        (count(" | exec | 0 | "), count(" | exec6 | 0 | "), count(" | pid | 0 | ")),
        (5, 1, 1),
        "{said:?}"
    );
}

/// An upload in the background, and one in the foreground to another host that fills the link all the time. Prints how
/// many bytes have arrived meanwhile, and the longest time without any.
const STARVED: &str = r#"
receive='import socket, time
listener = socket.create_server(("", 5001))
server, _ = listener.accept()
begin = last = time.monotonic()
received, gap = 0, 0
server.settimeout(0.1)
while (now := time.monotonic()) < begin + 16:
    try:
        count = len(server.recv(1 << 16))
    except TimeoutError:
        count = 0
    now = time.monotonic()
    gap = max(gap, now - last)
    if count:
        received, last = received + count, now
print(received, gap)'
send='import socket, sys, time
client = socket.create_connection((sys.argv[1], 5001))
client.setsockopt(6, 13, sys.argv[2].encode())
client.settimeout(float(sys.argv[3]))
try:
    client.sendall(bytes(100_000_000))
except OSError:
    pass'
drain='import socket
server, _ = socket.create_server(("", 5001)).accept()
while server.recv(1 << 16):
    pass'
ip netns exec right1 python3 -c "$receive" &
receiver=$!
ip netns exec right2 python3 -c "$drain" &
sleep 1
python3 -c "$send" "$LULL_RIGHT_2" cubic 22 &
sleep 3
"$LULL" exec --cc "$NAME" --automatic --quiet -- python3 -c "$send" "$LULL_RIGHT_1" cubic 20 &
wait $receiver
"#;

/// Without the minimum of the congestion control, a packet leaves each 50 round-trip times.
#[test]
fn upload_makes_progress_beside_a_full_foreground() {
    needs!(lull_testing::bpf(), lull_testing::root(), lull_testing::command("python3"));
    let control = Variant::unloaded();
    let link = "--rate 20mbit --rate-up 2mbit --rtt 60ms --buffer 256kB --right 2";
    let script = format!(r#""$LULL" lab emulate {link} -- bash -c "$STARVED""#);
    let said = finish(shell(&script, &[]).env("STARVED", STARVED).env("NAME", &control.0));
    let words: Vec<f64> = said.out.split_whitespace().flat_map(str::parse).collect();
    let [received, gap] = words[..] else { panic!("{said:?}") };
    println!("{received} bytes, at most {gap} s without any");
    assert!(received > 10_000.0, "{received}");
    assert!(gap < bound(12.0, 6.0), "{gap} s without a byte");
    assert!(received < 2_000_000.0, "the foreground has most of the link: {received}");
}
