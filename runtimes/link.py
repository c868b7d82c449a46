"""The interface of a transport between two dispatchers."""

from __future__ import annotations

from typing import Protocol


class Link(Protocol):
    """Carries encoded batches to another dispatcher, each as a whole; it may delay, reorder, repeat or drop batches."""

    resend_s: float
    """Seconds without an acknowledgement after which a batch is sent again."""
    acknowledge_s: float
    """Seconds after which a received batch is acknowledged, unless a batch in the other direction has acknowledged it."""
    linger_s: float
    """Seconds that a one-way message may wait so that it leaves in one batch with others."""

    def send(self, peer: str, batch: bytes) -> None:
        """Hand over a batch; returns at once."""
