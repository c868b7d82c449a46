"""The confined side of `microagents.tasks.confinement`: sets the bounds and the filter, then runs the program from stdin.

It is started as a file by an isolated interpreter, so it imports nothing but the standard library. Its arguments are the greatest size of
its memory in bytes, the seconds of processor time it may take, the pipe with the token, and the pipe that signals the start of the program.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import struct
import sys
from typing import NamedTuple

TOKEN_CHARS = 32
DEATH_SIGNAL, SET_FILTER, NO_NEW_PRIVILEGES = 1, 22, 38
LOAD, JUMP_IF_EQUAL, JUMP_IF_ANY, RETURN = 0x20, 0x15, 0x45, 0x06
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16
"""Offsets in `seccomp_data`; each argument has 8 bytes."""
ALLOW, KILL, NOT_PERMITTED, NOT_THERE = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
DUPLICATE, GET_FLAGS_OF_DESCRIPTOR, SET_FLAGS_OF_DESCRIPTOR, GET_FLAGS, DUPLICATE_CLOSED_ON_EXEC = 0, 1, 2, 3, 1030
COMMANDS = (DUPLICATE, GET_FLAGS_OF_DESCRIPTOR, SET_FLAGS_OF_DESCRIPTOR, GET_FLAGS, DUPLICATE_CLOSED_ON_EXEC)
"""Of fcntl. Its other commands take locks and leases on files, and name processes that get signals."""
NEW_THREAD = (0x3D0F00, 0x7D0F00)
"""The flags with which glibc and musl make a thread. With others clone makes processes and namespaces."""
# Allowed with any arguments. Of files: read, write, close, fstat, stat, lstat, newfstatat, statx, access,
# lseek, pread64, readv, writev, getdents64, getcwd, readlink, readlinkat, dup, poll. Of memory: mmap, mprotect, munmap, mremap, madvise,
# brk. Of time, threads and signals to oneself: the clocks, nanosleep, futex, rseq, robust lists, sigaltstack, rt_sigaction,
# rt_sigprocmask, rt_sigreturn. The ids of the process, getrandom, exit.
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class SyscallNumbers(NamedTuple):
    """Numbers of system calls on one kind of machine."""

    architecture: int
    openat: int
    fcntl: int
    clone: int
    clone3: int
    allowed: tuple[int, ...]


X86_64 = SyscallNumbers(
    architecture=0xC000003E,
    openat=257,
    fcntl=72,
    clone=56,
    clone3=435,
    allowed=(
        *(0, 1, 3, 5, 8, 9, 10, 11, 12, 13, 14, 15, 17, 19, 20, 24, 25, 28, 32, 35, 39, 60, 63, 79, 89, 96, 97),
        *(102, 104, 107, 108, 131, 158, 186, 202, 217, 218, 228, 229, 230, 231, 262, 267, 273, 318, 332, 334),
        *(4, 6, 21, 7),
    ),
)
AARCH64 = SyscallNumbers(
    architecture=0xC00000B7,
    openat=56,
    fcntl=25,
    clone=220,
    clone3=435,
    allowed=(
        *(63, 64, 57, 80, 62, 222, 226, 215, 214, 134, 135, 139, 67, 65, 66, 124, 216, 233, 23, 101, 172, 93),
        *(160, 17, 78, 169, 163, 174, 176, 175, 177, 132, 178, 98, 61, 96, 113, 114, 115, 94, 79, 99, 278, 291),
        *(293, 48, 73),
    ),
)


def _filter(calls: SyscallNumbers) -> bytes:
    code = [
        (LOAD, 0, 0, ARCHITECTURE),
        (JUMP_IF_EQUAL, 1, 0, calls.architecture),
        (RETURN, 0, 0, KILL),  # the other calling conventions of the machine have other numbers
        (LOAD, 0, 0, NUMBER),
    ]
    for number in calls.allowed:
        code += [(JUMP_IF_EQUAL, 0, 1, number), (RETURN, 0, 0, ALLOW)]
    # Files are opened for reading only.
    code += [(JUMP_IF_EQUAL, 0, 4, calls.openat), (LOAD, 0, 0, ARGUMENTS + 2 * 8), (JUMP_IF_ANY, 1, 0, WRITING)]
    code += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, NOT_PERMITTED)]
    # The flags of clone3 are in memory, which a filter cannot read; without it clone is used.
    for call, argument, values in ((calls.fcntl, 1, COMMANDS), (calls.clone, 0, NEW_THREAD)):
        code += [(JUMP_IF_EQUAL, 0, 2 * len(values) + 2, call), (LOAD, 0, 0, ARGUMENTS + argument * 8)]
        for value in values:
            code += [(JUMP_IF_EQUAL, 0, 1, value), (RETURN, 0, 0, ALLOW)]
        code += [(RETURN, 0, 0, NOT_PERMITTED)]
    code += [(JUMP_IF_EQUAL, 0, 1, calls.clone3), (RETURN, 0, 0, NOT_THERE)]
    code += [(RETURN, 0, 0, NOT_PERMITTED)]
    return b"".join(struct.pack("HBBI", *each) for each in code)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


def _confine(memory_bytes: int, time_s: float) -> None:
    """Bound this process, for good. A hard limit of the system that is lower than a bound stays as it is."""
    for bound, value in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, int(time_s) + 1),
        (resource.RLIMIT_FSIZE, TOKEN_CHARS),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_STACK, min(8 << 20, memory_bytes)),
    ):
        _, hard = resource.getrlimit(bound)
        least = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(bound, (least, least))
    library = ctypes.CDLL(None, use_errno=True)
    code = _filter({"x86_64": X86_64, "aarch64": AARCH64}[platform.machine()])
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.addressof(buffer))
    library.prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if library.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) or library.prctl(SET_FILTER, 2, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "no filter of system calls")


def main() -> None:
    """Run the program from stdin; write the token once it has come to its end."""
    text = sys.stdin.buffer.read().decode()
    memory_bytes, time_s, waiting, begun = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    del sys.argv[1:]
    answer = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    _confine(memory_bytes, time_s)
    os.write(begun, b"1")
    os.close(begun)
    exec(compile(text, "program", "exec", dont_inherit=True), {"__name__": "__main__"})  # noqa: S102 - what this process is for
    os.write(answer, os.read(waiting, TOKEN_CHARS))
    os._exit(0)


if __name__ == "__main__":
    main()
