"""Runs a program of a model in a process of its own, without network, files, other processes or signals, and within bounds.

A Linux system-call filter (seccomp) allows what a pure Python program needs and refuses all else, whatever the program does. The filter is
set by the process itself, before it runs the program, and cannot be taken off. If bubblewrap is installed, it is a second wall.
"""

from __future__ import annotations

import os
import platform
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from enum import StrEnum
from functools import cache
from pathlib import Path
from select import POLLIN, poll
from tempfile import TemporaryDirectory

from microagents.tasks.confined import TOKEN_CHARS
from microagents.tasks.requirements import kill_group

MEMORY_BYTES = 512 << 20
LEAST_MEMORY_BYTES = 64 << 20
"""The interpreter itself needs 30 MB."""
START_S = 10.0
"""Bound on the start of the interpreter, beside the time of the program."""

_CONFINED = Path(__file__).with_name("confined.py")
_BUBBLEWRAP = ("--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--die-with-parent", "--cap-drop", "ALL")
"""Options of bubblewrap: no network, no writable file, no other process in sight."""
_KNOWN = "assert sum([1, 2]) == 3"
"""A program that comes to its end wherever programs can be confined."""


class Ending(StrEnum):
    """End of a confined program."""

    PASSED = "passed"
    FAILED = "failed"
    """Not passed: it raised, ended itself, or was killed by another bound than its time."""
    TIMED_OUT = "timed_out"


def is_supported() -> bool:
    """Return whether there is a filter for this machine: Linux on x86-64 or 64-bit ARM."""
    return sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")


@cache
def wall() -> tuple[str, ...] | None:
    """Return the command in front of a confined program's: bubblewrap's if it works; None if programs cannot be confined.

    It is found out once, with a known program.
    """
    if not is_supported():
        return None
    bubblewrap = shutil.which("bwrap")
    for command in ([(bubblewrap, *_BUBBLEWRAP)] if bubblewrap else []) + [()]:
        if _run(command, _KNOWN, START_S, MEMORY_BYTES) is Ending.PASSED:
            return command
    return None


def run_confined(program: str, *, timeout_s: float, memory_bytes: int = MEMORY_BYTES) -> Ending | None:
    """Run a Python program to its last line; None if this machine cannot confine it, so that it was not run.

    What the program prints is dropped.
    """
    command = wall()
    if command is None:
        return None
    return _run(command, program, timeout_s, memory_bytes)


def _run(command: Sequence[str], program: str, timeout_s: float, memory_bytes: int) -> Ending | None:
    # The program passes only if these characters are written behind its last line. They wait in a pipe that is read only there. The answer
    # is a file, and not a pipe: the bound on files then bounds what a program can write here.
    token = secrets.token_hex(TOKEN_CHARS // 2).encode()
    with TemporaryDirectory(prefix="microagents-") as folder, ExitStack() as pipes:
        given, said = Path(folder, "program"), Path(folder, "said")
        given.write_bytes(program.encode(errors="replace"))
        waiting, entry = os.pipe()
        os.write(entry, token)
        os.close(entry)
        begun, begins = os.pipe()
        pipes.callback(os.close, begun)
        with given.open("rb") as source, said.open("wb") as answer:
            bounds = [str(each) for each in (memory_bytes, timeout_s, waiting, begins)]
            try:
                process = subprocess.Popen(  # noqa: S603 - this interpreter, with a file of this package
                    [*command, sys.executable, "-I", "-S", "-B", "-X", "utf8", str(_CONFINED), *bounds],
                    pass_fds=[waiting, begins],
                    cwd=folder,
                    env={},  # nothing of this process's environment: it may hold keys
                    stdin=source,
                    stdout=answer,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError:
                return None
            finally:
                os.close(waiting)
                os.close(begins)
        try:
            # The time is this process's to measure: a program can block every signal of a timer of its own.
            begins_to_run = poll()
            begins_to_run.register(begun, POLLIN)
            if not (begins_to_run.poll(START_S * 1000) and os.read(begun, 1)):
                return None  # it was not confined, and did not begin
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return Ending.TIMED_OUT
        finally:
            kill_group(process)
        if process.returncode in (-signal.SIGXCPU, 128 + signal.SIGXCPU):
            return Ending.TIMED_OUT
        if said.read_bytes() == token:
            return Ending.PASSED
        return Ending.FAILED
