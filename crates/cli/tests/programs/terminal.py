"""Drives `lull exec` on a terminal of its own, as a job-control shell would; the binary is $LULL."""

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time

# One line is one write: `print` may make several of it (PYTHONUNBUFFERED), and two processes share
# the terminal.
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

controller, terminal = pty.openpty()


def take_terminal():
    # Whoever runs the tests in the background has these ignored, and that is inherited.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    os.setsid()
    # The first terminal that a session leader opens is its own.
    os.close(os.open(os.ttyname(terminal), os.O_RDWR))


def read_until(words):
    seen = ""
    deadline = time.monotonic() + 10
    while words not in seen:
        left = deadline - time.monotonic()
        ready, _, _ = select.select([controller], [], [], max(left, 0))
        assert ready, f"no {words!r} in {seen!r}"
        seen += os.read(controller, 1000).decode()
    return seen


# The session leader stands for the shell: it puts the job into a process group of its own and
# gives it the terminal.
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
while True:
    _, status = os.waitpid(pid, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        say(f"shell: stopped by {os.WSTOPSIG(status)}")
        os.kill(-pid, signal.SIGCONT)
        say("shell: continued")
    elif os.WIFSIGNALED(status):
        say(f"shell: killed by {os.WTERMSIG(status)}")
        break
    else:
        say(f"shell: exited with {os.WEXITSTATUS(status)}")
        break
"""
job = [os.environ["LULL"], "exec", "--cc", "reno", "--", "python3", "-c", INNER]
shell = subprocess.Popen(
    [sys.executable, "-c", SHELL, *job],
    stdin=terminal,
    stdout=terminal,
    stderr=terminal,
    preexec_fn=take_terminal,
)
try:
    modes = termios.tcgetattr(terminal)
    modes[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, modes)
    read_until("started")
    os.write(controller, b"one\n")
    read_until("got one 0")

    # Control-C reaches the program once and does not end lull.
    os.write(controller, b"\x03")
    time.sleep(0.3)
    os.write(controller, b"two\n")
    read_until("got two 1")

    # Control-Z stops both, and both go on.
    os.write(controller, b"\x1a")
    seen = read_until("shell: continued")
    assert "shell: stopped by" in seen, seen
    os.write(controller, b"three\n")
    read_until("got three 1")

    # Once the program no longer handles it, it ends the program, and lull the same way.
    os.write(controller, b"default\n")
    read_until("got default 1")
    os.write(controller, b"\x03")
    seen = read_until("shell: killed by 2")
    assert "lull: sent 0 B" in seen, seen
    print("ok")
finally:
    shell.kill()
    shell.wait()
