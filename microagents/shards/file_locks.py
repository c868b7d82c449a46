"""Locks on shared storage that end with the process that holds them, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOCK = ".lock"
"""Ending of the file that an attempt at a run holds, beside its journal."""


@contextmanager
def locked(path: Path, *, waits: bool = True) -> Iterator[bool]:
    """Hold the lock of a file that is made for it and removed after it; yields whether it is held.

    Args:
        path: the file.
        waits: whether to wait for another process or thread that holds it.

    Raises:
        OSError: the file cannot be made, or its file system has no locks.
    """
    how = fcntl.LOCK_EX
    if not waits:
        how |= fcntl.LOCK_NB
    try:
        file = _taken(path, how)
    except BlockingIOError:
        yield False
        return
    try:
        yield True
    finally:
        path.unlink(missing_ok=True)
        os.close(file)


def _taken(path: Path, how: int) -> int:
    """Lock the file that has the path now: its last holder may have removed the one that was opened."""
    while True:
        file, is_locked = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), False
        try:
            fcntl.flock(file, how)
            with suppress(FileNotFoundError):
                is_locked = os.path.samestat(os.fstat(file), path.stat())
        finally:
            if not is_locked:
                os.close(file)
        if is_locked:
            return file
