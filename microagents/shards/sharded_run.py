"""A run in shards: its inputs are dealt to runs of the one-process engine, which this process begins, watches and begins again."""

from __future__ import annotations

import asyncio
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import structs

from microagents.base.aio import TaskScope
from microagents.base.errors import InvalidUsage, PeerLost, Stopped
from microagents.base.logs import log
from microagents.journal.creating import make_folder
from microagents.journal.ending import ReachedLimit, RunEnding
from microagents.journal.experiment import Experiment
from microagents.journal.inbox import leave_request
from microagents.journal.messages import Account
from microagents.journal.opening import holds_nothing
from microagents.journal.requests import EndRun, LiveRequest, PauseRun, ResumeRun, request_of, said_by
from microagents.journal.seals import is_sealed
from microagents.journal.sharded import FOLDER, open_run, read_dealt, shard_journal, write_dealt
from microagents.journal.sitting import JournalConfig
from microagents.journal.writer import Writer
from microagents.roles.live_requests import LiveRequests
from microagents.roles.solver.backends import Backends
from microagents.runs.driver.batch import UNSOLVED, ending_of
from microagents.runs.driver.conducting import INTERRUPTED
from microagents.runs.driver.execute import told_forecast
from microagents.runs.driver.keywords import RunControl
from microagents.runs.driver.shared_questions import SharedQuestions, may_share
from microagents.runs.inspection.runs import recorded_result
from microagents.runs.plan import RunPlan
from microagents.runs.result import Result
from microagents.runs.settings import option_of
from microagents.shards.one_shard import ShardEnding, do_shard
from microagents.shards.shard_processes import ShardPool, ShardProcesses

PROGRESS_EVERY_S = 1.0
"""Interval between sums of the accounts of all shards."""
MOST_DEATHS = 3
"""Deaths of a shard's process in a row, without a call between them, after which the run fails."""


async def execute_in_shards(
    plan: RunPlan,
    journal: Path | None,
    experiment: Experiment,
    own: Sequence[str],
    *,
    only: Sequence[int] | None,
    accepted: Sequence[str],
    control: RunControl,
) -> Result:
    """Begin a run in shards or continue it, until it ends.

    Args:
        plan: its plan, with the number of shards.
        journal: the journal of the whole.
        experiment: the experiment of the plan.
        own: options of each input that differ from the first one's, as JSON.
        only: None, since shards do all inputs.
        accepted: fields that may differ from the recorded experiment.
        control: of the caller.

    Raises:
        InvalidUsage: the plan cannot be done in shards.
    """
    if journal is None:
        raise InvalidUsage("each shard has a journal: leave --no-journal or --shards out")
    _check(plan, experiment, control)
    if only is not None or accepted:
        raise InvalidUsage(
            "shards do all inputs that are not completed, and accept no change of the run; leave --input and --accept-change out"
        )
    make_folder(journal.parent)
    if plan.settings["runtime"] != "ray":  # there keys are where the shards are
        await _try_models(plan)
    told_forecast(plan, journal, control)
    make_folder(journal.with_suffix(FOLDER))
    if holds_nothing(journal):
        write_dealt(journal, await asyncio.to_thread(_dealt, plan))
    writer = Writer(JournalConfig(path=journal, experiment=experiment, own=own))
    async with _pool_of(plan) as pool:
        await writer.open()
        try:
            await writer.do(lambda store: store.records.begin_work())
            await writer.do(lambda store: store.commit([]))
            ending = await _Shards(plan, journal, writer, pool, control).conduct()
            await writer.do(lambda store: store.end(ending))
        finally:
            await writer.close()
    with open_run(journal) as reader:
        result = recorded_result(reader, imports=True)
    return structs.replace(result, source=type(plan.tasks[0]))


async def _try_models(plan: RunPlan) -> None:
    """Open each model and close it again.

    Raises:
        InvalidUsage: one cannot be asked.
    """
    models = Backends(plan.context(), on_unpriced=lambda: None)
    try:
        models.open_all()
    finally:
        await models.close()


@asynccontextmanager
async def _pool_of(plan: RunPlan) -> AsyncIterator[ShardPool]:
    settings = plan.settings
    if settings["runtime"] != "ray":
        yield ShardProcesses()
        return
    from microagents.runtimes.ray.cluster import Cluster  # noqa: PLC0415 - an import of Ray takes a second
    from microagents.runtimes.ray.shard_actors import shard_actors  # noqa: PLC0415

    cluster = Cluster(address=settings["address"], insecure=settings["insecure"])
    async with shard_actors(cluster, plan.shards, do_shard) as pool:
        yield pool


def _check(plan: RunPlan, experiment: Experiment, control: RunControl) -> None:
    settings: Mapping[str, object] = plan.settings
    if not plan.listed:
        raise InvalidUsage(
            "--shards deals many inputs to runs, and this is one task, whose steps follow each other: give --inputs FILE, or leave "
            "--shards out"
        )
    if plan.model_objects or experiment.recipe.needs_program:
        raise InvalidUsage(
            "a shard is a process of its own, which must find task, strategy and models by name; leave --shards out"
        )
    for name, why in (("max_tokens", "share --max-calls and --max-cost alone"), ("reuse", "take over no replies")):
        if settings[name] is not None:
            raise InvalidUsage(f"{option_of(name)} does not go with --shards, which {why}; leave one out")
    if plan.context().is_in_batches:
        raise InvalidUsage(
            "--batch and @batch do not go with --shards, since a part of the cap may end before a batch does; leave one out"
        )
    for name in ("on_decision", "on_ask", "on_ending", "on_solution"):
        if control.get(name) is not None:
            raise InvalidUsage(
                f"shards tell their results at the end, so --stream and {name} do not go with --shards; leave one out"
            )


def _dealt(plan: RunPlan) -> array[int]:
    """Return the shard of each input: by its number, or by the digest of its question if rows that ask the same share a reply."""
    shards = plan.shards
    numbers = range(len(plan.tasks))
    if not may_share(plan):
        return array("H", (number % shards for number in numbers))
    questions, found = SharedQuestions(plan.tasks), array("H")
    for number in numbers:
        key = questions.digest(number) or number.to_bytes(8)
        found.append(int.from_bytes(key) % shards)
    return found


class _Shards:
    """The shards of a sitting.

    Args:
        plan: the plan of the whole.
        journal: its journal.
        writer: the thread that writes it.
        pool: does the shards.
        control: of the caller.
    """

    def __init__(self, plan: RunPlan, journal: Path, writer: Writer, pool: ShardPool, control: RunControl) -> None:
        self._plan, self._journal, self._control = plan, journal.absolute(), control
        self._pool = pool
        self._ending: RunEnding | None = None
        """Why the sitting is ended early; None while it is not."""
        self._pause: LiveRequest | None = None
        self._open: set[int] = set()
        """Shards under way."""
        self._writer = writer
        self._requests = LiveRequests(writer, self._take, lambda: None, lambda _: None)

    async def conduct(self) -> RunEnding:
        """Do all shards; returns the ending of the whole."""
        shards = sorted({*read_dealt(self._journal, len(self._plan.tasks))})
        shards = [each for each in shards if not is_sealed(shard_journal(self._journal, each))]
        if await self._writer.do(lambda store: store.pause()) is not None:
            self._pause = request_of(PauseRun())
        await self._requests.start()
        listening, work = TaskScope(), TaskScope()
        try:
            for each in (self._requests.keep_taking(), self._report(), self._time(), self._interrupt()):
                listening.start(each)
            listening.start(self._terminate(work))
            tasks = [work.start(self._do(shard)) for shard in shards]
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            await work.close(within_s=None)
            await listening.close()
        for failure in ended:
            if isinstance(failure, Exception):
                raise failure
        return await asyncio.to_thread(self._ending_of, [each for each in ended if isinstance(each, ShardEnding)])

    async def _do(self, shard: int) -> ShardEnding:
        """Do a shard, again after each death of its process."""
        deaths, calls = 0, -1
        while self._ending is None:
            self._open.add(shard)
            if self._pause is not None:
                leave_request(shard_journal(self._journal, shard), self._pause)
            try:
                return await self._pool.do(self._journal, shard)
            except PeerLost as error:
                account = await asyncio.to_thread(_account_of, shard_journal(self._journal, shard))
                deaths = deaths + 1 if account.calls == calls else 1
                calls = account.calls
                if deaths == MOST_DEATHS:
                    reason = f"{error}, {deaths} times without a call between"
                    return ShardEnding(outcome="failed", reason=reason, is_error=True)
                log().warning(f"{error}; it continues from its journal")
            finally:
                self._open.discard(shard)
        return ShardEnding(outcome="interrupted")

    def _end(self, ending: RunEnding) -> None:
        self._ending = self._ending or ending
        self._pool.interrupt()

    def _take(self, request: LiveRequest) -> None:
        """Pass a request on to the shards."""
        match request.ask:
            case PauseRun():
                self._pause = request
            case ResumeRun():
                self._pause = None
            case EndRun():
                reason = f"ended {said_by(request)}; resume it to go on"
                self._ending = self._ending or RunEnding(outcome="stopped", reason=reason)
                if request.ask.after == "calls":
                    self._pool.interrupt()
                    return
        for shard in sorted(self._open):
            leave_request(shard_journal(self._journal, shard), request)

    async def _interrupt(self) -> None:
        await (self._control.get("interrupt") or asyncio.Event()).wait()
        self._end(INTERRUPTED)

    async def _terminate(self, work: TaskScope) -> None:
        """End the shards at once: what they have recorded is durable."""
        await (self._control.get("terminate") or asyncio.Event()).wait()
        self._end(INTERRUPTED)
        work.cancel()

    async def _time(self) -> None:
        limit_s = self._plan.settings["max_time_s"]
        if limit_s is not None:
            await asyncio.sleep(limit_s)
            limit = ReachedLimit(setting="max_time_s", value=limit_s, enough=limit_s)
            reason = f"--max-time {limit_s:g} is reached; resume it to go on"
            self._end(RunEnding(outcome="stopped", reason=reason, limit=limit))

    async def _report(self) -> None:
        on_progress = self._control.get("on_progress")
        while True:
            await asyncio.sleep(PROGRESS_EVERY_S)
            try:
                await self._writer.do(lambda store: store.commit([]))  # the time that the run has taken
            except Stopped as error:
                self._end(RunEnding(outcome="stopped", reason=str(error)))
            if on_progress is not None:
                on_progress(await asyncio.to_thread(_account_of, self._journal))

    def _ending_of(self, endings: Sequence[ShardEnding]) -> RunEnding:
        """Return the ending of the whole."""
        with open_run(self._journal) as reader:
            account = reader.account()
            unsolved = list(reader.input_endings(unsolved=account.inputs))
        if account.inputs_done == account.inputs:
            return RunEnding(outcome="completed")
        if self._ending is not None:
            return self._ending
        for each in endings:
            if each.is_error:
                return RunEnding(outcome="failed", reason=each.reason)
        for each in endings:
            if each.outcome in ("stopped", "interrupted"):
                return RunEnding(outcome="stopped", reason=each.reason, limit=each.limit)
        counts = Counter(each.outcome for each in unsolved)
        first = f"; input {unsolved[0].input}: {unsolved[0].reason}" if unsolved else ""
        return ending_of(account.inputs, account.inputs_done, {state: counts[state] for state in UNSOLVED}, first)


def _account_of(journal: Path) -> Account:
    if holds_nothing(journal):
        return Account()
    with open_run(journal) as reader:
        return reader.account()
