"""The recorder: the only writer of a run's journal. It writes behind: what is told is queued, and nobody waits for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import msgspec
from msgspec import structs

from microagents.actors import Context, Messenger, Role
from microagents.aio import Notifier, TaskScope
from microagents.errors import MicroagentsError, RoleFailed, Stopped
from microagents.journal.books import Books
from microagents.journal.experiment import Experiment
from microagents.journal.messages import (
    Account,
    Admission,
    Checkpoint,
    Drain,
    FollowAdmission,
    HasRecords,
    InputEnding,
    OpenElection,
    Recall,
    RecallCheckpoint,
    RecallCompletedInputs,
    Recalled,
    RecallFailedInputs,
    RecallOpen,
    Record,
    RecordAnswer,
    RecordCalls,
    RecordDecision,
    RecordDraws,
    RecordLimit,
    RecordLost,
    RecordOutage,
    RecordProgress,
    Report,
    RunOutcome,
)
from microagents.journal.store import Store
from microagents.journal.writer import Inline, NullStore, Writer
from microagents.messages import Request

MOST_QUEUED = 1024
MOST_BEHIND_S = 0.05
"""With more records queued, or a commit that takes longer, no election opens: what is not durable is bought again after a crash."""
COMMIT_EVERY_S = 0.02
"""A commit costs as much as thirty records more in it: under load they are this far apart. The first after a pause is made at once."""
DRAIN_S = 60.0
"""How long calls in flight are waited for when a run is ended early."""


class JournalConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run is recorded, and how."""

    path: Path
    experiment: Experiment
    own: Sequence[str] = ()
    """Of many inputs, which options of each differ from the first's, as JSON."""
    accepted: tuple[str, ...] = ()
    full: bool = True
    inline_s: float | None = None
    """Commit on the event loop, in so many seconds of its time: in virtual time there are no threads."""


class RecordEnding(Request[None], frozen=True, kw_only=True):
    """Write down how the run, or this sitting of it, ended; answered once that is durable."""

    outcome: RunOutcome
    reason: str | None
    result: bytes | None


class AwaitFailure(Request[None], frozen=True, kw_only=True):
    """Wait for what must end the run: a journal that cannot be written, or a limit. Never answered otherwise.

    Raises:
        Stopped: one of these.
        TakenOver: another process writes the journal now.
    """


class Recorder(Role):
    """Keeps all that is bought and decided. It lives in the driver's process."""

    def __init__(self, context: Context, messenger: Messenger) -> None:
        super().__init__(context, messenger)
        self._durable = Account()
        """As of the last commit."""
        self._unkept: Books | None = None
        """The books of a run without a journal."""
        self._outage: str | None = None
        self._queue: list[Record] = []
        self._scope = TaskScope()
        self._writer: Writer | Inline
        self._woken: asyncio.Future[None] | None = None
        self._changed = Notifier()
        """Something was recorded."""
        self._admission_changed = Notifier()
        self._following = 0
        """How many follow what may be launched, and so may have draws under way."""
        self._must_end = Notifier()
        self._failure: MicroagentsError | None = None
        """Why nothing can be written any more."""
        self._limit: Stopped | None = None
        """Which limit is reached."""
        self._room: Admission = "elections"
        self._told = self._kept = 0
        """Records that were queued, and those of them that are durable."""
        self._is_draining = self._is_writing = self._has_begun = False
        self._max_cost_usd: float | None = context.options.get("max_cost_usd")

    async def start(self) -> None:
        """Open the journal.

        Raises:
            InvalidUsage: it belongs to another experiment or process, or it cannot be read.
            Stopped: it cannot be written.
        """
        journaling: JournalConfig | None = self.context.options.get("journaling")
        if journaling is None:
            books = self._unkept = Books(len(self.context.tasks), in_order=self.context.strategy.in_order)
            self._writer = Inline(lambda: NullStore(books))
        else:
            opened = partial(
                Store,
                journaling.path,
                journaling.experiment,
                own=journaling.own,
                accepted=journaling.accepted,
                full=journaling.full,
            )
            if journaling.inline_s is not None:
                self._writer = Inline(opened, journaling.inline_s)
            else:
                self._writer = Writer(opened)
                try:
                    await self._writer.opened()
                except asyncio.CancelledError:  # whoever is started in our place must find the journal free
                    await self._writer.close(forget=True)
                    raise
        self._durable = await self._writer.do(lambda keeper: keeper.books.account())
        self._look_at_cost()
        self._scope.start(self._write())

    async def stop(self) -> None:
        """Write what is queued, and give the journal back; one in which nothing has begun is removed."""
        await self._flushed()
        await self._scope.close()
        await self._writer.close(forget=not self._has_begun)

    # -- what is recorded -------------------------------------------------------------------------------------------------------------

    async def draws(self, request: RecordDraws) -> None:
        """Keep what was read out of samples."""
        self._add(*request.records)

    async def calls(self, request: RecordCalls) -> None:
        """Keep count of calls."""
        self._add(request)

    async def lost(self, request: RecordLost) -> None:
        """Wait no more for calls whose process has died."""
        self._add(request)

    async def decision(self, request: RecordDecision) -> None:
        """Keep a decision."""
        self._add(request)

    async def answer(self, request: RecordAnswer) -> None:
        """Keep the answer to a `once`."""
        self._add(request)

    async def progress(self, request: RecordProgress) -> None:
        """Keep how far an input is."""
        self._add(request)

    async def input_ended(self, request: InputEnding) -> None:
        """Keep how an input ended."""
        self._add(request)

    async def outage(self, request: RecordOutage) -> None:
        """Note that a provider does not deliver, or does again."""
        self._outage = request.error
        self._changed.notify()

    async def limit(self, request: RecordLimit) -> None:
        """End the run after what is under way."""
        self._reached(f"{request.limit} is reached")

    def _add(self, *records: Record) -> None:
        if self._unkept is not None:  # nothing to wait for, and nobody to hand it to
            for record in records:
                self._unkept.add(record)
            self._look_at_cost()
            self._changed.notify()
            return
        self._queue += records
        self._told += len(records)
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
        if len(self._queue) >= MOST_QUEUED and self._room == "elections":
            self._set_admission()

    async def _write(self) -> None:
        """All that is queued goes into one commit; what comes meanwhile goes into the next."""
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        while self._failure is None:
            if not self._queue:
                self._woken = loop.create_future()
                await self._woken
            if loop.time() < next_s and not self._is_draining:
                await asyncio.sleep(next_s - loop.time())
            next_s = loop.time() + COMMIT_EVERY_S
            batch, self._queue = self._queue, []
            self._is_writing = True
            late = loop.call_later(MOST_BEHIND_S, partial(self._set_admission, is_late=True))
            try:
                self._durable = await self._writer.do(lambda keeper, batch=batch: keeper.commit(batch))  # type: ignore[misc]
                self._kept += len(batch)
                self._look_at_cost()
            except MicroagentsError as error:
                self._fail(error)
            except Exception as error:  # a defect must end the run, not leave it waiting
                self._fail(RoleFailed("Recorder", "a commit", f"{type(error).__name__}: {error}"))
                raise
            finally:
                late.cancel()
                self._is_writing = False
                self._set_admission()
                self._changed.notify()

    def _fail(self, error: MicroagentsError) -> None:
        self._failure = error
        self._must_end.notify()

    @property
    def _account(self) -> Account:
        return self._durable if self._unkept is None else self._unkept.account()

    def _look_at_cost(self) -> None:
        if self._max_cost_usd is None:
            return
        cost_usd = self._account.cost_usd
        if cost_usd is None:
            self._reached(f"what a call costs is unknown, so --max-cost {self._max_cost_usd:g} cannot be kept")
        elif cost_usd >= self._max_cost_usd:
            self._reached(f"--max-cost {self._max_cost_usd:g} is reached")

    def _reached(self, what: str) -> None:
        if not self._is_draining:
            self._is_draining = True
            self._scope.start(self._stop_at(what))

    async def _stop_at(self, what: str) -> None:
        await self._drained()
        self._limit = Stopped(f"{what}; what was decided until then holds; resume with a higher one")
        self._must_end.notify()

    # -- what may be launched ---------------------------------------------------------------------------------------------------------

    def _set_admission(self, *, is_late: bool = False) -> None:
        is_behind = is_late or len(self._queue) >= MOST_QUEUED or self._failure is not None
        room: Admission = "nothing" if self._is_draining else "draws" if is_behind else "elections"
        if room != self._room:
            self._room = room
            self._admission_changed.notify()

    async def room(self, request: FollowAdmission) -> AsyncIterator[Admission]:  # noqa: ARG002 - the message is the address
        """What may be launched, as it changes."""
        told: Admission = "elections"
        self._following += 1
        try:
            while True:
                if self._room != told:
                    told = self._room
                    yield told
                else:
                    await self._admission_changed.wait()
        finally:
            self._following -= 1
            self._changed.notify()

    async def drain(self, request: Drain) -> None:  # noqa: ARG002 - the message is the address
        """No draw is launched from now on; waits for those in flight, for a while."""
        self._is_draining = True
        await self._drained()

    async def _drained(self) -> None:
        self._set_admission()
        try:
            async with asyncio.timeout(DRAIN_S):
                await asyncio.sleep(0)  # draws that were launched before are told by now
                while self._failure is None and self._outage is None and self._has_something_under_way():
                    await self._changed.wait()
        except TimeoutError:
            return

    def _has_something_under_way(self) -> bool:
        return bool(self._following or self._queue) or self._is_writing or self._account.in_flight > 0

    # -- what is asked ----------------------------------------------------------------------------------------------------------------

    async def report(self, request: Report) -> Account:
        """The account as far as it is durable."""
        if request.final:
            await self._flushed()
            if self._failure is None:
                account = await self._writer.do(lambda keeper: keeper.account_with_digests())
                return structs.replace(account, outage=self._outage)
        return structs.replace(self._account, outage=self._outage)

    async def failure(self, request: AwaitFailure) -> None:  # noqa: ARG002 - the message is the address
        """Wait for what must end the run."""
        while (why := self._failure or self._limit) is None:
            await self._must_end.wait()
        raise why

    async def ended(self, request: RecordEnding) -> None:
        """Write down how the run ended.

        Raises:
            Stopped: it cannot be written, so nothing may be said of it.
        """
        await self._flushed()
        if self._failure is not None:
            raise self._failure
        await self._writer.do(lambda keeper: keeper.end(request.outcome, request.reason, request.result))

    async def recall(self, request: Recall) -> Recalled | None:
        """What was decided at a path."""
        await self._flushed()
        return await self._writer.do(lambda keeper: keeper.recall(request.path))

    async def has_records(self, request: HasRecords) -> bool:
        """Whether there is anything to recall of an input."""
        await self._flushed()
        return await self._writer.do(lambda keeper: keeper.has_records(request.input))

    async def recall_completed_inputs(self, request: RecallCompletedInputs) -> list[int]:  # noqa: ARG002 - the message is the address
        """Which inputs are completed."""
        await self._flushed()
        return await self._writer.do(lambda keeper: [number for number, outcome in enumerate(keeper.books.ended) if outcome == "completed"])

    async def recall_failed_inputs(self, request: RecallFailedInputs) -> list[InputEnding]:  # noqa: ARG002 - the message is the address
        """Which inputs failed or are undecided."""
        await self._flushed()
        return await self._writer.do(lambda keeper: keeper.failed_inputs())

    async def recall_checkpoint(self, request: RecallCheckpoint) -> Checkpoint | None:
        """How far an input is."""
        self._has_begun = True
        await self._flushed()
        return await self._writer.do(lambda keeper: keeper.books.progress[request.input].reached)

    async def recall_open(self, request: RecallOpen) -> list[OpenElection]:  # noqa: ARG002 - the message is the address
        """Elections that are not decided."""
        await self._flushed()
        return await self._writer.do(lambda keeper: keeper.open_elections())

    async def _flushed(self) -> None:
        """Wait until all that was told before is durable, or cannot be any more; what others tell meanwhile is not waited for."""
        told = self._told
        while self._failure is None and self._kept < told:
            await self._changed.wait()
