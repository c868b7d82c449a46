"""The lease of a journal, which admits one writing process at a time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, structs

from microagents.base.errors import InvalidUsage
from microagents.base.processes import ProcessIdentity
from microagents.journal.rows import Rows, RunPart

RENEW_EVERY_S = 2.0
SILENT_S = 10.0
"""Time without a renewal, by the clock of the process that watches, after which a holder that cannot be looked up has lost its lease."""

_Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
LeaseState = Literal["free", "held", "unclear"]


class LeaseRecord(RunPart, frozen=True, kw_only=True):
    """The lease as it is recorded."""

    part = "lease"
    epoch: _Number
    """Rises with every new holder. A process that reads an epoch other than its own stops writing."""
    holder: ProcessIdentity | None
    """None once the lease is released."""
    renewals: _Number
    """Number of renewals by the holder."""


class Lease(LeaseRecord, frozen=True, kw_only=True):
    """Right to write a journal."""

    journal: Path

    @property
    def is_free(self) -> bool:
        """Whether another process may take the lease."""
        return self.state() == "free"

    def state(self) -> LeaseState:
        """Judge the lease now: ``unclear`` of a holder that cannot be looked up, and was neither silent nor seen to renew the lease yet."""
        if self.holder is None or (self.journal, self.epoch, self.holder) in _abandoned:
            return "free"
        state = self.holder.state()
        if state == "unknown":
            return self._watched()
        if state == "dead":
            return "free"
        return "held"

    def _watched(self) -> LeaseState:
        """Judge a holder by the renewals that this process sees: clocks of two machines are never compared."""
        now_s, last = time.monotonic(), _sights.get(self.journal)
        if last is None or last.lease != self:
            # The renewal may be long ago if the last look is.
            is_renewed = last is not None and now_s < last.since_s + SILENT_S
            last = _sights[self.journal] = _Sight(self, now_s, is_renewed)
        if now_s >= last.since_s + SILENT_S:
            return "free"
        if last.is_renewed:
            return "held"
        return "unclear"

    def refuse_if_held(self, run_id: str) -> None:
        """Refuse a journal that another process writes."""
        if not self.is_free:
            assert self.holder is not None
            remedy = self.holder.remedy() or f"watch it with `microagents show {run_id}`, or wait until it has ended"
            raise InvalidUsage(f"run {run_id} is being run by {self.holder}; nothing was changed; {remedy}")


class _Sight(NamedTuple):
    """Last sight of a lease whose holder this process cannot look up."""

    lease: Lease
    since_s: float
    is_renewed: bool


_sights: dict[Path, _Sight] = {}
_abandoned: set[tuple[Path, int, ProcessIdentity]] = set()


def read_lease(rows: Rows, journal: Path) -> Lease:
    """Return the lease of the writing process."""
    found = rows.only(LeaseRecord)
    return Lease(journal=journal, **structs.asdict(found))


def abandon(journal: Path, epoch: int, holder: ProcessIdentity) -> None:
    """Let a lease of this process count as free from now on, since the journal could not be written to release it."""
    _abandoned.add((journal, epoch, holder))
