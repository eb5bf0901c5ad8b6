"""Opens one TCP connection of every kind to itself and tells, as JSON, what each came to use.

Run alone in a network namespace: it takes the loopback up and captures what passes there.
With an argument it sets congestion control, TOS and traffic class itself, as OpenSSH does.
"""

import json
import socket
import subprocess
import sys
import time

IPPROTO_MPTCP = 262
INET, INET6 = socket.AF_INET, socket.AF_INET6
TRIES = len(sys.argv) > 1

KINDS = {
    "v4": (INET, "127.0.0.1", "127.0.0.1", 0),
    "v6": (INET6, "::1", "::1", 0),
    "mapped": (INET6, "::", "::ffff:127.0.0.1", 0),
    "mptcp-v4": (INET, "127.0.0.1", "127.0.0.1", IPPROTO_MPTCP),
    "mptcp-v6": (INET6, "::1", "::1", IPPROTO_MPTCP),
    "mptcp-mapped": (INET6, "::", "::ffff:127.0.0.1", IPPROTO_MPTCP),
}


def congestion(sock):
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()


def try_to_leave(sock):
    if not TRIES:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x10)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, b"\x48")
    if sock.family == INET6:
        try:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, 0x10)
        except OSError:  # MPTCP has no such option
            pass


def traffic_classes(capture, port):
    """The TOS bytes or traffic classes of the captured packets of a port."""
    classes = {"syn": set(), "rest": set()}
    while True:
        try:
            packet, where = capture.recvfrom(1 << 17)
        except BlockingIOError:
            return {kind: sorted(seen) for kind, seen in classes.items()}
        if where[2] == socket.PACKET_OUTGOING:
            continue
        if packet[0] >> 4 == 4:
            tos, protocol, segment = packet[1], packet[9], packet[(packet[0] & 15) * 4 :]
        else:
            tos, protocol, segment = (packet[0] & 15) << 4 | packet[1] >> 4, packet[6], packet[40:]
        if protocol != socket.IPPROTO_TCP or port not in (
            int.from_bytes(segment[0:2], "big"),
            int.from_bytes(segment[2:4], "big"),
        ):
            continue
        # The two low bits are ECN's.
        classes["syn" if segment[13] & 2 else "rest"].add(tos & 0xFC)


def connect(family, bind, address, protocol):
    capture = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
    capture.bind(("lo", 0))
    capture.setblocking(False)
    listener = socket.socket(family, socket.SOCK_STREAM, protocol)
    try_to_leave(listener)
    listener.bind((bind, 0))
    listener.listen()
    if "--wait" in sys.argv:
        time.sleep(0.3)
    client = socket.socket(family, socket.SOCK_STREAM, protocol)
    try_to_leave(client)
    client.connect((address, listener.getsockname()[1]))
    try_to_leave(client)
    accepted, _ = listener.accept()
    if "--wait" in sys.argv:
        time.sleep(0.3)
        traffic_classes(capture, listener.getsockname()[1])
    try_to_leave(accepted)
    for _ in range(3):
        accepted.sendall(b"x" * 3000)
        client.sendall(b"x" * 3000)
        accepted.recv(1 << 16)
        client.recv(1 << 16)
    time.sleep(0.05)
    return {
        "congestion": [congestion(sock) for sock in (listener, client, accepted)],
        "classes": traffic_classes(capture, listener.getsockname()[1]),
    }


subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
print(json.dumps({kind: connect(*how) for kind, how in KINDS.items()}))
