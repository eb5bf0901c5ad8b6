"""Tells, as JSON, the window of a connection before and after a congestion mark and two losses.

Usage, alone in a network namespace: marks.py CONTROL. The client is an ordinary socket.
"""

import ctypes
import fcntl
import json
import select
import socket
import struct
import sys
import time

from by_hand import ACK, ECE, MSS, PORT, SACK_PERMITTED, THERE, Peer, build_link, set_ipv4

TCP_INFO = 11
CWND_AT = 80
# How long the peer waits for more of a window, in seconds, and so the round-trip time. What the machine
# is late is held against it, by Vegas and by the timeout, and on a busy one that is some 10 ms.
QUIET = 0.2
SIOCETHTOOL, ETHTOOL_STSO, ETHTOOL_SGSO = 0x8946, 0x1F, 0x24


def switch_off(device, feature):
    """Segmentation offload would hide the packets from us."""
    value = ctypes.create_string_buffer(struct.pack("II", feature, 0))
    request = struct.pack("16sP16x", device.encode(), ctypes.addressof(value))
    with socket.socket() as sock:
        fcntl.ioctl(sock, SIOCETHTOOL, request)


def listen():
    """Takes what comes; says how many packets have ever been sent."""
    peer.listen(QUIET)
    return peer.sent // MSS


def acknowledge(packets, flags=ACK):
    peer.answer(packets * MSS, flags)


def lose(packet, until):
    """Selectively acknowledges what was sent behind a packet."""
    peer.acknowledge_selectively(packet * MSS, (packet + 1) * MSS, until * MSS)


def window():
    # The acknowledgement is taken in another context.
    time.sleep(0.02)
    return struct.unpack_from("I", client.getsockopt(socket.IPPROTO_TCP, TCP_INFO, 256), CWND_AT)[0]


for name, value in ("tcp_ecn", 1), ("tcp_early_retrans", 0), ("tcp_no_metrics_save", 1):
    set_ipv4(name, value)
build_link()
switch_off("here", ETHTOOL_STSO)
switch_off("here", ETHTOOL_SGSO)


def connect():
    """A peer and an ordinary client connected to it, with plenty to send."""
    peer, client = Peer(), socket.socket()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, sys.argv[1].encode())
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_000_000)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.setblocking(False)
    client.connect_ex((THERE, PORT))
    peer.listen(QUIET)
    peer.answer_syn(ECE, SACK_PERMITTED)
    select.select([], [client], [], 10)
    client.send(bytes(2_000_000))
    return peer, client


# The peer is only as punctual as the machine, and what it is late looks like a queue, from which the
# window steps back. What is looked at here begins with a window that has grown.
for _ in range(8):
    peer, client = connect()
    for _ in range(40):
        acknowledge(listen())
        flight = window()
        if flight >= 16:
            break
    if flight >= 16:
        break
    client.close()
    peer.raw.close()
sent = listen()
said = {"grown": window()}
# The first packet of the flight arrives with a mark, the second is lost.
una = sent - flight + 1
acknowledge(una, ACK | ECE)
said["marked"] = window()
lose(una, sent)
said["lost_in_the_same_window"] = window()
# What was lost arrives; a window later another packet is lost.
acknowledge(listen())
before = listen()
acknowledge(before)
said["before"] = window()
lose(before, listen())
said["lost_in_another_window"] = window()
print(json.dumps(said))
