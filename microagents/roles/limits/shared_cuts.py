"""Cuts of throttles, told between runs that share a provider: a refusal of one slows them all."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct


class Cut(Struct, frozen=True, kw_only=True):
    """One cut of a throttle."""

    run: str
    """Random name of the sitting that was refused."""
    throttle: str
    wait_s: float | None = None
    """Wait that the provider asked for."""


class SharedCuts:
    """Tells other runs of cuts, and hears of theirs, by a file to which each adds lines. If the file fails, each throttle learns alone.

    Args:
        path: the file; its folder is there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._run = secrets.token_hex(8)
        self._read = self._bytes()

    def tell(self, throttle: str, wait_s: float | None) -> None:
        """Add a cut of this run."""
        line = msgspec.json.encode(Cut(run=self._run, throttle=throttle, wait_s=wait_s)) + b"\n"
        with suppress(OSError), self._path.open("ab", buffering=0) as stream:  # one write, so that lines do not mix
            stream.write(line)

    def heard(self) -> Iterator[Cut]:
        """Yield the cuts of other runs since this was last asked."""
        if self._bytes() <= self._read:
            return
        with suppress(OSError), self._path.open("rb") as stream:
            stream.seek(self._read)
            for line in stream:
                self._read += len(line)
                with suppress(msgspec.MsgspecError):
                    cut = msgspec.json.decode(line, type=Cut)
                    if cut.run != self._run:
                        yield cut

    def _bytes(self) -> int:
        with suppress(OSError):
            return self._path.stat().st_size
        return 0
