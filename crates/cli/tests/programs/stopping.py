"""Stops a program under `lull exec` on a terminal of its own; the binary is $LULL.

Usage: stopping.py early CONTROL, by control-Z while the background of CONTROL, which is loaded, is
being set up; or stopping.py suspend, as a shell stops itself that has the terminal for a process
group of its own.
"""

import fcntl
import os
import signal
import sys
import time

from job import Job

# Its child is of its group, and of no other.
SUSPENDED = """
import os, signal
def say(line):
    os.write(1, (line + "\\n").encode())
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
os.setpgid(0, 0)
os.tcsetpgrp(0, os.getpid())
child = os.fork()
if child == 0:
    signal.pause()
    os._exit(0)
# Told to stop with all others it might be told to go on before it has, and no process would be notified.
os.kill(child, signal.SIGSTOP)
os.waitpid(child, os.WUNTRACED)
os.killpg(os.getpgrp(), signal.SIGSTOP)
os.waitpid(child, os.WCONTINUED)
say("has the terminal" if os.tcgetpgrp(0) == os.getpgrp() else "has no terminal")
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
os._exit(3)
"""


def wait_for_stop_signal(pid, field):
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with open(f"/proc/{pid}/status") as status:
            mask = next(line.split()[1] for line in status if line.startswith(field + ":"))
        if int(mask, 16) >> (signal.SIGTSTP - 1) & 1:
            return
        time.sleep(0.005)
    raise AssertionError(f"{field} of process {pid} never has SIGTSTP")


mode, control = sys.argv[1], (sys.argv[2:] or ["reno"])[0]
if mode == "early":
    program = ["sh", "-c", "echo started; read line; echo got $line; exit 3"]
    # No process sets anything up while what is loaded is locked.
    lock = os.open("/sys/fs/bpf/lull", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
else:
    program = [sys.executable, "-c", SUSPENDED]
with Job(os.environ["LULL"], "exec", "--cc", control, "--", *program) as job:
    if mode == "early":
        pid = job.pid()
        wait_for_stop_signal(pid, "SigBlk")
        job.type(b"\x1a")
        wait_for_stop_signal(pid, "ShdPnd")
        assert "started" not in job.seen, job.seen
        fcntl.flock(lock, fcntl.LOCK_UN)
        job.read_until("shell: stopped")
        job.read_until("started")
        job.type(b"one\n")
        job.read_until("got one")
    else:
        job.read_until("shell: stopped")
        job.read_until("has ")
        job.read_until("terminal")
        assert "has the terminal" in job.seen, job.seen
    job.read_until("shell: exited with 3.")
    assert "lull: sent 0 B" in job.seen, job.seen
    print("ok")
