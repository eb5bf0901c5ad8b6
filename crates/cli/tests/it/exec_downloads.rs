//! Downloads of a program under `lull exec` yield as well.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

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

/// Receives over loopback by a socket on which the program sets an option (level, name, value): before it connects, afterwards,
/// or on the listener that accepts it. Prints the median of clamps from then on, the receive buffer, and whether all bytes
/// are right. The kernel raises a clamp with the buffer, until the next segment leaves.
const SETS_OPTION: &str = "import socket, sys, threading
option, when = [int(word) for word in sys.argv[1:4]], sys.argv[4]
listener, client = socket.create_server(('127.0.0.1', 0)), socket.socket()
if when != 'after':
    (client if when == 'before' else listener).setsockopt(*option)
client.connect(listener.getsockname())
server = listener.accept()[0]
sender, receiver = (client, server) if when == 'listener' else (server, client)
if when == 'after':
    receiver.setsockopt(*option)
data = bytes(range(256)) * 8_000
def serve():
    with sender:
        sender.sendall(data)
threading.Thread(target=serve, daemon=True).start()
received, clamps = bytearray(), []
while part := receiver.recv(1 << 14):
    received += part
    clamps.append(receiver.getsockopt(6, 10))
print(sorted(clamps)[len(clamps) // 2], receiver.getsockopt(1, 8), received == data)";
/// TCP_WINDOW_CLAMP and SO_RCVBUF with their levels.
const CLAMP: [u32; 2] = [6, 10];
const BUFFER: [u32; 2] = [1, 8];

/// Runs that script; the median clamp and the buffer.
fn receive_with_option(option: [u32; 2], value: u32, when: &str) -> (u32, u32) {
    let control = Variant::unloaded();
    let mut command = lull(&["exec", "--cc", &control.0, "--automatic", "--quiet"]);
    command.args(["--", "python3", "-c", SETS_OPTION]).args(option.map(|word| word.to_string()));
    command.args([&value.to_string(), when]).stdin(Stdio::null());
    let said = finish(&mut command);
    let words: Vec<&str> = said.out.split_whitespace().collect();
    let [clamp, buffer, "True"] = words[..] else { panic!("{said:?}") };
    (clamp.parse().unwrap(), buffer.parse().unwrap())
}

#[test]
fn lower_clamp_of_the_program_is_kept() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    for when in ["before", "after", "listener"] {
        let (clamp, _) = receive_with_option(CLAMP, 20_000, when);
        assert!(clamp <= 20_000, "{clamp}, set {when}");
    }
}

/// The kernel doubles the size that a program asks for.
#[test]
fn receive_buffer_of_the_program_is_kept() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    for size in [4096, 100_000] {
        for when in ["before", "after"] {
            let (_, buffer) = receive_with_option(BUFFER, size, when);
            assert_eq!(buffer, 2 * size, "set {when}");
        }
    }
    // The system's limit is lower than this, perhaps (net.core.rmem_max).
    let (clamp, buffer) = receive_with_option(BUFFER, 4_000_000, "before");
    assert!((200_000..=8_000_000).contains(&buffer), "{buffer}");
    assert!(clamp < 8 << 20, "{clamp}");
}

/// Receives over loopback until there is a file `go`, and a little more. Writes its number to a file `pid` once something
/// has come; at the end, the last clamp and whether all bytes are there to `result`.
const CONTINUES: &str = "import os, socket, sys, threading, time
os.chdir(sys.argv[1])
listener, client = socket.create_server(('127.0.0.1', 0)), socket.socket()
client.connect(listener.getsockname())
client.setsockopt(6, 10, int(sys.argv[2]))
server, sent = listener.accept()[0], 0
def serve():
    global sent
    more = 100
    while more:
        server.sendall(bytes(1000))
        sent += 1000
        more -= os.path.exists('go')
        time.sleep(0.01)
    server.close()
def write(name, text):
    with open(name + '.new', 'w') as out:
        out.write(text)
    os.rename(name + '.new', name)
thread = threading.Thread(target=serve)
thread.start()
received = 0
while part := client.recv(1 << 14):
    if not received:
        write('pid', str(os.getpid()))
    received += len(part)
    clamp = client.getsockopt(6, 10)
thread.join()
write('result', f'{clamp} {received == sent}')";

/// Waits for a file, and reads it.
fn read_when_there(path: &Path) -> String {
    let limit = Instant::now() + Duration::from_secs(90);
    while !path.exists() {
        assert!(Instant::now() < limit, "no {}", path.display());
        thread::sleep(Duration::from_millis(10));
    }
    fs::read_to_string(path).unwrap()
}

/// Runs that script by `command`, with a clamp of its own; `event` happens during the download, with the running command
/// and the number of the program. Returns the last clamp.
fn clamp_after(command: &mut Command, clamp: u32, event: impl FnOnce(&mut Child, &str)) -> u32 {
    let folder = tempfile::tempdir().unwrap();
    command.args(["-c", CONTINUES]).arg(folder.path()).arg(clamp.to_string());
    let mut child = command.stdin(Stdio::null()).spawn().unwrap();
    let pid = read_when_there(&folder.path().join("pid"));
    event(&mut child, &pid);
    fs::write(folder.path().join("go"), "").unwrap();
    let result = read_when_there(&folder.path().join("result"));
    let _ = child.wait();
    let Some((clamp, "True")) = result.split_once(' ') else { panic!("{result}") };
    clamp.parse().unwrap()
}

/// Python in the background.
fn background_python(control: &Variant) -> Command {
    let mut command = lull(&["exec", "--cc", &control.0, "--automatic", "--quiet"]);
    command.args(["--", "python3"]);
    command
}

/// Less than a packet over loopback: the background never lowers it further.
const OWN_CLAMP: u32 = 20_000;
/// More than the background allows a connection here.
const LARGE_CLAMP: u32 = 4_000_001;

#[test]
fn clamp_is_the_programs_again_in_the_foreground() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let control = Variant::unloaded();
    let clamp = clamp_after(&mut background_python(&control), OWN_CLAMP, |_, pid| {
        let said = finish(&mut lull(&["exec", "--pid", pid, "--foreground"]));
        assert_eq!(said.code(), Some(0), "{said:?}");
    });
    assert_eq!(clamp, OWN_CLAMP);
}

/// The hooks belong to the cgroup: the download stays in the background, and ends.
#[test]
fn download_continues_after_its_lull_is_killed() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let control = Variant::unloaded();
    let kill = |child: &mut Child, _: &str| child.kill().unwrap();
    let clamp = clamp_after(&mut background_python(&control), LARGE_CLAMP, kill);
    assert!(clamp < LARGE_CLAMP, "{clamp}");
}

#[test]
fn download_continues_after_a_forced_unload() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let control = Variant::unloaded();
    let clamp = clamp_after(&mut background_python(&control), LARGE_CLAMP, |_, _| {
        let said = finish(&mut lull(&["kernel", "unload", "--force", "--name", &control.0]));
        assert_eq!(said.code(), Some(0), "{said:?}");
    });
    assert!(clamp < LARGE_CLAMP, "{clamp}");
}

/// The hooks of its socket are those of the cgroup from which its process was moved. Kernels before 6.12 cannot change which
/// of them an open connection calls: then a line says so.
#[test]
fn open_download_yields_after_its_process_was_moved() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let control = Variant::unloaded();
    let mut text = String::new();
    let clamp = clamp_after(&mut Command::new("python3"), LARGE_CLAMP, |_, pid| {
        let said = finish(&mut lull(&["exec", "--cc", &control.0, "--automatic", "--pid", pid]));
        assert_eq!(said.code(), Some(0), "{said:?}");
        text = said.out;
    });
    let stays = text.contains("may receive, from before");
    assert_eq!(stays, clamp >= LARGE_CLAMP, "{clamp}: {text}");
    let foreground = clamp_after(&mut Command::new("python3"), LARGE_CLAMP, |_, pid| {
        for words in [&["--cc", &control.0, "--automatic"][..], &["--foreground"]] {
            let said = finish(lull(&["exec", "--pid", pid]).args(words));
            assert_eq!(said.code(), Some(0), "{said:?}");
        }
    });
    assert!(foreground >= LARGE_CLAMP, "{foreground}");
}

/// One line says so, and everything else is as usual.
#[test]
fn kernel_without_the_hook_for_downloads_is_reported() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let (_, _, is_equal, summary) = download(&["--no-receive-hook"]);
    assert!(is_equal);
    assert_eq!(summary["received_in_the_background"], false, "{summary}");
    let shortfalls = summary["shortfalls"].as_array().unwrap();
    let line = shortfalls[0].as_str().unwrap();
    assert!(line.starts_with("received traffic does not yield: "), "{line}");
    assert_eq!((shortfalls.len(), line.lines().count()), (1, 1), "{line}");
}

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

/// Both ends speak MPTCP, or the server only TCP: then the client falls back to it.
const RECEIVES_OVER_MPTCP: &str = "import socket, sys, threading
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, int(sys.argv[1]))
listener.bind(('127.0.0.1', 0))
listener.listen()
data = bytes(range(256)) * 8_000
def serve():
    server, _ = listener.accept()
    with server:
        server.sendall(data)
threading.Thread(target=serve, daemon=True).start()
client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
client.connect(listener.getsockname())
received = bytearray()
while part := client.recv(1 << 16):
    received += part
print(received == data)";

#[test]
fn mptcp_downloads_are_complete() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    for protocol in ["262", "6"] {
        let control = Variant::unloaded();
        let mut command = lull(&["exec", "--cc", &control.0, "--automatic", "--json"]);
        command.args(["--", "python3", "-c", RECEIVES_OVER_MPTCP, protocol]).stdin(Stdio::null());
        let said = finish(&mut command);
        if said.err.contains("Protocol not available") {
            println!("this kernel has no MPTCP");
            return;
        }
        assert_eq!((said.code(), said.out.trim()), (Some(0), "True"), "{said:?}");
        let summary: Value = serde_json::from_str(&said.err).unwrap();
        assert!(summary["tcp_bytes_received"].as_u64().unwrap() >= 2_048_000, "{summary}");
        assert_eq!(summary["received_in_the_background"], true, "{summary}");
    }
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
print(client.getsockopt(6, 13, 16).rstrip(bytes(1)).decode(), client.getsockopt(0, 1) & 0xfc)";
    let mut command = lull(&["exec", "--cc", &control.0, "--automatic", "--quiet"]);
    command.args(["--direction", "receive", "--", "python3", "-c", script]);
    let said = finish(&mut command);
    let out: Vec<&str> = said.out.lines().collect();
    assert_ne!(out[0], control.0, "{said:?}");
    assert_eq!(out[1], "reno 0", "neither congestion control nor mark is changed: {said:?}");
}

/// A background download of four connections, and a foreground one that begins three seconds after it and lasts for six,
/// over 10 Mbit/s. The servers are ordinary. Each download logs the time and the bytes so far: on a busy machine a
/// program starts seconds late. `SETTINGS` runs first, at the receiver. With `STOPS` the background reads nothing from the
/// second to the twelfth second on, and has two more megabytes before it ends.
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
        if "STOPS" in os.environ and begin + 2 < now < begin + 12:
            time.sleep(0.1)
            continue
        for key, _ in selector.select(0.1):
            try:
                total += len(key.fileobj.recv(1 << 18))
            except BlockingIOError:
                continue'
eval "$SETTINGS"
ip netns exec right1 python3 -c "$serve" &
ip netns exec right2 python3 -c "$serve" &
sleep 1
"$LULL" exec --cc "$NAME" --automatic --quiet $DIRECTION -- \
    python3 -c "$load" "$LULL_RIGHT_1" 4 ${STOPS:+1}60 "$OUT/background" "$OUT/end" &
background=$!
for _ in $(seq 600); do
    [ -s "$OUT/background" ] && break
    sleep 0.1
done
sleep 3
env -u STOPS python3 -c "$load" "$LULL_RIGHT_2" 1 6 "$OUT/foreground" "$OUT/end"
received() {
    tail -n 1 "$OUT/background" | cut -d " " -f 2
}
if [ -n "$STOPS" ]; then
    sleep 8
    wanted=$(($(received) + 2000000))
    for _ in $(seq 1000); do
        [ "$(received)" -gt $wanted ] && break
        sleep 0.1
    done
fi
touch "$OUT/end"
wait $background || exit 1
"#;

/// The time and the bytes so far, line by line.
type Log = Vec<(f64, u64)>;

/// The logs of background and foreground, with these variables of the script.
fn run_beside(variables: &[(&str, &str)]) -> (Log, Log) {
    let control = Variant::unloaded();
    let out = tempfile::tempdir().unwrap();
    let mut command = shell(
        r#""$LULL" lab emulate --rate 10mbit --rtt 40ms --right 2 -- bash -c "$BESIDE""#,
        &[],
    );
    command.env("LULL", LULL).env("BESIDE", BESIDE).env("NAME", &control.0);
    command.env("OUT", out.path()).envs(variables.iter().copied());
    let said = finish(&mut command);
    assert_eq!(said.code(), Some(0), "{said:?}");
    let log = |name| -> Log {
        let text = fs::read_to_string(out.path().join(name)).unwrap();
        let line = |line: &str| {
            let (time, bytes) = line.split_once(' ')?;
            Some((time.parse().ok()?, bytes.parse().ok()?))
        };
        text.lines().map(|text| line(text).unwrap_or_else(|| panic!("{text:?}"))).collect()
    };
    (log("background"), log("foreground"))
}

/// Bytes of background and foreground in the last four seconds of the foreground.
fn beside(variables: &[(&str, &str)]) -> (u64, u64) {
    let (background, foreground) = run_beside(variables);
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
            .map(|direction| scope.spawn(move || beside(&[("DIRECTION", direction)])))
            .map(|run| run.join().unwrap())
    });
    println!("background {background}, foreground {foreground}");
    println!("--direction send: background {other_background}, foreground {other_foreground}");
    assert!(background > 0, "it makes progress");
    assert!(foreground > 3 * background, "{foreground} beside {background}");
    assert!(other_foreground < other_background, "{other_foreground} beside {other_background}");
}

/// A setting of the receiver's network.
fn without(option: &str) -> String {
    format!("echo 0 >/proc/sys/net/ipv4/tcp_{option}")
}

#[test]
fn download_without_time_stamps_or_scaling_yields() {
    needs!(lull_testing::bpf(), lull_testing::root(), lull_testing::command("python3"));
    let results = thread::scope(|scope| {
        ["timestamps", "window_scaling"]
            .map(|option| scope.spawn(move || (option, beside(&[("SETTINGS", &without(option))]))))
            .map(|run| run.join().unwrap())
    });
    for (option, (background, foreground)) in results {
        println!("without {option}: background {background}, foreground {foreground}");
        assert!(background > 0, "it makes progress without {option}");
        assert!(foreground > 2 * background, "{foreground} beside {background} without {option}");
    }
}

/// Its sender probes the closed window (RFC 9293 §3.8.6.1), and no probe may end the connection.
#[test]
fn download_goes_on_after_its_receiver_has_paused() {
    needs!(lull_testing::bpf(), lull_testing::root(), lull_testing::command("python3"));
    let (background, _) = run_beside(&[("STOPS", "STOPS=1")]);
    let longest = background.windows(2).map(|two| two[1].1 - two[0].1).max();
    let total = background.last().unwrap().1;
    assert!(total > 2_000_000, "{total} bytes, at most {longest:?} at once");
}

/// A TCP of its own in place of the host `right1`: it keeps 200 packets in flight, whatever window it hears of.
const IGNORES_WINDOW: &str = r#"
ignores='import select, socket, struct, sys, time
here, total, size = socket.inet_aton(sys.argv[1]), int(sys.argv[2]), 1400
link = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
link.bind(("lull0", 0x0800))
def fold(data):
    words = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while words >> 16:
        words = (words & 0xffff) + (words >> 16)
    return words ^ 0xffff
def send(seq, flags, length=0, options=b""):
    offset = (20 + len(options)) // 4 << 4
    tcp = bytearray(struct.pack("!HHIIBBHHH", 5001, port, seq & 0xffffffff, heard, offset, flags, 65535, 0, 0) + options)
    tcp += bytes(length)
    struct.pack_into("!H", tcp, 16, fold(here + there + struct.pack("!HH", 6, len(tcp)) + tcp))
    ip = bytearray(struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0) + here + there)
    struct.pack_into("!H", ip, 10, fold(ip))
    try:
        link.send(bytes(ip + tcp))
    except OSError:
        pass
first, acked, sent, moved = 1000, None, 0, time.time()
while acked is None or acked < total + 2:
    if select.select([link], [], [], 0.002)[0]:
        packet = link.recv(65536)
        if packet[9] != 6 or packet[16:20] != here:
            continue
        there = packet[12:16]
        at = (packet[0] & 15) * 4
        port, _, seq, ack, _, flags = struct.unpack_from("!HHIIBB", packet, at)
        if flags & 2:
            heard = seq + 1 & 0xffffffff
            send(first, 0x12, options=b"\2\4" + struct.pack("!H", size))
        elif flags & 4:
            sys.exit("reset")
        elif ack - first > (acked or 0):
            acked, moved = ack - first, time.time()
            sent = max(sent, acked - 1)
        continue
    if acked is None:
        continue
    if time.time() > moved + 0.3:
        sent, moved = acked - 1, time.time()
    for _ in range(4):
        if sent < total and sent < acked - 1 + 200 * size:
            length = min(size, total - sent)
            send(first + 1 + sent, 0x10, length)
            sent += length
    if acked > total:
        send(first + 1 + total, 0x11)
'
ip netns exec right1 ip address delete "$LULL_RIGHT_1/32" dev lull0
ip netns exec right1 python3 -c "$ignores" "$LULL_RIGHT_1" 1000000 &
"$LULL" exec --cc "$NAME" --automatic --quiet -- python3 -c 'import socket, sys
client = socket.create_connection((sys.argv[1], 5001), 60)
total = 0
while part := client.recv(1 << 16):
    total += len(part)
print(total)' "$LULL_RIGHT_1"
"#;

/// The kernel drops what comes beyond the window, and the sender repeats it: such a download is not slowed for others, but it
/// ends.
#[test]
fn download_from_a_sender_that_ignores_windows_ends() {
    needs!(lull_testing::bpf(), lull_testing::root(), lull_testing::command("python3"));
    let control = Variant::unloaded();
    let script = r#""$LULL" lab emulate --rate 10mbit --rtt 40ms -- bash -c "$IGNORES_WINDOW""#;
    let mut command = shell(script, &[]);
    command.env("LULL", LULL).env("IGNORES_WINDOW", IGNORES_WINDOW).env("NAME", &control.0);
    let said = finish(&mut command);
    assert_eq!(said.code(), Some(0), "{said:?}");
    assert_eq!(said.out.lines().next(), Some("1000000"), "{said:?}");
}
