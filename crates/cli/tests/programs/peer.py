"""Connects to itself, says "ready", and answers each line of standard input with its state.

`new` opens another connection first.
"""

import socket
import sys

listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
sockets = []


def connect():
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    sockets.extend([client, server])


def state(sock):
    name = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    tos = sock.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) & 0xFC
    return f"{name.rstrip(bytes(1)).decode()}/{tos}"


connect()
print("ready", flush=True)
for line in sys.stdin:
    if line.strip() == "new":
        connect()
    print(" ".join(state(sock) for sock in sockets), flush=True)
