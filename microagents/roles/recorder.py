"""The recorder: the only writer of a run's journal. It writes behind: records are queued, and no sender waits for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import msgspec
from msgspec import structs

from microagents.actors import Context, Messenger, Role
from microagents.aio import Notifier, TaskScope
from microagents.elections.admission import Admission, Drain, FollowAdmission
from microagents.errors import MicroagentsError, RoleFailed, Stopped
from microagents.journal.books import Books
from microagents.journal.experiment import Experiment
from microagents.journal.messages import (
    Account,
    Checkpoint,
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

MAX_QUEUED = 1024
MAX_BEHIND_S = 0.05
"""With more records queued, or a longer commit, no election opens: a crash loses what is not durable, and it is bought again."""
COMMIT_EVERY_S = 0.02
"""Interval of commits under load: one commit costs as much as thirty more records in it. The first after a pause is made at once."""
DRAIN_S = 60.0
"""Longest wait for calls in flight when a run is ended early."""


class JournalConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how a run is recorded."""

    path: Path
    experiment: Experiment
    own: Sequence[str] = ()
    """Options of each input that differ from the first one's, as JSON; empty for a single input."""
    accepted: tuple[str, ...] = ()
    full: bool = True
    inline_s: float | None = None
    """Seconds that a commit on the event loop takes, in virtual time; None to commit in a thread."""


class RecordEnding(Request[None], frozen=True, kw_only=True):
    """Record how the run, or this sitting of it, ended; answered once that is durable."""

    outcome: RunOutcome
    reason: str | None
    result: bytes | None


class AwaitFailure(Request[None], frozen=True, kw_only=True):
    """Block until the run must stop, then raise the reason.

    Raises:
        Stopped: the journal cannot be written, or a limit is reached.
        TakenOver: another process writes the journal now.
    """


class Recorder(Role):
    """Records every call, ballot and decision of a run. It lives in the driver's process."""

    def __init__(self, context: Context, messenger: Messenger) -> None:
        super().__init__(context, messenger)
        self._durable = Account()
        """The account as of the last commit."""
        self._null: NullStore | None = None
        """The store of a run without a journal: it adds records up at once, so none is queued."""
        self._outage: str | None = None
        self._queue: list[Record] = []
        self._scope = TaskScope()
        self._writer: Writer | Inline
        self._woken: asyncio.Future[None] | None = None
        self._changed = Notifier()
        """Notifies of new records and commits."""
        self._admission_changed = Notifier()
        self._following = 0
        """Number of followers of the admission: each may have draws in flight."""
        self._must_end = Notifier()
        self._failure: MicroagentsError | None = None
        """Why the journal cannot be written any more."""
        self._limit: Stopped | None = None
        """The limit that is reached."""
        self._admission: Admission = "elections"
        self._received = self._committed = 0
        """Number of records received, and of those that are durable."""
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
            null = self._null = NullStore(Books(len(self.context.tasks), in_order=self.context.strategy.in_order))
            self._writer = Inline(lambda: null)
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
                except asyncio.CancelledError:  # a recorder that is started in this one's place must find the journal free
                    await self._writer.close(forget=True)
                    raise
        self._durable = await self._writer.do(lambda store: store.books.account())
        self._check_cost()
        self._scope.start(self._write())

    async def stop(self) -> None:
        """Write the queued records and release the journal; one without a begun input is removed."""
        await self._flushed()
        await self._scope.close()
        await self._writer.close(forget=not self._has_begun)

    # -- records --------------------------------------------------------------------------------------------------------------------

    async def draws(self, request: RecordDraws) -> None:
        """Record ballots, flags and replies."""
        self._add(*request.records)

    async def calls(self, request: RecordCalls) -> None:
        """Record calls."""
        self._add(request)

    async def lost(self, request: RecordLost) -> None:
        """Count the calls in flight of a dead process as lost."""
        self._add(request)

    async def decision(self, request: RecordDecision) -> None:
        """Record a decision."""
        self._add(request)

    async def answer(self, request: RecordAnswer) -> None:
        """Record the answer to a `once`."""
        self._add(request)

    async def progress(self, request: RecordProgress) -> None:
        """Record the progress of an input."""
        self._add(request)

    async def input_ended(self, request: InputEnding) -> None:
        """Record how an input ended."""
        self._add(request)

    async def outage(self, request: RecordOutage) -> None:
        """Note the begin or the end of a provider's outage."""
        self._outage = request.error
        self._changed.notify()

    async def limit(self, request: RecordLimit) -> None:
        """End the run after the calls in flight."""
        self._stop(f"{request.limit} is reached")

    def _add(self, *records: Record) -> None:
        if self._null is not None:
            self._null.add(records)
            self._check_cost()
            self._changed.notify()
            return
        self._queue += records
        self._received += len(records)
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
        if len(self._queue) >= MAX_QUEUED and self._admission == "elections":
            self._set_admission()

    async def _write(self) -> None:
        """Commit all queued records at once, again and again; records that arrive meanwhile go into the next commit."""
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
            late = loop.call_later(MAX_BEHIND_S, partial(self._set_admission, is_late=True))
            try:
                self._durable = await self._writer.do(lambda store, batch=batch: store.commit(batch))  # type: ignore[misc]
                self._committed += len(batch)
                self._check_cost()
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
        return self._durable if self._null is None else self._null.books.account()

    def _check_cost(self) -> None:
        if self._max_cost_usd is None:
            return
        cost_usd = self._account.cost_usd
        if cost_usd is None:
            self._stop(f"what a call costs is unknown, so --max-cost {self._max_cost_usd:g} cannot be kept")
        elif cost_usd >= self._max_cost_usd:
            self._stop(f"--max-cost {self._max_cost_usd:g} is reached")

    def _stop(self, reason: str) -> None:
        if not self._is_draining:
            self._is_draining = True
            self._scope.start(self._stop_after_calls(reason))

    async def _stop_after_calls(self, reason: str) -> None:
        await self._drained()
        self._limit = Stopped(f"{reason}; what was decided until then holds; resume with a higher one")
        self._must_end.notify()

    # -- admission ------------------------------------------------------------------------------------------------------------------

    def _set_admission(self, *, is_late: bool = False) -> None:
        is_behind = is_late or len(self._queue) >= MAX_QUEUED or self._failure is not None
        admission: Admission = "nothing" if self._is_draining else "draws" if is_behind else "elections"
        if admission != self._admission:
            self._admission = admission
            self._admission_changed.notify()

    async def follow_admission(self, request: FollowAdmission) -> AsyncIterator[Admission]:  # noqa: ARG002 - the message is the address
        """Yield the admission as it changes."""
        shown: Admission = "elections"
        self._following += 1
        try:
            while True:
                if self._admission != shown:
                    shown = self._admission
                    yield shown
                else:
                    await self._admission_changed.wait()
        finally:
            self._following -= 1
            self._changed.notify()

    async def drain(self, request: Drain) -> None:  # noqa: ARG002 - the message is the address
        """Admit nothing from now on, and wait for the draws in flight, up to a bound."""
        self._is_draining = True
        await self._drained()

    async def _drained(self) -> None:
        self._set_admission()
        try:
            async with asyncio.timeout(DRAIN_S):
                await asyncio.sleep(0)  # records of draws that were launched before arrive in this turn
                while self._failure is None and self._outage is None and self._has_work_in_flight():
                    await self._changed.wait()
        except TimeoutError:
            return

    def _has_work_in_flight(self) -> bool:
        return bool(self._following or self._queue) or self._is_writing or self._account.in_flight > 0

    # -- queries --------------------------------------------------------------------------------------------------------------------

    async def report(self, request: Report) -> Account:
        """The account as of the last commit; a final one waits for all records."""
        if request.final:
            await self._flushed()
            if self._failure is None:
                account = await self._writer.do(lambda store: store.account_with_digests())
                return structs.replace(account, outage=self._outage)
        return structs.replace(self._account, outage=self._outage)

    async def failure(self, request: AwaitFailure) -> None:  # noqa: ARG002 - the message is the address
        """Block until the run must stop, then raise the reason."""
        while (reason := self._failure or self._limit) is None:
            await self._must_end.wait()
        raise reason

    async def ended(self, request: RecordEnding) -> None:
        """Record how the run ended.

        Raises:
            Stopped: the journal cannot be written.
        """
        await self._flushed()
        if self._failure is not None:
            raise self._failure
        await self._writer.do(lambda store: store.end(request.outcome, request.reason, request.result))

    async def recall(self, request: Recall) -> Recalled | None:
        """The row at a path."""
        await self._flushed()
        return await self._writer.do(lambda store: store.recall(request.path))

    async def has_records(self, request: HasRecords) -> bool:
        """Whether the journal holds records of an input."""
        await self._flushed()
        return await self._writer.do(lambda store: store.has_records(request.input))

    async def recall_completed_inputs(self, request: RecallCompletedInputs) -> list[int]:  # noqa: ARG002 - the message is the address
        """The completed inputs."""
        await self._flushed()
        return await self._writer.do(lambda store: [number for number, outcome in enumerate(store.books.ended) if outcome == "completed"])

    async def recall_failed_inputs(self, request: RecallFailedInputs) -> list[InputEnding]:  # noqa: ARG002 - the message is the address
        """The inputs that failed or are undecided."""
        await self._flushed()
        return await self._writer.do(lambda store: store.failed_inputs())

    async def recall_checkpoint(self, request: RecallCheckpoint) -> Checkpoint | None:
        """The checkpoint of an input."""
        self._has_begun = True
        await self._flushed()
        return await self._writer.do(lambda store: store.books.progress[request.input].reached)

    async def recall_open(self, request: RecallOpen) -> list[OpenElection]:  # noqa: ARG002 - the message is the address
        """The elections that are not decided."""
        await self._flushed()
        return await self._writer.do(lambda store: store.open_elections())

    async def _flushed(self) -> None:
        """Wait until every record received so far is durable, or cannot be written any more."""
        received = self._received
        while self._failure is None and self._committed < received:
            await self._changed.wait()
