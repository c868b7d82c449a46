"""Durability: records wait in a queue, and one commit after the other writes all that wait, so no sender waits for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from microagents.base.aio import Notifier
from microagents.base.errors import MicroagentsError, RoleFailed
from microagents.journal.messages import Account, Written
from microagents.journal.store import Store
from microagents.journal.writer import Writer

T = TypeVar("T")

MAX_QUEUED = 1024
"""Number of queued records at which no more elections open. A crash loses queued records, and their calls are paid twice."""
MAX_COMMIT_S = 0.05
"""Duration of a commit after which no more elections open, for the same reason."""
COMMIT_EVERY_S = 0.02
"""Interval of commits under load: one commit costs as much as thirty more records in it. The first after a pause is made at once."""


class Commits:
    """Queues records and commits them in the order of their arrival.

    Args:
        writer: writes them.
        first: returns the first records of each commit.
        on_durable: called after each commit with its time.
    """

    def __init__(
        self,
        writer: Writer,
        first: Callable[[], Sequence[Written]],
        on_durable: Callable[[str | None], None],
    ) -> None:
        self._writer, self._first = writer, first
        self.on_backlog: Callable[[], None] = lambda: None
        """Called when commits may have fallen behind, and after each."""
        self._on_durable = on_durable
        self.account = Account()
        """Account as of the last commit, or of the opening."""
        self._queue: list[Written] = []
        self.received = 0
        """Number of records received."""
        self._committed = 0
        self._is_late = self._is_writing = self._is_due = self._has_ended = False
        """Whether a commit takes too long; whether one is under way; whether one is to follow; whether none follows."""
        self.is_hasty = False
        """Whether commits are not spaced, since the end of the run waits for them."""
        self._woken: asyncio.Future[None] | None = None
        """Done once a commit is due, while `write` waits for that."""
        self.changed = Notifier()
        """Notifies of commits."""
        self.failure: MicroagentsError | None = None
        """Why the journal cannot be written any more."""

    @property
    def is_behind(self) -> bool:
        """Whether too much waits to be committed."""
        return self._is_late or len(self._queue) >= MAX_QUEUED or self.failure is not None

    @property
    def is_idle(self) -> bool:
        """Whether every record is durable."""
        return not (self._queue or self._is_writing)

    def add(self, records: Sequence[Written]) -> None:
        """Take records."""
        self._queue += records
        self.received += len(records)
        self.commit_soon()
        if len(self._queue) >= MAX_QUEUED:
            self.on_backlog()

    def commit_soon(self) -> None:
        """Let a commit follow, though no record may wait."""
        self._is_due = True
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def write(self) -> None:
        """Commit all queued records, again and again. Records that arrive during a commit go into the next one."""
        try:
            await self._write()
        finally:
            self._has_ended = True
            self.changed.notify()

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        while self.failure is None:
            if not self._is_due:
                self._woken = loop.create_future()
                await self._woken
            if loop.time() < next_s and not self.is_hasty:
                await asyncio.sleep(next_s - loop.time())
            next_s = loop.time() + COMMIT_EVERY_S
            batch, self._queue = self._queue, []
            self._is_writing, self._is_due = True, False
            late = loop.call_later(MAX_COMMIT_S, self._note_late)
            try:
                self.account, committed_at = await self._writer.do(partial(_commit, [*self._first(), *batch]))
                self._committed += len(batch)
                self._on_durable(committed_at)
            except MicroagentsError as error:
                self.failure = error
            except Exception as error:  # a defect here must stop the run, not leave it waiting for ever
                self.failure = RoleFailed("Keeper", "a commit", f"{type(error).__name__}: {error}")
                raise
            finally:
                late.cancel()
                self._is_writing = self._is_late = False
                self.on_backlog()
                self.changed.notify()

    def _note_late(self) -> None:
        self._is_late = True
        self.on_backlog()

    async def flush(self) -> None:
        """Wait until every record received so far is durable, or the journal cannot be written any more."""
        received = self.received
        while self.failure is None and self._committed < received and not self._has_ended:
            await self.changed.wait()

    async def settle(self) -> None:
        """Wait until every record received so far is durable; raises `failure` if some of them may be missing."""
        await self.flush()
        if self.failure is not None:
            raise self.failure

    async def ask(self, query: Callable[[Store], T]) -> T:
        """Ask the store, which has every record received so far; raises as `settle`."""
        await self.settle()
        return await self._writer.do(query)


def _commit(batch: Sequence[Written], store: Store) -> tuple[Account, str | None]:
    """Commit records; returns the account, and the time of the commit."""
    return store.commit(batch), store.records.committed_at
