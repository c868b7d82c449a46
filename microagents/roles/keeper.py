"""The keeper: the only writer of a run's journal. It grants calls, takes records, answers questions and stops the run in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import structs

from microagents.actors.role import Context, Messenger, Role
from microagents.base.aio import Notifier, TaskScope, loop_has_threads
from microagents.base.errors import Aborted, JournalGone, MicroagentsError, Stopped, TaskFailed
from microagents.base.messages import Request
from microagents.elections.admission import PAUSES
from microagents.journal.commits import Commits
from microagents.journal.ending import ReachedLimit, RunEnding
from microagents.journal.messages import (
    CANCEL_BATCHES,
    Account,
    CallsOver,
    Conditions,
    KeepBatch,
    Lost,
    Mark,
    Recall,
    Recollection,
    Record,
    RecordCalls,
    RecordOutage,
    RecordReply,
    RecordSample,
    Report,
    Subscribe,
    TracedElection,
)
from microagents.journal.requests import EndRun, LiveRequest, PauseRun, ResumeRun, SetRun, said_by
from microagents.journal.sitting import JournalConfig
from microagents.journal.store import Store
from microagents.journal.writer import Writer, writer_of
from microagents.roles.decision_callback import DecisionCallback, OnDecision
from microagents.roles.first_replies import FirstReplies
from microagents.roles.limits.leases import Acquire
from microagents.roles.limits.limiter import Limiter
from microagents.roles.limits.shared_cuts import SharedCuts
from microagents.roles.live_requests import LiveRequests
from microagents.roles.run_admission import MAX_DRAIN_S, RunAdmission

if TYPE_CHECKING:
    from microagents.telemetry.exporting import Telemetry


class End(Request[RunEnding], frozen=True, kw_only=True):
    """End this sitting of the run, and record how. The reply is the ending as it is recorded, with the limit that was reached."""

    ending: RunEnding


CUTS = "cuts"
"""Name of the file beside the journals of runs that share providers."""


class Keeper(Role):
    """Grants the calls of a run, and records every call, ballot and decision. It runs in the driver's process."""

    def __init__(self, context: Context, messenger: Messenger) -> None:
        super().__init__(context, messenger)
        self._scope = TaskScope()
        self._writer: Writer
        self._commits: Commits
        self._journaling: JournalConfig | None = context.options.get("journaling")
        self._outlives_process = self._journaling is not None and self._journaling.path is not None
        """Whether the store is a file, and not in memory."""
        self._admission: RunAdmission
        cuts = None
        if self._journaling is not None and context.sharers > 1:
            cuts = SharedCuts(self._journaling.location.with_name(CUTS))
        self._limiter = Limiter(
            context.settings,
            on_stop=self._stop,
            on_outage=self._note_change,
            on_settled=self._settle,
            on_short=self._commit_soon if self._outlives_process else None,
            sharers=context.sharers,
            cuts=cuts,
        )
        self._mark = Lost()
        """The mark of the last commit."""
        self._requests: LiveRequests
        self._telemetry: Telemetry | None = context.options.get("telemetry")
        on_decision: OnDecision | None = context.options.get("on_decision")
        if on_decision is None:
            self._callback = None
        else:
            self._callback = DecisionCallback(on_decision, context.run_id, type(context.tasks[0]))
        self._first_replies: FirstReplies | None = FirstReplies(context.tasks, context.reading)
        """The flags of the first replies; None once enough of them were valid."""
        self._keeps_texts = context.settings.get("keep_texts") != "none"
        self._must_stop = Notifier()
        self._limit: ReachedLimit | None = None
        """The limit that has stopped the run."""
        self._reason: MicroagentsError | None = None
        """Why the run must stop although the journal can be written: a limit, once the calls in flight have ended, or a failed callback."""
        self._heard_s = 0.0
        """Time of the loop at which a call was last sent or ended."""
        self._began_s: float | None = None
        """Time of the loop at which the work on an input began; None before."""
        self._changed: dict[str, Any] = {}
        """Settings that were changed in this sitting."""
        self._changes = 0
        """Number of changes of the conditions so far."""
        self._has_changed = Notifier()
        """Notifies of them."""
        self._of_models: tuple[Any, ...] = ()
        """Doubted models and refused parameters that the conditions name."""
        self._batches = 0
        """Number of the last batch."""

    async def start(self) -> None:
        """Open the journal.

        Raises:
            InvalidUsage: it belongs to another experiment or process, or it cannot be read.
            Stopped: it cannot be written.
        """
        journaling = self._journaling
        if journaling is None:
            journaling = JournalConfig.in_memory(self.context.run_id, len(self.context.tasks))
        self._writer = writer_of(journaling)
        # Virtual time would never stand still if it waited for requests; without a journal no other process knows the run.
        is_asked = self._outlives_process and loop_has_threads()
        self._requests = LiveRequests(
            self._writer if is_asked else None, self._take_control, self._note_change, self._stop_at_once
        )
        self._commits = Commits(self._writer, self._raise_mark, self._note_commit)
        self._admission = RunAdmission(self._commits, self._note_change)
        await self._writer.open()
        account = await self._writer.do(self._take_up)
        self._batches = account.batches.made
        self._commits.account = account
        self._of_models = account.doubted, account.refused
        self._limiter.begin(self._account(account))
        self._admission.pause(said_by(await self._writer.do(lambda store: store.pause())))
        await self._requests.start()
        if self._telemetry is not None:
            self._telemetry.watch(self._account)
        if account.valid:
            self._first_replies = None
        self._scope.start(self._commit())
        if self._callback is not None:
            self._scope.start(self._call_back(self._callback))
        self._scope.start(self._requests.keep_taking())

    def _take_up(self, store: Store) -> Account:
        books, options = store.books, self.context.options
        if (expected_usd := options.get("expected_usd")) is not None:
            books.expect(expected_usd)
        if (promise := options.get("promise")) is not None:
            books.totals.account.promise = promise
        if self._callback is not None:
            books.on_decision = self._callback.take
        config = self._journaling
        if config is not None and config.reused:
            books.totals.account.reused, books.totals.account.saved_usd = len(config.reused), config.saved_usd
            store.commit(config.reused)
        return books.account()

    async def stop(self) -> None:
        """Write the queued records and close the journal. A journal in which no input was begun is removed."""
        try:
            if self._commits.received:
                self._commits.add([CallsOver()])
            await self._commits.flush()
            if self._telemetry is not None:
                ended = self._account()
                self._telemetry.watch(lambda: ended)
        finally:  # also if the flush takes too long: the lease must be given back
            try:
                self._limiter.close()
                await self._scope.close()
            finally:
                await self._writer.close(forget=self._began_s is None)

    async def _commit(self) -> None:
        try:
            await self._commits.write()
        finally:
            self._limiter.dismiss()  # no mark is durable any more
            self._must_stop.notify()

    def _commit_soon(self) -> None:
        self._commits.commit_soon()

    def _raise_mark(self) -> Sequence[Mark]:
        before, self._mark = self._mark, self._limiter.marks.raised()
        if self._mark == before or not self._outlives_process:
            return ()
        return (Mark(most=self._mark),)

    def _note_commit(self, committed_at: str | None) -> None:
        self._limiter.marks.commit()
        if self._callback is not None:
            self._callback.release(committed_at)
        account = self._commits.account
        of_models = account.doubted, account.refused
        if of_models != self._of_models:
            self._of_models = of_models
            self._note_change()

    async def _call_back(self, callback: DecisionCallback) -> None:
        self._reason = await callback.run()
        self._must_stop.notify()

    # -- records --------------------------------------------------------------------------------------------------------------------

    def record(self, request: Record) -> None:
        """Record facts. Ends of leases, outages and flagged first replies have their effect at once."""
        if self._keeps_texts:
            self._commits.add(request.entries)
        else:
            self._commits.add([each for each in request.entries if not isinstance(each, RecordReply)])
        if self._first_replies is not None:
            self._check_first_replies(self._first_replies, request)
        for entry in request.entries:
            match entry:
                case RecordCalls():
                    self._heard_s = asyncio.get_running_loop().time()
                    if self._telemetry is not None:
                        self._telemetry.add_durations(entry.took_s)
                    for ended in entry.ended:
                        self._limiter.release(ended)
                case RecordOutage():
                    self._admission.note_outage(entry.error)
                case TracedElection() if self._telemetry is not None:
                    self._telemetry.add_election(entry)

    async def acquire(self, request: Acquire) -> dict[str, int] | None:
        """Wait until the bounds have room for a call."""
        return await self._limiter.acquire(request)

    def _settle(self, cost_usd: float, calls: int) -> None:
        """Record the cost that is counted for calls which no price was known for."""
        settled = RecordCalls(source=self.context.name, unsettled_usd=cost_usd, unpriced=-calls)
        self._commits.add((settled,))

    async def keep_batch(self, request: KeepBatch) -> int:
        """Record a batch, or its change; returns its number.

        Raises:
            MicroagentsError: the journal cannot be written.
        """
        batch = request.batch
        if not batch.number:
            self._batches += 1
            batch = structs.replace(batch, number=self._batches)
        self._commits.add((batch,))
        await self._commits.settle()
        return batch.number

    async def end(self, request: End) -> RunEnding:
        """Record the ending of the run.

        Raises:
            Stopped: the journal cannot be written. If it was taken away, the error names its copy.
        """
        try:
            return await self._end(request.ending)
        except JournalGone:
            raise await self._writer.do(_saved) from None

    async def _end(self, ending: RunEnding) -> RunEnding:
        await self._commits.flush()
        if self._callback is not None:
            await self._callback.wait(MAX_DRAIN_S)
        if self._commits.failure is not None:
            raise self._commits.failure
        if isinstance(self._reason, TaskFailed | Aborted) and ending.outcome != "failed":  # by the last decisions
            raise self._reason
        if self._telemetry is not None:
            self._telemetry.end(ending.outcome, self._account())
        recorded = structs.replace(ending, limit=self._limit if ending.outcome == "stopped" else None)
        await self._writer.do(lambda store: store.end(recorded))
        return recorded

    # -- reasons to stop ------------------------------------------------------------------------------------------------------------

    def _check_first_replies(self, first: FirstReplies, request: Record) -> None:
        first.add_valid(request.valid)
        for entry in request.entries:
            if isinstance(entry, RecordSample | RecordReply):
                first.add(entry)
        if (hopeless := first.hopeless()) is not None:
            self._stop(*hopeless)
        elif first.is_over:
            self._first_replies = None

    def _stop(self, reason: str, remedy: str, limit: ReachedLimit | None = None) -> None:
        if not self._admission.is_ending:
            self._limit = limit
            self._admission.end()
            self._scope.start(self._stop_after_calls(f"{reason}; all decisions so far are kept; {remedy}"))

    def _stop_at_once(self, reason: Stopped) -> None:
        """Stop the run without waiting for the calls in flight."""
        self._admission.end()
        self._reason = reason
        self._must_stop.notify()

    async def _end_in_time(self, began_s: float) -> None:
        """Stop the run after its time, which may change meanwhile."""
        while True:
            most_s: Any = {**self.context.settings, **self._changed}.get("max_time_s")
            try:
                async with asyncio.timeout_at(None if most_s is None else began_s + most_s):
                    await self._has_changed.wait()
            except TimeoutError:
                limit = ReachedLimit(setting="max_time_s", value=most_s, enough=most_s)
                self._stop(f"--max-time {most_s:g} is reached", "resume it for as long again", limit)
                return

    def _take_control(self, request: LiveRequest) -> None:
        """Carry out another process's request."""
        if isinstance(request.ask, EndRun) and request.ask.cancels_batches:
            self._changed[CANCEL_BATCHES] = True
        match request.ask:
            case PauseRun(now=now):
                self._admission.pause(said_by(request), is_halted=now)
            case ResumeRun():
                self._admission.pause(None)
            case EndRun(after="nothing"):
                self._stop_at_once(
                    Stopped(f"ended {said_by(request)}; all decisions so far are kept; resume it to go on")
                )
            case EndRun(after="calls"):
                self._stop(f"ended {said_by(request)}", "resume it to go on")
            case EndRun():
                self._scope.start(self._stop_after_elections(f"ended {said_by(request)}"))
            case SetRun() as ask:
                self._changed |= ask.changed
                self._limiter.change({**self.context.settings, **self._changed}, self._account())
                self._note_change()

    async def _stop_after_elections(self, reason: str) -> None:
        await self._admission.drain_elections()
        self._stop(reason, "resume it to go on")

    def _note_change(self) -> None:
        if self._admission.now == "nothing":
            self._limiter.dismiss()
        self._limiter.pause(is_paused=self._admission.now in PAUSES)
        self._changes += 1
        self._has_changed.notify()

    async def subscribe(self, request: Subscribe) -> AsyncIterator[Conditions]:  # noqa: ARG002 - the message is the address
        """Yield the conditions of the run, at once and after each change."""
        self._admission.join()
        sent, holder = -1, self._limiter.admit()
        try:
            while True:
                if sent == self._changes:
                    await self._has_changed.wait()
                    continue
                sent, account = self._changes, self._commits.account
                yield Conditions(
                    holder=holder,
                    admission=self._admission.now,
                    settings=dict(self._changed),
                    decisions=dict(self._requests.decisions),
                    doubted=account.doubted,
                    refused=account.refused,
                    outages=self._limiter.outages,
                )
        finally:
            lost = self._limiter.end(holder)
            if lost.calls:
                self._commits.add((lost,))
            self._admission.leave()

    async def _stop_after_calls(self, reason: str) -> None:
        await self._admission.drain()
        self._reason = Stopped(reason)
        self._must_stop.notify()

    async def _failure(self) -> NoReturn:
        """Wait until the run must stop, then raise the reason."""
        while (reason := self._commits.failure or self._reason) is None:
            await self._must_stop.wait()
        raise reason

    # -- queries --------------------------------------------------------------------------------------------------------------------

    async def report(self, request: Report) -> Account:
        """Return the account as of the last commit, when it is asked for. One with all records has no loads."""
        match request.when:
            case "written":
                await self._commits.flush()
            case "durable":
                await self._commits.settle()
            case "drained":
                await self._admission.drain()
            case "stopped":
                await self._failure()
        account = self._commits.account
        loads = {} if request.when == "written" else account.loads
        silent_s = 0.0
        if account.in_flight > 0:
            silent_s = asyncio.get_running_loop().time() - self._heard_s
        return structs.replace(self._account(account), loads=loads, silent_s=silent_s)

    def _account(self, account: Account | None = None) -> Account:
        """Return an account, by default of the last commit, with the outage and the pause that hold now."""
        account = account or self._commits.account
        return structs.replace(account, outage=self._admission.outage, paused=self._admission.paused)

    async def recall(self, request: Recall) -> Recollection:
        """Return the journal's record at a path. The question about an input begins the work on it."""
        if self._began_s is None and request.path.isdecimal():
            self._began_s = asyncio.get_running_loop().time()
            self._scope.start(self._end_in_time(self._began_s))
        if request.with_decided_inputs:
            return Recollection(decided_inputs=await self._decided_inputs())
        return await self._commits.ask(lambda store: store.recall(request))

    async def _decided_inputs(self) -> tuple[int, ...]:
        await self._commits.flush()
        if self._commits.failure is not None or self._admission.is_ending:
            return ()
        await self._requests.take()
        return tuple(self._requests.decided_inputs(self._commits.account.undecided_at))


def _saved(store: Store) -> JournalGone:
    return store.save()
