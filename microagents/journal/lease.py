"""The lease of a journal, which admits one writing process at a time, and the identity of that process."""

from __future__ import annotations

import os
import socket
import time
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

from microagents.journal.rows import Rows

RENEW_EVERY_S = 2.0
STALE_AFTER_S = 10.0
"""A lease that is older may be taken over, even if this machine cannot look up its holder."""


class Holder(Struct, frozen=True, kw_only=True):
    """Identity of a process. The start time and the boot id distinguish it from a later process with the same pid."""

    host: str
    boot: str
    """Boot id of the kernel; empty on systems without one."""
    pid_namespace: str
    pid: int
    started: str
    """Start time of the process in kernel ticks since boot."""

    @classmethod
    def here(cls) -> Holder:
        """This process."""
        pid, (host, boot, pid_namespace) = os.getpid(), _machine()
        return cls(host=host, boot=boot, pid_namespace=pid_namespace, pid=pid, started=_start_time(pid))

    @property
    def is_gone(self) -> bool:
        """Whether the process has certainly ended; False if this machine cannot know, as for a process on another host."""
        return self._is_of_this_machine and _start_time(self.pid) != self.started

    @property
    def is_alive(self) -> bool:
        """Whether the process certainly has not ended."""
        return self._is_of_this_machine and _start_time(self.pid) == self.started

    @property
    def _is_of_this_machine(self) -> bool:
        here = _machine()
        return bool(here[1]) and here == (self.host, self.boot, self.pid_namespace)


class Lease(Struct, frozen=True, kw_only=True):
    """Right to write a journal."""

    epoch: int
    """Rises with every new holder. A process that reads an epoch other than its own stops writing."""
    holder: Holder | None
    """None once the lease is released."""
    renewed_at: float
    """Seconds since 1970 by the wall clock: the next holder may run on another machine."""

    @property
    def age_s(self) -> float:
        """Seconds since the last renewal. A holder whose clock is ahead of ours makes the lease look younger."""
        return time.time() - self.renewed_at

    @property
    def may_be_taken(self) -> bool:
        """Whether the lease is free: released, stale, or of a process that has ended."""
        return self.holder is None or self.holder.is_gone or self.age_s > STALE_AFTER_S


def read_lease(rows: Rows) -> Lease:
    """Return the lease of the writing process."""
    epoch, holder, renewed_at = rows.only("lease")
    return Lease(
        epoch=epoch, holder=None if holder is None else msgspec.json.decode(holder, type=Holder), renewed_at=renewed_at
    )


@cache
def _machine() -> tuple[str, str, str]:
    """Name of the host, its boot id, and the namespace of the process ids of this process."""
    return socket.gethostname(), _read("/proc/sys/kernel/random/boot_id"), _read_link("/proc/self/ns/pid")


def _start_time(pid: int) -> str:
    """Start time from ``/proc/<pid>/stat`` (its 22nd field); empty for a process that has ended."""
    # The second field, the name of the program, may contain blanks and parentheses: split behind the last parenthesis.
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    # A zombie has ended; it stays in the table until its parent collects the exit status.
    return "" if len(fields) < 20 or fields[0] in "ZX" else fields[19]  # noqa: PLR2004 - counted from the third field on


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _read_link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""
