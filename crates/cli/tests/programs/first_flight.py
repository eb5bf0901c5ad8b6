"""Prints how many bytes a client sends before anything of it is acknowledged.

Usage, alone in a network namespace: first_flight.py COMMAND..., which starts the client under
test; " python3 -c CLIENT" is appended. The other end is played by hand on a raw socket: it takes
part in the handshake and says nothing from then on.
"""

import select
import socket
import struct
import subprocess
import sys
import time

HERE, THERE, PORT = "10.9.0.1", "10.9.0.2", 873
MSS = 1460
CLIENT = f"""
import socket, struct, sys
s = socket.create_connection(("{THERE}", {PORT}))
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
s.setblocking(False)
s.send(bytes(100_000))
print("sent", flush=True)
sys.stdin.read()
"""


def run(command):
    subprocess.run(command.split(), check=True)


def checksum(data):
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def syn_ack(frame):
    """The answer to the SYN in an Ethernet frame: an MSS, no other option, a window of 65535."""
    ports, sequence = frame[36:38] + frame[34:36], struct.unpack("!I", frame[38:42])[0]
    rest = struct.pack("!IIBBHHHBBH", 1, sequence + 1, 6 << 4, 0x12, 0xFFFF, 0, 0, 2, 4, MSS)
    segment = ports + rest
    addresses = frame[30:34] + frame[26:30]
    pseudo = addresses + struct.pack("!HH", socket.IPPROTO_TCP, len(segment))
    check = struct.pack("!H", checksum(pseudo + segment))
    segment = segment[:16] + check + segment[18:]
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(segment), 0, 0, 64, socket.IPPROTO_TCP, 0)
    header += addresses
    header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
    return frame[6:12] + frame[0:6] + b"\x08\x00" + header + segment


# No probe for a lost tail (RFC 8985, 7) adds to the flight.
with open("/proc/sys/net/ipv4/tcp_early_retrans", "w") as setting:
    setting.write("0")
run("ip link add here type veth peer name there")
run("ip link set here up")
run("ip link set there up")
run(f"ip address add {HERE}/24 dev here")
run(f"ip neighbor add {THERE} lladdr 02:00:00:00:00:02 dev here")

peer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
peer.bind(("there", 0))
client = subprocess.Popen(
    [*sys.argv[1:], "python3", "-c", CLIENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
)
first = highest = None
has_sent = False
deadline = time.monotonic() + 20
while time.monotonic() < deadline:
    if not select.select([peer], [], [], 0.05)[0]:
        # The flight is over once the client has handed all to the kernel and nothing more comes.
        if has_sent:
            break
        has_sent = bool(select.select([client.stdout], [], [], 0)[0])
        continue
    frame, where = peer.recvfrom(1 << 17)
    if where[2] == socket.PACKET_OUTGOING or frame[23] != socket.IPPROTO_TCP:
        continue
    flags, sequence = frame[47], struct.unpack("!I", frame[38:42])[0]
    if flags & 2:
        first = highest = sequence + 1
        peer.send(syn_ack(frame))
        continue
    payload = struct.unpack("!H", frame[16:18])[0] - 20 - (frame[46] >> 4) * 4
    highest = max(highest, sequence + payload)
client.stdin.close()
client.wait()
print(highest - first)
