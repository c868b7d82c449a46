"""What a dispatcher needs of a transport."""

from __future__ import annotations

from typing import Protocol


class Link(Protocol):
    """Carries encoded batches to other dispatchers, each of them whole; it may delay, reorder, repeat or drop some."""

    resend_s: float
    """After so long without an acknowledgement a batch is sent again."""

    def send(self, peer: str, batch: bytes) -> None:
        """Hand over a batch; returns at once."""
        ...
