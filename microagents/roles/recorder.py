"""The recorder: the only writer of a run's journal. It queues records and commits them later, so no sender waits for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path

import msgspec
from msgspec import structs

from microagents.actors import Context, Messenger, Role
from microagents.aio import Notifier, TaskScope
from microagents.elections.admission import Admission, Drain, FollowAdmission
from microagents.errors import MicroagentsError, RoleFailed, Stopped, TaskFailed
from microagents.journal.books import COMPLETED, Books
from microagents.journal.experiment import Experiment
from microagents.journal.messages import (
    Account,
    CallsOver,
    Checkpoint,
    Entry,
    FollowDecisions,
    HasRecords,
    InputEnding,
    LeaseCalls,
    OpenElection,
    Recall,
    RecallCheckpoint,
    RecallCompletedInputs,
    RecallDecidedInputs,
    Recalled,
    RecallFailedInputs,
    RecallOpen,
    Record,
    RecordBatch,
    RecordDraws,
    RecordLimit,
    RecordOutage,
    RecordReply,
    RecordSample,
    Report,
    RunOutcome,
    reason_with,
)
from microagents.journal.store import Store
from microagents.journal.writer import Inline, NullStore, RecordStore, Writer
from microagents.messages import Request
from microagents.roles.decision_teller import DecisionTeller, OnDecision
from microagents.roles.first_replies import FirstReplies
from microagents.roles.live_requests import LiveRequests

MAX_QUEUED = 1024
"""Number of queued records at which no more elections open. A crash loses queued records, and their calls are paid twice."""
MAX_COMMIT_S = 0.05
"""Duration of a commit after which no more elections open, for the same reason."""
COMMIT_EVERY_S = 0.02
"""Interval of commits under load: one commit costs as much as thirty more records in it. The first after a pause is made at once."""
MAX_DRAIN_S = 60.0
"""Longest wait for calls in flight when a run is ended early."""
HIGHER_LIMIT = "resume with a higher limit"
"""What the user can do after a limit. A resumed run keeps a limit that is not given."""


class JournalConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Location of the journal, and how it is written."""

    path: Path
    experiment: Experiment
    own: Sequence[str] = ()
    """For each input its options that differ from the first one's, as JSON; empty for a single input."""
    accepted: tuple[str, ...] = ()
    """Fields that may differ from the recorded experiment."""
    full: bool = True
    """Whether a commit must survive a power cut, or only a kill of the process."""
    inline_s: float | None = None
    """Duration of a commit on the event loop, in virtual time; None to commit in a thread."""


class RecordEnding(Request[None], frozen=True, kw_only=True):
    """Record the ending of this sitting of the run. The reply comes once the ending is durable."""

    outcome: RunOutcome
    reason: str | None
    result: bytes | None
    """The result, as JSON."""
    traceback: str = ""
    """Where a user's code raised; empty where it did not."""


class AwaitFailure(Request[None], frozen=True, kw_only=True):
    """Wait until the run must stop, then raise the reason.

    Raises:
        Stopped: the journal cannot be written, or a limit is reached.
        TakenOver: another process writes the journal now.
    """


class Recorder(Role):
    """Records every call, ballot and decision of a run. It runs in the driver's process."""

    def __init__(self, context: Context, messenger: Messenger) -> None:
        super().__init__(context, messenger)
        self._durable = Account()
        """The account as of the last commit."""
        self._null: NullStore | None = None
        """The store of a run without a journal. It adds records up at once, so none is queued."""
        self._outage: str | None = None
        """Why a provider does not deliver; None while all do."""
        self._queue: list[Record] = []
        self._scope = TaskScope()
        self._writer: Writer | Inline
        self._writing: asyncio.Task[None]
        """Commits records; only a cancellation of all tasks of the loop ends it before the role stops."""
        self._woken: asyncio.Future[None] | None = None
        """Done once a record is queued, while the writing task waits for one."""
        self._changed = Notifier()
        """Notifies of commits, of departed followers and of outages; without a journal also of records."""
        self._admission_changed = Notifier()
        self._followers = 0
        """Number of followers of the admission. Each may have draws in flight."""
        self._must_stop = Notifier()
        self._failure: MicroagentsError | None = None
        """Why the journal cannot be written any more."""
        self._reason: MicroagentsError | None = None
        """Why the run must stop although the journal can be written: a limit, once the calls in flight have ended, or a failed callback."""
        self._admission: Admission = "elections"
        self._received = self._committed = 0
        """Number of records received, and number of those that are durable."""
        self._is_draining = self._is_writing = self._has_begun = False
        """Whether nothing more is admitted; whether a commit is under way; whether the work on an input has begun."""
        self._first_replies: FirstReplies | None = FirstReplies(len(context.tasks), context.tasks[0])
        """The flags of the first replies; None once enough of them were valid."""
        self._expected_usd: float | None = context.options.get("expected_usd")
        """Expected cost from now on; None where it is unknown."""
        on_decision: OnDecision | None = context.options.get("on_decision")
        self._teller = None if on_decision is None else DecisionTeller(on_decision)
        self._requests: LiveRequests

    async def start(self) -> None:
        """Open the journal.

        Raises:
            InvalidUsage: it belongs to another experiment or process, or it cannot be read.
            Stopped: it cannot be written.
        """
        journaling: JournalConfig | None = self.context.options.get("journaling")
        if journaling is None:
            null = self._null = NullStore(Books(len(self.context.tasks), in_order=self.context.strategy.decides_in_order))
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
        self._requests = LiveRequests(self._writer)
        try:
            if isinstance(self._writer, Writer):
                await self._writer.opened()
            self._durable = await self._writer.do(self._take_up)
            if self._teller is not None:
                await self._writer.do(self._collect_decisions)
            await self._requests.start()
        except BaseException:  # this recorder is not stopped, and the next one must find the journal unlocked
            await self._writer.close(forget=True)
            raise
        if self._durable.valid:
            self._first_replies = None
        self._writing = self._scope.start(self._write())
        self._writing.add_done_callback(lambda _: self._changed.notify())
        if self._teller is not None:
            self._scope.start(self._tell_decisions(self._teller))
        if isinstance(self._writer, Writer):  # virtual time would never stand still
            self._scope.start(self._requests.keep_taking())

    def _take_up(self, store: RecordStore) -> Account:
        if self._expected_usd is not None:
            store.books.expect(self._expected_usd)
        return store.books.account()

    def _collect_decisions(self, store: RecordStore) -> None:
        if self._teller is not None:
            store.books.on_decision = self._teller.take

    async def stop(self) -> None:
        """Write the queued records and close the journal. A journal in which no input was begun is removed."""
        try:
            if self._null is None and self._received:
                self._add(CallsOver())
            await self._flush()
        finally:  # also if the flush takes too long: the lease must be given back
            try:
                await self._scope.close()
            finally:
                await self._writer.close(forget=not self._has_begun)

    # -- records --------------------------------------------------------------------------------------------------------------------

    def draws(self, request: RecordDraws) -> None:
        """Record samples and the texts of replies."""
        self._add(*self._kept(request.records))
        if self._first_replies is not None:
            self._check_first_replies(self._first_replies, request.records)

    def _kept(self, records: Sequence[RecordSample | RecordReply]) -> Iterable[RecordSample | RecordReply]:
        """The records that the journal is to keep: with ``keep_texts`` none, no texts."""
        if self.context.settings.get("keep_texts") != "none":
            return records
        return (each for each in records if isinstance(each, RecordSample))

    def batch(self, request: RecordBatch) -> None:
        """Record what a process has sent together."""
        self._add(*request.calls, *self._kept(request.draws), *request.decisions, *request.progress)
        if self._first_replies is not None:
            self._first_replies.add_valid(request.valid)
            self._check_first_replies(self._first_replies, request.draws)

    async def lease_calls(self, request: LeaseCalls) -> bool:
        """Record that a solver may send calls; returns whether that is needed, which it is not without a journal.

        Raises:
            MicroagentsError: the journal cannot be written.
        """
        if self._null is not None:
            return False
        self._add(request)
        await self._flush()
        if self._failure is not None:
            raise self._failure
        return True

    def entry(self, request: Entry) -> None:
        """Record calls, a decision, the progress or the ending of an input, and so on."""
        self._add(request)

    def outage(self, request: RecordOutage) -> None:
        """Note the start or the end of a provider's outage."""
        self._outage = request.error
        self._changed.notify()

    def limit(self, request: RecordLimit) -> None:
        """Stop the run after the calls in flight."""
        self._stop(f"{request.limit} is reached{request.left and ': '}{request.left}", HIGHER_LIMIT)

    def _add(self, *records: Record) -> None:
        if self._null is not None:
            self._null.add(records)
            if self._teller is not None:
                self._teller.release(None)
            self._changed.notify()
            return
        self._queue += records
        self._received += len(records)
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
        if len(self._queue) >= MAX_QUEUED and self._admission == "elections":
            self._set_admission()

    async def _write(self) -> None:
        """Commit all queued records, again and again. Records that arrive during a commit go into the next one."""
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        while self._failure is None:
            if not self._queue:
                self._woken = loop.create_future()
                await self._woken
            # Once the run is ending, its end waits for the commits, so they are no longer spaced.
            if loop.time() < next_s and not self._is_draining:
                await asyncio.sleep(next_s - loop.time())
            next_s = loop.time() + COMMIT_EVERY_S
            batch, self._queue = self._queue, []
            self._is_writing = True
            late = loop.call_later(MAX_COMMIT_S, partial(self._set_admission, is_late=True))
            try:
                self._durable, committed_at, has_requests = await self._writer.do(partial(_commit, batch))
                self._committed += len(batch)
                if self._teller is not None:
                    self._teller.release(committed_at)
                if has_requests:
                    self._requests.notice()
            except MicroagentsError as error:
                self._fail(error)
            except Exception as error:  # a defect here must stop the run, not leave it waiting for ever
                self._fail(RoleFailed("Recorder", "a commit", f"{type(error).__name__}: {error}"))
                raise
            finally:
                late.cancel()
                self._is_writing = False
                self._set_admission()
                self._changed.notify()

    async def _tell_decisions(self, teller: DecisionTeller) -> None:
        self._reason = await teller.tell()
        self._must_stop.notify()

    def _fail(self, error: MicroagentsError) -> None:
        self._failure = error
        self._must_stop.notify()

    @property
    def _account(self) -> Account:
        """The account as of the last commit; without a journal the current one."""
        return self._durable if self._null is None else self._null.books.account()

    def _check_first_replies(self, first: FirstReplies, records: Sequence[RecordSample | RecordReply]) -> None:
        for record in records:
            first.add(record)
        if (hopeless := first.hopeless()) is not None:
            self._stop(*hopeless)
        elif first.is_over:
            self._first_replies = None

    def _stop(self, reason: str, remedy: str) -> None:
        if not self._is_draining:
            self._is_draining = True
            self._scope.start(self._stop_after_calls(f"{reason}; all decisions so far are kept; {remedy}"))

    async def _stop_after_calls(self, reason: str) -> None:
        await self._await_drained()
        self._reason = Stopped(reason)
        self._must_stop.notify()

    # -- admission ------------------------------------------------------------------------------------------------------------------

    def _set_admission(self, *, is_late: bool = False) -> None:
        is_behind = is_late or len(self._queue) >= MAX_QUEUED or self._failure is not None
        admission: Admission = "nothing" if self._is_draining else "draws" if is_behind else "elections"
        if admission != self._admission:
            self._admission = admission
            self._admission_changed.notify()

    async def follow_admission(self, request: FollowAdmission) -> AsyncIterator[Admission]:  # noqa: ARG002 - the message is the address
        """Yield the admission as it changes."""
        sent: Admission = "elections"
        self._followers += 1
        try:
            while True:
                if self._admission != sent:
                    sent = self._admission
                    yield sent
                else:
                    await self._admission_changed.wait()
        finally:
            self._followers -= 1
            self._changed.notify()

    async def drain(self, request: Drain) -> None:  # noqa: ARG002 - the message is the address
        """Admit nothing from now on, and wait for the calls in flight, at most `MAX_DRAIN_S`."""
        self._is_draining = True
        await self._await_drained()

    async def _await_drained(self) -> None:
        """Announce that nothing is admitted, and wait until no work is in flight, the journal fails or a provider is out."""
        self._set_admission()
        try:
            async with asyncio.timeout(MAX_DRAIN_S):
                await asyncio.sleep(0)  # draws that were launched before send their records in this turn of the loop
                # During an outage calls are repeated for up to hours, so the end of the run does not wait for them.
                while self._failure is None and self._outage is None and self._has_work_in_flight():
                    await self._changed.wait()
        except TimeoutError:
            return

    def _has_work_in_flight(self) -> bool:
        # A follower leaves only after its last record, so draws whose records are not sent yet are waited for, too.
        return bool(self._followers or self._queue) or self._is_writing or self._account.in_flight > 0

    # -- queries --------------------------------------------------------------------------------------------------------------------

    async def report(self, request: Report) -> Account:
        """Return the account as of the last commit; a final one includes all records."""
        if request.final:
            await self._flush()
            if self._failure is None:
                account = await self._writer.do(lambda store: store.account_with_digests())
                return structs.replace(account, outage=self._outage)
        return structs.replace(self._account, outage=self._outage)

    async def failure(self, request: AwaitFailure) -> None:  # noqa: ARG002 - the message is the address
        """Wait until the run must stop, then raise the reason."""
        while (reason := self._failure or self._reason) is None:
            await self._must_stop.wait()
        raise reason

    async def ended(self, request: RecordEnding) -> None:
        """Record the ending of the run.

        Raises:
            Stopped: the journal cannot be written.
        """
        await self._flush()
        if self._teller is not None:
            await self._teller.tell_all(MAX_DRAIN_S)
        if self._failure is not None:
            raise self._failure
        if isinstance(self._reason, TaskFailed) and request.outcome != "failed":  # the last decisions led to it
            raise self._reason
        reason = reason_with(request.reason, request.traceback)
        await self._writer.do(lambda store: store.end(request.outcome, reason, request.result))

    async def recall(self, request: Recall) -> Recalled | None:
        """Return the record at a path."""
        await self._flush()
        return await self._writer.do(lambda store: store.recall(request.path))

    async def has_records(self, request: HasRecords) -> bool:
        """Return whether the journal has records of an input, or of any."""
        await self._flush()
        return await self._writer.do(lambda store: store.has_records(request.input))

    async def recall_completed_inputs(self, request: RecallCompletedInputs) -> bytes:  # noqa: ARG002 - the message is the address
        """Return which inputs are completed."""
        await self._flush()
        return await self._writer.do(lambda store: bytes(code == COMPLETED for code in store.books.ended))

    async def recall_failed_inputs(self, request: RecallFailedInputs) -> list[InputEnding]:  # noqa: ARG002 - the message is the address
        """Return the endings of the inputs that failed or are undecided."""
        await self._flush()
        return await self._writer.do(lambda store: store.failed_inputs())

    async def recall_checkpoint(self, request: RecallCheckpoint) -> Checkpoint | None:
        """Return the checkpoint of an input, whose work now begins."""
        self._has_begun = True  # a conductor asks for the checkpoint before it does anything else
        await self._flush()
        return await self._writer.do(lambda store: store.checkpoint(request.input))

    async def recall_decided_inputs(self, request: RecallDecidedInputs) -> list[int]:  # noqa: ARG002 - the message is the address
        """Return the inputs whose work a decision of a person lets go on."""
        await self._flush()
        if self._failure is not None or self._is_draining:
            return []
        await self._requests.take()
        return self._requests.decided_inputs(self._account.undecided_at)

    async def follow_decisions(self, request: FollowDecisions) -> AsyncIterator[tuple[str, bytes]]:  # noqa: ARG002 - as above
        """Yield the decisions of persons on open elections."""
        async with aclosing(self._requests.follow_decisions()) as decisions:
            async for each in decisions:
                yield each

    async def recall_open(self, request: RecallOpen) -> list[OpenElection]:  # noqa: ARG002 - the message is the address
        """Return the elections without a verdict."""
        await self._flush()
        return await self._writer.do(lambda store: store.open_elections())

    async def _flush(self) -> None:
        """Wait until every record received so far is durable, or the journal cannot be written any more."""
        received = self._received
        while self._failure is None and self._committed < received and not self._writing.done():
            await self._changed.wait()


def _commit(batch: Sequence[Record], store: RecordStore) -> tuple[Account, str | None, bool]:
    """Commit records; returns the account, the time of the commit, and whether there may be requests."""
    return store.commit(batch), store.committed_at, store.has_requests
