"""Tells, as JSON, the window of a connection before and after a congestion mark and two losses.

Usage, alone in a network namespace: marks.py CONTROL. The client is an ordinary socket; the other
end is played by hand on a raw socket, so that it decides what is marked and what is lost.
"""

import fcntl
import json
import select
import socket
import struct
import subprocess
import sys
import time

HERE, THERE, PORT = "10.9.0.1", "10.9.0.2", 873
MSS = 1460
TCP_INFO = 11
CWND_AT = 80
SIOCETHTOOL, ETHTOOL_STSO, ETHTOOL_SGSO = 0x8946, 0x1F, 0x24
SYN, ACK, ECE = 0x02, 0x10, 0x40


def run(command):
    subprocess.run(command.split(), check=True)


def switch_off(device, feature):
    """Segmentation offload would hide the packets from us."""
    import ctypes

    value = ctypes.create_string_buffer(struct.pack("II", feature, 0))
    request = struct.pack("16sP16x", device.encode(), ctypes.addressof(value))
    with socket.socket() as sock:
        fcntl.ioctl(sock, SIOCETHTOOL, request)


def checksum(data):
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Peer:
    """The receiver. Sequence numbers are told as packets, from the first one of the client."""

    def __init__(self):
        self.raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        self.raw.bind(("there", 0))
        self.frame = None
        self.first = None
        self.sent = 0

    def listen(self):
        """Takes what comes until nothing does."""
        deadline = time.monotonic() + 10
        while select.select([self.raw], [], [], 0.06)[0]:
            assert time.monotonic() < deadline
            frame, where = self.raw.recvfrom(1 << 17)
            if where[2] == socket.PACKET_OUTGOING or frame[23] != socket.IPPROTO_TCP:
                continue
            sequence = struct.unpack("!I", frame[38:42])[0]
            if frame[47] & SYN:
                self.frame, self.first = frame, sequence + 1
                continue
            payload = struct.unpack("!H", frame[16:18])[0] - 20 - (frame[46] >> 4) * 4
            end = (sequence + payload - self.first) & 0xFFFFFFFF
            self.sent = max(self.sent, end // MSS)

    def answer(self, acknowledged, flags=ACK, options=b"", sequence=2):
        number = (self.first + acknowledged * MSS) & 0xFFFFFFFF
        ports = self.frame[36:38] + self.frame[34:36]
        length = (20 + len(options)) // 4
        segment = ports + struct.pack(
            "!IIBBHHH", sequence, number, length << 4, flags, 0xFFFF, 0, 0
        )
        segment += options
        addresses = self.frame[30:34] + self.frame[26:30]
        pseudo = addresses + struct.pack("!HH", socket.IPPROTO_TCP, len(segment))
        check = struct.pack("!H", checksum(pseudo + segment))
        segment = segment[:16] + check + segment[18:]
        header = struct.pack(
            "!BBHHHBBH", 0x45, 0, 20 + len(segment), 0, 0, 64, socket.IPPROTO_TCP, 0
        )
        header += addresses
        header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
        self.raw.send(self.frame[6:12] + self.frame[0:6] + b"\x08\x00" + header + segment)

    def lose(self, packet, until):
        """Selectively acknowledges what was sent behind a packet."""
        edges = [(self.first + edge * MSS) & 0xFFFFFFFF for edge in (packet + 1, until)]
        self.answer(packet, options=struct.pack("!BBBBII", 1, 1, 5, 10, *edges))


def window():
    # The acknowledgement is taken in another context.
    time.sleep(0.02)
    return struct.unpack_from("I", client.getsockopt(socket.IPPROTO_TCP, TCP_INFO, 256), CWND_AT)[0]


for name, value in ("tcp_ecn", 1), ("tcp_early_retrans", 0), ("tcp_no_metrics_save", 1):
    with open(f"/proc/sys/net/ipv4/{name}", "w") as setting:
        setting.write(str(value))
run("ip link add here type veth peer name there")
switch_off("here", ETHTOOL_STSO)
switch_off("here", ETHTOOL_SGSO)
run("ip link set here up")
run("ip link set there up")
run(f"ip address add {HERE}/24 dev here")
run(f"ip neighbor add {THERE} lladdr 02:00:00:00:00:02 dev here")

peer = Peer()
client = socket.socket()
client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, sys.argv[1].encode())
client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_000_000)
client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
client.setblocking(False)
client.connect_ex((THERE, PORT))
peer.listen()
# An MSS, selective acknowledgements, and ECN.
options = struct.pack("!BBHBBBB", 2, 4, MSS, 1, 1, 4, 2)
peer.answer(0, SYN | ACK | ECE, options, sequence=1)
select.select([], [client], [], 10)
client.send(bytes(2_000_000))

flight = 0
for _ in range(60):
    peer.listen()
    peer.answer(peer.sent)
    flight = window()
    if flight >= 16:
        break
peer.listen()
said = {"grown": window()}
# The first packet of the flight arrives with a mark, the second is lost.
una, sent = peer.sent - flight + 1, peer.sent
peer.answer(una, ACK | ECE)
said["marked"] = window()
peer.lose(una, sent)
said["lost_in_the_same_window"] = window()
# What was lost arrives; a window later another packet is lost.
peer.listen()
peer.answer(peer.sent)
peer.listen()
peer.answer(peer.sent)
before, said["before"] = peer.sent, window()
peer.listen()
peer.lose(before, peer.sent)
said["lost_in_another_window"] = window()
print(json.dumps(said))
