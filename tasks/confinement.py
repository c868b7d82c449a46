"""Runs a program of a model in a process of its own, without network, files, other processes or signals, and within bounds.

A Linux system-call filter (seccomp) allows what a pure Python program needs and refuses all else, whatever the program does. The filter is
set by the process itself, before it reads the program, and cannot be taken off.
"""

from __future__ import annotations

import os
import platform
import secrets
import signal
import subprocess
import sys
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory

from microagents.errors import InvalidUsage
from microagents.tasks.confined import TOKEN_CHARS

MEMORY_BYTES = 512 << 20
LEAST_MEMORY_BYTES = 64 << 20
"""The interpreter itself needs 30 MB."""
START_S = 10.0
"""Bound on the start of the interpreter, beside the time of the program."""

_CONFINED = Path(__file__).with_name("confined.py")


class Ending(StrEnum):
    """End of a confined program."""

    PASSED = "passed"
    FAILED = "failed"
    """Not passed: it raised, ended itself, or was killed by a bound other than that of its time."""
    TIMED_OUT = "timed_out"


def confines() -> bool:
    """Tell whether this machine can confine programs: Linux on x86-64 or 64-bit ARM."""
    return sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")


def run_confined(program: str, *, timeout_s: float, memory_bytes: int = MEMORY_BYTES) -> Ending:
    """Run a Python program to its last line.

    Args:
        program: the text of the program. What it prints is dropped.
        timeout_s: bound on its time.
        memory_bytes: bound on its memory.

    Raises:
        InvalidUsage: this machine cannot confine it.
    """
    if not confines():
        raise InvalidUsage(
            f"programs of models run only on Linux on x86-64 and 64-bit ARM, and this is {sys.platform} {platform.machine()}"
        )
    # The program passes only if these characters are written behind its last line. They wait in a pipe that is read only there. The answer
    # is a file, and not a pipe: the bound on files then bounds what a program can write here.
    token = secrets.token_hex(TOKEN_CHARS // 2).encode()
    with TemporaryDirectory(prefix="microagents-") as folder:
        given, said = Path(folder, "program"), Path(folder, "said")
        given.write_bytes(program.encode(errors="replace"))
        waiting, entry = os.pipe()
        os.write(entry, token)
        os.close(entry)
        with given.open("rb") as source, said.open("wb") as answer:
            process = subprocess.Popen(  # noqa: S603 - this interpreter, with a file of this package
                [sys.executable, "-I", "-S", "-B", "-X", "utf8", str(_CONFINED), str(memory_bytes), str(timeout_s), str(waiting)],
                pass_fds=[waiting],
                cwd=folder,
                env={},  # nothing of this process's environment: it may hold keys
                stdin=source,
                stdout=answer,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        os.close(waiting)
        try:
            process.wait(START_S + timeout_s)
        except subprocess.TimeoutExpired:
            return Ending.TIMED_OUT
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        has_passed = said.read_bytes() == token
    if process.returncode in (-signal.SIGXCPU, -signal.SIGALRM):
        return Ending.TIMED_OUT
    return Ending.PASSED if has_passed else Ending.FAILED
