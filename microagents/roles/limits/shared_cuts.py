"""Cuts of throttles of runs that share a provider: a refusal of one slows them all."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path


class SharedCuts:
    """Announces cuts to other runs, and hears of theirs, by a file to which each adds lines. If the file fails, each throttle learns alone.

    Args:
        path: the file; its folder is there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._run = secrets.token_hex(8)
        self._end = 0
        with suppress(OSError):
            self._end = path.stat().st_size

    def tell(self, throttle: str) -> None:
        """Add a cut of this run."""
        with suppress(OSError), open(self._path, "a", encoding="utf-8", opener=_opened) as stream:
            stream.write(f"{self._run} {throttle}\n")  # at once, so that lines of two runs do not mix

    def heard(self) -> list[str]:
        """Return the throttles that other runs have cut since this was last asked."""
        lines = list[str]()
        with suppress(OSError), open(self._path, encoding="utf-8", errors="replace", opener=_opened) as stream:
            stream.seek(self._end)
            lines = stream.read().splitlines()
            self._end = stream.tell()
        return [line.partition(" ")[2] for line in lines if not line.startswith(self._run)]


def _opened(path: str, flags: int) -> int:
    """Open the file, but follow no link, and wait for no other end of a pipe: its folder may be from elsewhere."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
