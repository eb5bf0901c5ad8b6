# Evaluates one expression a line, and says what it came to. `m` is the folder of the mount.
import errno
import mmap
import os
import signal
import sys

m = sys.argv[1] + "/"


def interrupt(*_):
    raise InterruptedError


signal.signal(signal.SIGALRM, interrupt)


def body(seed, size):
    return bytes((at // 251 ^ at ^ seed) & 255 for at in range(size))


def read(name):
    with open(m + name, "rb") as file:
        return file.read()


def open_(name):
    return os.open(m + name, os.O_RDONLY)


def fork(call):
    child = os.fork()
    if child == 0:
        try:
            call()
        finally:
            os._exit(0)
    return child


for line in sys.stdin:
    try:
        said = repr(eval(line))
    except InterruptedError:
        said = "interrupted"
    except OSError as error:
        said = errno.errorcode[error.errno]
    print(said, flush=True)
