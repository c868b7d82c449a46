"""Identity of a process, and whether it lives, as far as this process can know."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

ProcessState = Literal["running", "stopped", "dead", "unknown"]
"""State of a process; ``unknown`` if it runs where this process cannot look, such as on another host or in another container."""


class ProcessIdentity(Struct, frozen=True, kw_only=True):
    """Identity of a process. The start time distinguishes it from a later process with the same pid."""

    host: str
    """Name of the host, for people. Two names may stand for one kernel, and one name for two."""
    table: str
    """Table of processes in which the pid counts; empty if the process could not tell."""
    pid: Annotated[int, Meta(ge=1, lt=1 << 31)]
    started: str
    """Start time of the process in its table."""

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity:
        """Return the identity of a process that this one can look up."""
        table = _table()
        started, _ = _start_and_state(pid) if table else ("", "")
        return cls(host=socket.gethostname(), table=table, pid=pid, started=started)

    @classmethod
    def here(cls) -> ProcessIdentity:
        """Return the identity of this process."""
        return cls.of(os.getpid())

    def state(self) -> ProcessState:
        """Look the process up, if it is one of the same table."""
        if not self.table or self.table != _table():
            return "unknown"
        started, state = _start_and_state(self.pid)
        if started != self.started:
            return "dead"
        return state

    def remedy(self) -> str | None:
        """Say how to continue or to end the process, if it is stopped."""
        if self.state() != "stopped":
            return None
        return f"process {self.pid} is stopped: continue it (kill -CONT {self.pid}) or end it (kill -9 {self.pid})"

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def lock_text(files: Sequence[Path], otherwise: ProcessIdentity | None = None) -> str:
    """Name the process that has locked one of these files for writing, and the remedy.

    Args:
        files: the files; a lock on any of them keeps all of them.
        otherwise: the process to name if the system does not report it.
    """
    holder = next(_locking(files), otherwise)
    if holder is None:
        return "another process keeps it locked"
    remedy = holder.remedy() or "wait until it is done, continue it if it is stopped, or end it"
    return f"{holder} keeps it locked; {remedy}"


def _locking(files: Sequence[Path]) -> Iterator[ProcessIdentity]:
    with suppress(OSError):
        numbers = [each.stat().st_ino for each in files if os.path.exists(each)]
        for line in Path("/proc/locks").read_text(encoding="utf-8").splitlines():
            _, _, _, access, pid, file, *_ = line.split()
            if access == "WRITE" and int(file.rpartition(":")[2]) in numbers and int(pid) not in (-1, 0, os.getpid()):
                yield ProcessIdentity.of(int(pid))


def _start_and_state(pid: int) -> tuple[str, ProcessState]:
    import psutil  # noqa: PLC0415 - which commands that find no process in a journal do not need

    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        status = process.status()
        # The public `create_time` of Linux moves with the wall clock.
        _, started = process._ident  # noqa: SLF001
        if status in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP):
            return repr(started), "stopped"
        # A zombie has ended; it stays in the table until its parent collects the exit status.
        if status not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return repr(started), "running"
    return "", "dead"


def _table() -> str:
    """Name the table of processes of this process: the kernel since its start, and the namespaces of pids and of clocks.

    Start times are told apart only within one namespace of clocks. The name is empty if ``/proc`` shows another table.
    """
    if sys.platform == "darwin":
        return _session_of_macos()
    own = Path("/proc/self")
    if _link(own) != str(os.getpid()):
        return ""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    return f"{boot} {_link(own / 'ns' / 'pid')} {_link(own / 'ns' / 'time')}"


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:  # there is no such file system, or the kernel has no namespaces of clocks
        return ""


@cache
def _session_of_macos() -> str:
    with suppress(OSError, subprocess.SubprocessError):
        asked = subprocess.run(["sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, check=True, text=True)  # noqa: S607
        return asked.stdout.strip()
    return ""
