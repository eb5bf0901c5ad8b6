#!/usr/bin/env python3
"""Processor time per gigabyte that curl receives over a pair of virtual Ethernet devices, with and without `lull exec`.

    scripts/receive-cost.py [LULL [ROUNDS [MEGABYTES [MEGABITS_PER_SECOND]]]]

Runs alternate, so that what drifts drifts for both. Counted is the time of curl and of the server, in user and kernel
mode. What the kernel does in interrupts belongs to one of them, or to ksoftirqd, which is counted, too. Needs root and
BPF. Runs on a machine that does nothing else.
"""
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time

PORT, SERVER, CLIENT = 5098, "10.98.0.1", "10.98.0.2"


def serve(megabytes, megabits):
    """One download after the other."""
    size = megabytes * 1_000_000
    with tempfile.TemporaryFile(dir="/dev/shm") as file, socket.create_server((SERVER, PORT)) as listener:
        file.truncate(size)
        while True:
            connection, _ = listener.accept()
            with connection:
                # SO_MAX_PACING_RATE
                connection.setsockopt(socket.SOL_SOCKET, 47, megabits * 125_000)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
                connection.recv(4096)
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n"
                connection.sendall(head.encode())
                connection.sendfile(file, 0)


def receive():
    """Prints the processor time of curl alone: that of `lull exec` does not depend on the bytes."""
    begin = time.monotonic()
    command = ["curl", "-sS", "-o", "/dev/null", "-w", "%{size_download}", f"http://{SERVER}:{PORT}/"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = time.monotonic() - begin
    print(json.dumps([int(done.stdout), usage.ru_utime + usage.ru_stime, seconds]))


def ticks(pid):
    """Processor time of a process, in seconds."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def interrupts():
    """Processor time of the threads of the kernel that handle packets, in seconds."""
    total = 0.0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm", encoding="ascii") as name:
                if name.read().startswith("ksoftirqd/"):
                    total += ticks(pid)
        except OSError:
            pass
    return total


def run(*words, **options):
    return subprocess.run(words, check=True, **options)


def measure(server, prefix):
    before = ticks(server) + interrupts()
    command = ["ip", "netns", "exec", f"cost{os.getpid()}b", *prefix, sys.executable, __file__, "receive"]
    size, client, seconds = json.loads(run(*command, stdout=subprocess.PIPE, text=True).stdout)
    rest = ticks(server) + interrupts() - before
    return [(client + rest) * 1e9 / size, client * 1e9 / size, size * 8 / seconds / 1e6]


def main(lull="target/checked/lull", rounds="5", megabytes="2000", megabits="1000"):
    here = f"cost{os.getpid()}"
    server = None
    try:
        for side in "ab":
            run("ip", "netns", "add", here + side)
        run("ip", "-n", here + "a", "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", here + "b")
        for side, address in (("a", SERVER), ("b", CLIENT)):
            run("ip", "-n", here + side, "address", "add", address + "/24", "dev", "wire")
            run("ip", "-n", here + side, "link", "set", "wire", "up")
        words = ["ip", "netns", "exec", here + "a", sys.executable, __file__, "serve", megabytes, megabits]
        server = subprocess.Popen(words)
        time.sleep(1)
        kinds = {"without Lull": [], "under lull exec": [lull, "exec", "--quiet", "--"]}
        results = {kind: [] for kind in kinds}
        for _ in range(int(rounds)):
            for kind, prefix in kinds.items():
                results[kind].append(measure(server.pid, prefix))
                print(kind, *(f"{value:.3f}" for value in results[kind][-1]), flush=True)
        print(f"{'':16} {'s/GB, all':>10} {'curl':>7} {'Mbit/s':>7}   medians of {rounds}")
        medians = {}
        for kind, rows in results.items():
            medians[kind] = [statistics.median(column) for column in zip(*rows)]
            print(f"{kind:16} {medians[kind][0]:10.3f} {medians[kind][1]:7.3f} {medians[kind][2]:7.0f}")
        plain, under = medians.values()
        print(f"{'ratio':16} {under[0] / plain[0]:10.3f} {under[1] / plain[1]:7.3f}")
    finally:
        if server:
            server.kill()
            server.wait()
        for side in "ab":
            subprocess.run(["ip", "netns", "delete", here + side], check=False)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(int(sys.argv[2]), int(sys.argv[3]))
    elif sys.argv[1:2] == ["receive"]:
        receive()
    else:
        main(*sys.argv[1:])
