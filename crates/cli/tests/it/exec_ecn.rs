//! Background connections ask for ECN (RFC 3168).

use std::process::{Command, Stdio};

use crate::support::{LULL, Variant, finish};
use lull_testing::needs;
use serde_json::{Value, json};

/// Sends 50 kB to itself, and reports ECN's bits of the packets to the server: in the SYN's header of IP and of TCP, in
/// packets with data, and whether the kernel says that the client uses ECN.
const SCRIPT: &str = "import json, socket, struct, sys
with open('/proc/sys/net/ipv4/tcp_ecn', 'w') as setting:
    setting.write(sys.argv[1])
raw = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
raw.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)
raw.bind(('lo', 0))
raw.setblocking(False)
listener = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
client.sendall(bytes(50_000))
left = 50_000
while left:
    left -= len(server.recv(left))
seen = {'syn': set(), 'flags': set(), 'data': set()}
while True:
    try:
        packet = raw.recv(1 << 17)
    except BlockingIOError:
        break
    start = packet[0] % 16 * 4
    if packet[9] != 6 or packet[start + 2:start + 4] != struct.pack('!H', listener.getsockname()[1]):
        continue
    flags, data = packet[start + 13], len(packet) - start - packet[start + 12] // 16 * 4
    if flags & 2:
        seen['syn'].add(packet[1] & 3)
        seen['flags'].add(flags & 0xc0)
    elif data:
        seen['data'].add(packet[1] & 3)
said = {name: sorted(values) for name, values in seen.items()}
said['uses'] = bool(client.getsockopt(6, 11, 256)[5] & 8)
said['congestion'] = client.getsockopt(6, 13, 16).rstrip(bytes(1)).decode()
print(json.dumps(said))";

fn ecn(congestion: &str, server: &str) -> Value {
    let mut command = Command::new("unshare");
    let inside = "ip link set lo up; exec \"$@\"";
    command.args(["--net", "sh", "-c", inside, "sh", LULL, "exec", "--quiet"]);
    command.args(["--cc", congestion, "--", "python3", "-c", SCRIPT, server]);
    serde_json::from_str(&finish(command.stdin(Stdio::null())).ok()).unwrap()
}

/// RFC 3168 6.1.1: an ECN-setup SYN has both flags, and is not ECN-capable itself.
#[test]
fn background_connection_negotiates_ecn() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("ip"));
    for algorithm in ["lull", "nice"] {
        let control = Variant::load(&["--algorithm", algorithm]);
        // 2: only where the client asks for it, the default. 0: never.
        let accepted = json!({
            "syn": [0], "flags": [0xc0], "data": [2], "uses": true, "congestion": control.0,
        });
        assert_eq!(ecn(&control.0, "2"), accepted, "{algorithm}");
        let refused = json!({
            "syn": [0], "flags": [0xc0], "data": [0], "uses": false, "congestion": control.0,
        });
        assert_eq!(ecn(&control.0, "0"), refused, "{algorithm}");
    }
}
