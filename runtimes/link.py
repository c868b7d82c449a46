"""What a dispatcher needs of a transport."""

from __future__ import annotations

from typing import Protocol


class Link(Protocol):
    """Carries encoded batches to other dispatchers, each of them whole; it may delay, reorder, repeat or drop some."""

    resend_s: float
    """After so long without an acknowledgement a batch is sent again."""
    acknowledge_s: float
    """After so long what arrived is acknowledged, where no batch went the other way that could say so."""
    linger_s: float
    """What is only told may wait so long for what else there is to send."""

    def send(self, peer: str, batch: bytes) -> None:
        """Hand over a batch; returns at once."""
        ...
