"""A command as the job of a shell, on a terminal of its own."""

import os
import pty
import select
import signal
import subprocess
import sys
import time

# The session leader stands for the shell: it puts the job into a process group of its own, gives it
# the terminal, takes that back when the job is stopped, and lets it go on at once. One line is one
# write: `print` may make several of it (PYTHONUNBUFFERED), and two processes share the terminal.
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
    if os.WIFSIGNALED(status):
        say(f"shell: killed by {os.WTERMSIG(status)}.")
        break
    if os.WIFEXITED(status):
        say(f"shell: exited with {os.WEXITSTATUS(status)}.")
        break
    os.tcsetpgrp(0, os.getpgrp())
    say(f"shell: stopped by {os.WSTOPSIG(status)}.")
    os.tcsetpgrp(0, pid)
    os.killpg(pid, signal.SIGCONT)
    say("shell: continued.")
"""


class Job:
    """Ends with the block that it is made in. `seen` is all that came out so far."""

    def __init__(self, *command):
        self.seen = ""
        self.controller, self.terminal = pty.openpty()
        self.shell = subprocess.Popen(
            [sys.executable, "-c", SHELL, *command],
            stdin=self.terminal,
            stdout=self.terminal,
            stderr=self.terminal,
            preexec_fn=self._take_terminal,
        )

    def _take_terminal(self):
        # A shell that runs the tests in the background ignores these, and that is inherited.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
        os.setsid()
        # The first terminal that a session leader opens is its own.
        os.close(os.open(os.ttyname(self.terminal), os.O_RDWR))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.shell.kill()
        self.shell.wait()

    def type(self, keys):
        os.write(self.controller, keys)

    def read_until(self, words):
        deadline = time.monotonic() + 10
        while words not in self.seen:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self.controller], [], [], max(left, 0))
            assert ready, f"no {words!r} in {self.seen!r}"
            self.seen += os.read(self.controller, 1000).decode()

    def pid(self):
        self.read_until("shell: job ")
        self.read_until(".")
        return int(self.seen.split("shell: job ")[1].split(".")[0])
