"""On a host of `lull lab emulate`: a foreground that keeps the queue full, and beside it whatever the
command line begins, which sends for some seconds."""
import os
import socket
import subprocess
import sys
import threading
import time

PORT = 5001
SINK = f"""
import socket, threading
listener = socket.create_server(('', {PORT}))
print('ready', flush=True)
def drain(connection):
    while connection.recv(1 << 16):
        pass
while True:
    threading.Thread(target=drain, args=(listener.accept()[0],), daemon=True).start()
"""
# With "open" a child holds the connection, and goes on when its parent has ended.
BACKGROUND = f"""
import os, socket, sys, time
connection = socket.create_connection((os.environ['LULL_RIGHT_1'], {PORT}))
connection.settimeout(0.1)
end = time.monotonic() + 5
while time.monotonic() < end:
    try:
        connection.send(b'x' * 10_000)
    except TimeoutError:
        pass
if sys.argv[1] == 'open' and os.fork() == 0:
    time.sleep(60)
# What is left goes with it.
connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))
"""


def send(connection, over):
    while not over.is_set():
        connection.send(b"x" * 10_000)


mode, *begins = sys.argv[1:]
sink = subprocess.Popen(
    ["ip", "netns", "exec", "right1", sys.executable, "-c", SINK], stdout=subprocess.PIPE
)
assert sink.stdout.readline() == b"ready\n"
connection = socket.create_connection((os.environ["LULL_RIGHT_1"], PORT))
over = threading.Event()
foreground = threading.Thread(target=send, args=(connection, over))
foreground.start()
time.sleep(1)
ended = subprocess.run([*begins, sys.executable, "-c", BACKGROUND, mode], check=False)
over.set()
foreground.join()
sys.exit(ended.returncode)
