"""Runs a command for which the kernel refuses one system call, as a container's filter may.

Usage: denied.py WHAT COMMAND..., where WHAT is a key of REFUSED.
"""

import ctypes
import errno
import os
import platform
import struct
import sys

BPF = {"x86_64": 321, "aarch64": 280}[platform.machine()]
BPF_ITER_CREATE = 33
# fork() of the C library calls it with these flags: CLONE_CHILD_SETTID, CLONE_CHILD_CLEARTID, SIGCHLD.
CLONE = {"x86_64": 56, "aarch64": 220}[platform.machine()]
FORK = 0x01200011
PIDFD_OPEN, PIDFD_GETFD = 434, 438
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
ALLOW, ERROR = 0x7FFF0000, 0x00050000
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06

# A system call, a value of its first argument, whether that is refused, or all others are, and what
# the kernel says. The command keeps our number.
REFUSED = {
    "to count": (BPF, BPF_ITER_CREATE, True, errno.EPERM),
    "to watch others": (PIDFD_OPEN, os.getpid(), False, errno.EPERM),
    "to fetch": (PIDFD_GETFD, 0xFFFFFFFF, False, errno.EPERM),
    "to fork": (CLONE, FORK, True, errno.EAGAIN),
}

number, value, is_refused, said = REFUSED[sys.argv[1]]
instructions = [
    # struct seccomp_data: the number first, the arguments from byte 16.
    (LOAD, 0, 0, 0),
    (EQUAL, 0, 3, number),
    (LOAD, 0, 0, 16),
    (EQUAL, *((0, 1) if is_refused else (1, 0)), value),
    (RETURN, 0, 0, ERROR | said),
    (RETURN, 0, 0, ALLOW),
]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in instructions))
program = struct.pack("HP", len(instructions), ctypes.addressof(code))
if ctypes.CDLL(None).prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0):
    sys.exit("the kernel takes no filter")
os.execvp(sys.argv[2], sys.argv[2:])
