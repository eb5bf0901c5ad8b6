"""Drives `lull exec` on a terminal of its own, as a job-control shell would; the binary is $LULL."""

import os
import termios
import time

from job import Job

INNER = """
import os, signal, sys
def say(line):
    os.write(1, (line + "\\n").encode())
assert os.isatty(0) and os.isatty(1)
interrupts = 0
def count(*_):
    global interrupts
    interrupts += 1
signal.signal(signal.SIGINT, count)
say("started")
for line in sys.stdin:
    if line.strip() == "default":
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    say(f"got {line.strip()} {interrupts}")
"""

with Job(os.environ["LULL"], "exec", "--cc", "reno", "--", "python3", "-c", INNER) as job:
    modes = termios.tcgetattr(job.terminal)
    modes[3] &= ~termios.ECHO
    termios.tcsetattr(job.terminal, termios.TCSANOW, modes)
    job.read_until("started")
    job.type(b"one\n")
    job.read_until("got one 0")

    # Control-C reaches the program once and does not end lull.
    job.type(b"\x03")
    time.sleep(0.3)
    job.type(b"two\n")
    job.read_until("got two 1")

    # Control-Z stops both, and both go on.
    job.type(b"\x1a")
    job.read_until("shell: stopped by")
    job.read_until("shell: continued")
    job.type(b"three\n")
    job.read_until("got three 1")

    # Once the program no longer handles it, it ends the program, and lull the same way.
    job.type(b"default\n")
    job.read_until("got default 1")
    job.type(b"\x03")
    job.read_until("shell: killed by 2.")
    assert "lull: sent 0 B" in job.seen, job.seen
    print("ok")
