"""Stops a program under `lull exec` on a terminal of its own; the binary is $LULL.

Usage: stopping.py early CONTROL, by control-Z while the background of CONTROL, which is loaded, is
being set up; or stopping.py suspend, as a shell stops itself that has the terminal for a process
group of its own.
"""

import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import time

# The session leader stands for the shell: it puts the job into a process group of its own, gives it
# the terminal, and takes that back when the job is stopped.
SHELL = """
import os, signal, sys
def say(line):
    os.write(1, (line + "\\n").encode())
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execvp(sys.argv[1], sys.argv[1:])
say(f"shell: job {pid}.")
while True:
    _, status = os.waitpid(pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        break
    os.tcsetpgrp(0, os.getpgrp())
    say("shell: stopped")
    os.tcsetpgrp(0, pid)
    os.killpg(pid, signal.SIGCONT)
say(f"shell: ended by {status:#06x}.")
"""

# Its child is of its group, and of nobody else's.
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
os.killpg(os.getpgrp(), signal.SIGSTOP)
os.waitpid(child, os.WCONTINUED)
say("has the terminal" if os.tcgetpgrp(0) == os.getpgrp() else "has no terminal")
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
os._exit(3)
"""

controller, terminal = pty.openpty()
seen = ""


def take_terminal():
    # Whoever runs the tests in the background has these ignored, and that is inherited.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    os.setsid()
    # The first terminal that a session leader opens is its own.
    os.close(os.open(os.ttyname(terminal), os.O_RDWR))


def read_until(words):
    global seen
    deadline = time.monotonic() + 10
    while words not in seen:
        left = deadline - time.monotonic()
        ready, _, _ = select.select([controller], [], [], max(left, 0))
        assert ready, f"no {words!r} in {seen!r}"
        seen += os.read(controller, 1000).decode()


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
    # Nobody sets anything up while what is loaded is locked.
    lock = os.open("/sys/fs/bpf/lull", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
else:
    program = [sys.executable, "-c", SUSPENDED]
shell = subprocess.Popen(
    [sys.executable, "-c", SHELL, os.environ["LULL"], "exec", "--cc", control, "--", *program],
    stdin=terminal,
    stdout=terminal,
    stderr=terminal,
    preexec_fn=take_terminal,
)
try:
    if mode == "early":
        read_until(".")
        job = int(seen.split("shell: job ")[1].split(".")[0])
        wait_for_stop_signal(job, "SigBlk")
        os.write(controller, b"\x1a")
        wait_for_stop_signal(job, "ShdPnd")
        assert "started" not in seen, seen
        fcntl.flock(lock, fcntl.LOCK_UN)
        read_until("shell: stopped")
        read_until("started")
        os.write(controller, b"one\n")
        read_until("got one")
    else:
        read_until("shell: stopped")
        read_until("has ")
        read_until("terminal")
        assert "has the terminal" in seen, seen
    read_until("shell: ended by 0x0300.")
    assert "lull: sent 0 B" in seen, seen
    print("ok")
finally:
    shell.kill()
    shell.wait()
