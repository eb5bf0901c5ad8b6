"""A receiver played by hand on a raw socket, alone in a network namespace: it decides what is
acknowledged, marked and lost."""

import select
import socket
import struct
import subprocess
import time

HERE, THERE, PORT = "10.9.0.1", "10.9.0.2", 873
MSS = 1460
SYN, ACK, ECE = 0x02, 0x10, 0x40
# Options of an answer to a SYN.
MSS_OPTION = struct.pack("!BBH", 2, 4, MSS)
SACK_PERMITTED = struct.pack("!BBBB", 1, 1, 4, 2)


def build_link():
    """The device `here` with the sender's address, and `there`, from which a Peer listens."""
    for command in (
        "ip link add here type veth peer name there",
        "ip link set here up",
        "ip link set there up",
        f"ip address add {HERE}/24 dev here",
        f"ip neighbor add {THERE} lladdr 02:00:00:00:00:02 dev here",
    ):
        subprocess.run(command.split(), check=True)


def set_ipv4(name, value):
    with open(f"/proc/sys/net/ipv4/{name}", "w") as setting:
        setting.write(str(value))


def checksum(data):
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Peer:
    """The receiver. Sequence numbers are given in bytes, from the first one of the sender."""

    def __init__(self):
        self.raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        self.raw.bind(("there", 0))
        self.syn = None
        self.first = None
        self.sent = 0
        self.sent_in_syn = 0

    def listen(self, quiet, on_syn=lambda: None):
        """Takes what comes until nothing has for so many seconds; bounded."""
        deadline = time.monotonic() + 10
        while select.select([self.raw], [], [], quiet)[0]:
            assert time.monotonic() < deadline, "the sender does not stop"
            frame, where = self.raw.recvfrom(1 << 17)
            if where[2] == socket.PACKET_OUTGOING or frame[23] != socket.IPPROTO_TCP:
                continue
            sequence = struct.unpack("!I", frame[38:42])[0]
            payload = struct.unpack("!H", frame[16:18])[0] - 20 - (frame[46] >> 4) * 4
            if frame[47] & SYN:
                self.syn, self.first, self.sent_in_syn = frame, sequence + 1, payload
                on_syn()
                continue
            self.sent = max(self.sent, (sequence + payload - self.first) & 0xFFFFFFFF)

    def number(self, byte):
        return (self.first + byte) & 0xFFFFFFFF

    def answer(self, acknowledged, flags=ACK, options=b"", sequence=2):
        """Acknowledges what is before a byte."""
        assert len(options) % 4 == 0
        length = (20 + len(options)) // 4
        segment = self.syn[36:38] + self.syn[34:36]
        segment += struct.pack(
            "!IIBBHHH", sequence, self.number(acknowledged), length << 4, flags, 0xFFFF, 0, 0
        )
        segment += options
        addresses = self.syn[30:34] + self.syn[26:30]
        pseudo = addresses + struct.pack("!HH", socket.IPPROTO_TCP, len(segment))
        check = struct.pack("!H", checksum(pseudo + segment))
        segment = segment[:16] + check + segment[18:]
        header = struct.pack(
            "!BBHHHBBH", 0x45, 0, 20 + len(segment), 0, 0, 64, socket.IPPROTO_TCP, 0
        )
        header += addresses
        header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
        self.raw.send(self.syn[6:12] + self.syn[0:6] + b"\x08\x00" + header + segment)

    def answer_syn(self, flags=0, options=b""):
        self.answer(self.sent_in_syn, SYN | ACK | flags, MSS_OPTION + options, sequence=1)

    def acknowledge_selectively(self, acknowledged, start, end):
        """Acknowledges what is before a byte, and a block that lies behind."""
        edges = self.number(start), self.number(end)
        self.answer(acknowledged, options=struct.pack("!BBBBII", 1, 1, 5, 10, *edges))
