"""The interface of a transport between two dispatchers."""

from __future__ import annotations

from typing import Protocol


class Link(Protocol):
    """Carries encoded batches to another dispatcher while both processes live: each once, and in order. It may delay them."""

    linger_s: float
    """Seconds between two batches of one-way messages alone: those that come sooner leave together."""

    def send(self, batch: bytes) -> None:
        """Hand over a batch; returns at once."""

    async def flush(self) -> None:
        """Wait until all batches have arrived, or the link is closed."""

    def close(self) -> None:
        """Send nothing more."""
