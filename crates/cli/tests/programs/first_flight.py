"""Prints how many bytes a client sends behind the handshake before anything of it is acknowledged,
and how many came with the SYN (RFC 7413).

Usage, alone in a network namespace: first_flight.py [--fast-open] COMMAND..., which starts the
client under test; " python3 -c CLIENT" is appended. The other end takes part in the handshake and
says nothing from then on.
"""

import select
import subprocess
import sys
import time

from by_hand import PORT, THERE, Peer, build_link, set_ipv4

is_fast = sys.argv[1] == "--fast-open"
command = sys.argv[1 + is_fast:]
CONNECT = f"s = socket.create_connection(('{THERE}', {PORT}))"
if is_fast:
    CONNECT = f"""s = socket.socket()
s.sendto(bytes(1_000), socket.MSG_FASTOPEN, ('{THERE}', {PORT}))"""
    # As a client, and without a cookie.
    set_ipv4("tcp_fastopen", 1 | 4)
CLIENT = f"""
import socket, struct, sys
{CONNECT}
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
s.setblocking(False)
s.send(bytes(100_000))
print("sent", flush=True)
sys.stdin.read()
"""

# No probe for a lost tail (RFC 8985, 7) adds to the flight.
set_ipv4("tcp_early_retrans", 0)
build_link()
peer = Peer()
client = subprocess.Popen(
    [*command, "python3", "-c", CLIENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
)
deadline = time.monotonic() + 20
has_sent = False
# The flight is over once the client has handed all to the kernel and nothing more comes.
while not has_sent and time.monotonic() < deadline:
    has_sent = bool(select.select([client.stdout], [], [], 0)[0])
    peer.listen(0.05, on_syn=peer.answer_syn)
client.stdin.close()
client.wait()
print(peer.sent - peer.sent_in_syn, peer.sent_in_syn)
