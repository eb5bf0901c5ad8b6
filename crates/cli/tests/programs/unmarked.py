"""Alone in a network namespace that drops packets with the DSCP of lower effort, as some routers do: runs
what the command line begins with a client that connects twice to each of three addresses, and prints the
classes of its connections.
"""

import socket
import subprocess
import sys

ADDRESSES = "127.0.0.1", "::1", "::ffff:127.0.0.1"

if sys.argv[1] == "client":
    for port, address in zip(sys.argv[2:], ADDRESSES):
        for _ in range(2):
            client = socket.create_connection((address, int(port)), timeout=10)
            # As OpenSSH does.
            client.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x48)
            if client.family == socket.AF_INET6:
                client.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, 0x48)
                print(client.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS), end=" ")
            print(client.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) & 0xFC, end=" ")
    sys.exit()

RULES = """table inet t {
    chain c { type filter hook input priority 0; ip dscp 1 drop; ip6 dscp 1 drop; }
}"""
for command in ["ip", "link", "set", "lo", "up"], ["nft", RULES]:
    subprocess.run(command, check=True)
v4 = socket.create_server(("127.0.0.1", 0))
v6 = socket.create_server(("::1", 0), family=socket.AF_INET6)
ports = [str(server.getsockname()[1]) for server in (v4, v6, v4)]
command = [*sys.argv[1:], sys.executable, __file__, "client", *ports]
sys.exit(subprocess.run(command, check=False).returncode)
