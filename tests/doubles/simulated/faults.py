"""Faults on request, which a share of the requests gets in the place of a reply."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from msgspec import Struct

from microagents.base.errors import InvalidUsage

KINDS = ("reset", "hang", "garbage")
"""Faults other than a status: the connection breaks in mid-body, no answer comes, or one that is not JSON."""
MAX_SHARE = 1.0


class Fault(Struct, frozen=True, kw_only=True):
    """A kind of fault, and the share of requests that it meets."""

    kind: str
    """A status from 400 to 599, or one of `KINDS`."""
    share: float

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Read ``KIND:SHARE``, such as ``429:0.05``."""
        kind, _, share = text.partition(":")
        try:
            found = cls(kind=kind, share=float(share))
        except ValueError:
            found = cls(kind=kind, share=-1.0)
        if not (kind in KINDS or re.fullmatch("[45][0-9][0-9]", kind)) or not 0 <= found.share <= MAX_SHARE:
            raise InvalidUsage(
                f"write a fault as KIND:SHARE, such as 429:0.05, not {text!r}; kinds are 400 to 599, {', '.join(KINDS)}"
            )
        return found


class FaultInjector:
    """Draws the fault of each request in turn, if it meets one. Equal seeds give equal faults to the same requests in the same order."""

    def __init__(self, faults: Sequence[Fault], seed: int) -> None:
        total = sum(fault.share for fault in faults)
        if total > MAX_SHARE + 1e-9:
            raise InvalidUsage(f"the shares of all faults must add up to at most 1, not {total:g}")
        self._faults = faults
        self._random = Random(seed)

    def next(self) -> str | None:
        """Draw the kind of fault that the next request meets; None for none."""
        if not self._faults:
            return None
        drawn = self._random.random()
        for fault in self._faults:
            drawn -= fault.share
            if drawn < 0:
                return fault.kind
        return None
