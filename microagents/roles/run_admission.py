"""The admission of a run: the work that may begin while the journal keeps up, and the wait for work in flight before the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from microagents.elections.admission import Admission
from microagents.journal.commits import Commits

MAX_DRAIN_S = 60.0
"""Longest wait for calls in flight when a run is ended early."""
IDLE_S = 0.5
"""Time without a record and without a call in flight after which no election is open."""


class RunAdmission:
    """Admits elections while commits keep up, and nothing once the run is ending.

    Args:
        commits: the commits of the run's records.
        on_change: called after each change.
    """

    def __init__(self, commits: Commits, on_change: Callable[[], None]) -> None:
        self._commits = commits
        self._on_change = on_change
        commits.on_backlog = self._update
        self.now: Admission = "elections"
        self._subscribers = 0
        """Number of subscribers. Each may have draws in flight."""
        self.is_ending = False
        """Whether nothing more is admitted."""
        self.outage: str | None = None
        """Why a provider does not deliver; None while all do."""
        self.paused: str | None = None
        """By whom and why the run is paused; None if it is not."""
        self._is_halted = False
        """Whether the calls in flight are cancelled for the pause."""
        self._is_draining = False
        """Whether no more elections are admitted."""

    def _update(self) -> None:
        """Admit the work that the commits allow now."""
        admission: Admission = "draws" if self._commits.is_behind or self._is_draining else "elections"
        if self.is_ending or self.paused is not None:
            if self.is_ending:
                admission = "nothing"
            elif self._is_halted:
                admission = "halted"
            else:
                admission = "paused"
        if admission != self.now:
            self.now = admission
            self._on_change()

    def note_outage(self, error: str | None) -> None:
        """Note the start or the end of a provider's outage."""
        self.outage = error
        self._commits.changed.notify()

    def pause(self, by: str | None, *, is_halted: bool = False) -> None:
        """Pause the run; with None let it go on. A halted one also cancels its calls in flight."""
        self.paused, self._is_halted = by, is_halted
        self._update()

    async def drain_elections(self) -> None:
        """Admit no more elections, and wait until the open ones are decided."""
        self._is_draining = True
        self._update()
        while True:
            # Between two draws of one election nothing is in flight for a moment.
            while not self._commits.is_idle or self._commits.account.in_flight or self._commits.account.batches.open:
                await self._commits.changed.wait()
            committed = self._commits.received
            await asyncio.sleep(IDLE_S)
            if committed == self._commits.received:
                return

    def join(self) -> None:
        """Let the end of the run wait for a subscriber."""
        self._subscribers += 1

    def leave(self) -> None:
        """Wait for a subscriber no more."""
        self._subscribers -= 1
        self._commits.changed.notify()

    def end(self) -> None:
        """Admit nothing from the next change on."""
        self.is_ending = self._commits.is_hasty = True

    async def drain(self) -> None:
        """Admit nothing, and wait until no work is in flight, the journal fails or a provider is out, at most `MAX_DRAIN_S`."""
        self.end()
        self._update()
        try:
            async with asyncio.timeout(MAX_DRAIN_S):
                await asyncio.sleep(0)  # draws that were launched before send their records in this turn of the loop
                # During an outage calls are repeated for up to hours, so the end of the run does not wait for them.
                while self._commits.failure is None and self.outage is None and self._has_work_in_flight():
                    await self._commits.changed.wait()
        except TimeoutError:
            return

    def _has_work_in_flight(self) -> bool:
        # A subscriber leaves only after its last record, so draws whose records are not sent yet are waited for, too.
        return self._subscribers > 0 or not self._commits.is_idle or self._commits.account.in_flight > 0
