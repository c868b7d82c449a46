"""What a dispatcher needs of a transport."""

from __future__ import annotations

from typing import Protocol


class Link(Protocol):
    """Carries encoded batches of envelopes to other dispatchers, whole and in order."""

    def send(self, peer: str, batch: bytes) -> None:
        """Hand over a batch; returns at once."""
        ...
