"""What a dispatcher needs of a transport."""

from __future__ import annotations

from typing import Protocol


class Link(Protocol):
    """Carries encoded batches to other dispatchers, each of them whole; it may delay, reorder, repeat or drop some."""

    def send(self, peer: str, batch: bytes) -> None:
        """Hand over a batch; returns at once."""
        ...
