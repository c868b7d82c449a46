"""Who writes a journal: one process at a time, and what is known of it."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from msgspec import Struct

RENEW_EVERY_S = 2.0
STALE_AFTER_S = 10.0
"""A lease that was not renewed for so long may be taken over, even where its holder cannot be looked up."""


class Holder(Struct, frozen=True, kw_only=True):
    """A process, so that it can be told from every other one, also from a later one of the same number."""

    host: str
    boot: str
    """The kernel's boot id; empty where the system has none."""
    pid_namespace: str
    pid: int
    started: str
    """When the process was started, in the kernel's ticks since boot."""

    @classmethod
    def here(cls) -> Holder:
        """This process."""
        pid = os.getpid()
        return cls(
            host=socket.gethostname(),
            boot=_read("/proc/sys/kernel/random/boot_id"),
            pid_namespace=_link("/proc/self/ns/pid"),
            pid=pid,
            started=_started(pid),
        )

    @property
    def is_gone(self) -> bool:
        """Whether the process has ended for certain; False where that cannot be known from here."""
        here = Holder.here()
        if not here.boot or (here.host, here.boot, here.pid_namespace) != (self.host, self.boot, self.pid_namespace):
            return False
        return _started(self.pid) != self.started


class Lease(Struct, frozen=True, kw_only=True):
    """The right to write; every holder has an epoch of its own, and whoever finds another one writes nothing any more."""

    epoch: int
    holder: Holder | None
    """None once it was given back."""
    renewed_at: float
    """By the wall clock, since the next holder may be on another machine."""

    @property
    def age_s(self) -> float:
        """How long ago it was renewed; a clock that runs ahead makes it young."""
        return time.time() - self.renewed_at

    @property
    def may_be_taken(self) -> bool:
        """Whether nobody holds it any more."""
        return self.holder is None or self.holder.is_gone or self.age_s > STALE_AFTER_S


def _started(pid: int) -> str:
    """The 22nd field of a process's stat; names in the second may hold blanks and parentheses."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    # A zombie has ended: only its parent has not looked yet.
    return "" if len(fields) < 20 or fields[0] in "ZX" else fields[19]  # noqa: PLR2004 - counted from the third on


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""
