"""Inputs of a run: the only one, or many that are done side by side up to a bound. The failure of one of many stops no other."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import structs

from microagents.base.aio import TaskScope
from microagents.base.errors import (
    Aborted,
    JournalMismatch,
    MicroagentsError,
    ModelUnavailable,
    NoHandler,
    NotSent,
    Parked,
    PeerLost,
    Refused,
    Stopped,
    TakenOver,
    Undecided,
)
from microagents.base.user_code import called
from microagents.elections.election import input_of
from microagents.journal.ending import RunEnding
from microagents.journal.messages import (
    ENDED_AS,
    Account,
    InputEnding,
    Recall,
    Record,
    Report,
    RunOutcome,
)
from microagents.journal.reading import Reader
from microagents.roles.executor import EndEffects
from microagents.roles.solver.solver import AwaitBatch
from microagents.runs.driver.backlog import Backlog
from microagents.runs.driver.shared_questions import SharedQuestions, may_share, shared_ending
from microagents.runs.plan import RunPlan
from microagents.runs.task_list import numbers_of
from microagents.runtimes.dispatcher import RoleMessenger
from microagents.work.conductor import Conduct

OnEnding = Callable[[InputEnding], None]
"""Gets the ending of one of many inputs."""
MAX_OPEN = 1024
"""Maximum number of inputs that are open at a time, in a run without a bound of calls in flight."""
MAX_OPEN_IN_BATCHES = 10_000
"""The same if calls go in batches for which inputs are not parked: the draws of all open inputs go out together."""
Unsolved = Literal["undecided", "failed", "refused"]
UNSOLVED: tuple[Unsolved, ...] = ("undecided", "failed", "refused")
"""Outcomes of inputs without a result. The run has the first that one of its inputs has."""
REFUSES_ALL = (401, 402, 403, 404)
"""HTTP statuses by which a provider refuses the key or the model, and thereby every call."""


class Batch:
    """Inputs of a run: the ones not completed yet, or ``only`` some, completed ones included.

    Without a journal their endings stay in memory. ``on_ending`` gets each ending once it is durable, in the order of endings.
    """

    def __init__(
        self,
        plan: RunPlan,
        journal: Path | None,
        *,
        only: Sequence[int] | None,
        on_ending: OnEnding | None,
    ) -> None:
        self._journal = journal
        self._total = len(plan.tasks)
        self._numbers = numbers_of(plan.tasks)
        self._run_id = plan.settings["run_id"]
        self._only = only
        context = plan.context()
        most = MAX_OPEN_IN_BATCHES if context.is_in_batches and not context.can_park else MAX_OPEN
        self._max_open = plan.settings["concurrency"] or most
        self._passes_undecided = plan.strategy.passes_undecided
        self._on_ending = on_ending
        self._open: defaultdict[int, dict[int, None]] = defaultdict(dict)
        """Open inputs by lane: by the number of the conductor's replica."""
        self._endings: dict[int, InputEnding] = {}
        """Endings by input, of a run without a journal."""
        self._shared = SharedQuestions(plan.tasks) if only is None and may_share(plan) else None
        """Rows that ask the same question; None if each is asked."""
        self._not_accepted: dict[int, str] = {}
        """Why requests of inputs were not accepted, by input: each input's own fault, unless no request of the run was accepted."""

    async def conduct(self, messenger: RoleMessenger) -> None:
        """Conduct each input to its end. The failure of one stops no other."""
        ended = (await messenger.ask(Recall())).ended
        if self._only is None:
            wanted = self._left_of(ended)
        else:
            wanted = iter(sorted({*self._only}))
        await self._conduct_each(messenger, wanted)
        while going_on := await _inputs_that_go_on(messenger):
            await self._conduct_each(messenger, iter(going_on), recalls=True)

    def _left_of(self, ended: bytes | bytearray) -> Iterator[int]:
        """Yield the inputs that are not completed, and take note of the questions of all."""
        if all(ENDED_AS[code] == "completed" for code in ended):
            return
        for number in self._numbers:
            if self._shared is not None:
                self._shared.note(number)
            if ENDED_AS[ended[number]] != "completed":
                yield number

    async def _conduct_each(self, messenger: RoleMessenger, remaining: Iterator[int], *, recalls: bool = False) -> None:
        scope, backlog = TaskScope(), Backlog(remaining)
        try:
            open_at_once = min(self._max_open, self._total)
            conductors = [
                scope.start(self._conduct_remaining(messenger, backlog, recalls)) for _ in range(open_at_once)
            ]
            await asyncio.gather(*conductors)
        finally:
            await scope.close()

    async def _conduct_remaining(self, messenger: RoleMessenger, backlog: Backlog, recalls: bool) -> None:  # noqa: FBT001
        async for number, lane_of_results in backlog.taken():
            is_new, lane = lane_of_results is None, lane_of_results
            if is_new and await self._is_shared(messenger, number):
                backlog.end()
                continue
            if lane is None:
                # The lane with fewest inputs takes the next: none waits behind a slow input, and a lane that joins is filled.
                lane = min(range(messenger.replicas(Conduct)), key=lambda each: len(self._open[each]))
            try:
                await self._conduct_input(messenger, lane, Conduct(input=number, recalls=recalls or not is_new))
            except Parked as parked:
                (batch,) = parked.args
                if backlog.park(number, lane, batch):
                    await _end_of_batch(messenger, lane, batch)
                    backlog.end_batch(lane, batch)
            else:
                backlog.end()

    async def _is_shared(self, messenger: RoleMessenger, number: int) -> bool:
        """Whether a row ends as an earlier one, which asks the same question."""
        if self._shared is None:
            return False
        first = self._shared.first_of(number)
        if first is None:
            self._shared.reopen(number)
            return False
        await self._end_like(messenger, first, number)
        return True

    async def _conduct_input(self, messenger: RoleMessenger, lane: int, request: Conduct) -> None:
        """Conduct an input on a lane to its end.

        Raises:
            Parked: it waits for a batch.
        """
        number = request.input
        self._open[lane][number] = None
        try:
            ending = await _conduct_to_ending(messenger, self._run_id, lane, request)
        except Refused as error:
            ending = InputEnding(input=number, outcome="refused", reason=error.in_run(self._run_id))
            if error.may_concern_all:
                self._not_accepted[number] = str(error.of_all)
        except PeerLost as error:
            raise error.at_work_on(list(self._open[lane])) from None
        finally:
            del self._open[lane][number]
        await self._end(messenger, ending)
        await self._end_equals(messenger, ending)

    async def _end(self, messenger: RoleMessenger, ending: InputEnding) -> None:
        """Record an ending, as undecided if an election of the input is; then report it to the caller."""
        if self._passes_undecided and ending.outcome == "completed":
            account = await messenger.ask(Report(when="written"))
            paths = [path for path in account.undecided_at if input_of(path) == ending.input]
            if paths:
                ending = structs.replace(ending, outcome="undecided", reason=undecided_elections(paths))
        self._record(messenger, ending)
        if self._on_ending is not None:
            await messenger.ask(Report(when="durable"))
            called(self._on_ending, ending)

    async def _end_like(self, messenger: RoleMessenger, first: int, number: int) -> None:
        """End a row as an earlier one that asks the same question; if that is still open, once it ends."""
        assert self._shared is not None
        self._shared.wait(first, number)
        if any(first in lane for lane in self._open.values()):
            return
        ending = await self._ending(messenger, first)
        if ending is not None:
            await self._end_equals(messenger, ending)

    async def _end_equals(self, messenger: RoleMessenger, ending: InputEnding) -> None:
        """End the rows that wait for the ending of this one."""
        if self._shared is not None:
            for other in self._shared.take(ending):
                await self._end(messenger, shared_ending(ending, other))

    def _record(self, messenger: RoleMessenger, ending: InputEnding) -> None:
        messenger.tell(Record.of(ending))
        if self._journal is None:
            self._endings[ending.input] = ending

    def endings(self, journal: Path | None) -> Iterator[InputEnding]:
        """Yield the endings so far, in the order of inputs, from the journal once the run has closed it, or from its copy."""
        if journal is None:
            yield from (self._endings[number] for number in sorted(self._endings))
            return
        with Reader(journal) as reader:
            yield from reader.input_endings()

    async def ending(self, messenger: RoleMessenger, account: Account) -> RunEnding:
        """Return the ending of the run after its inputs were conducted."""
        if not account.valid:
            for number, reason in self._not_accepted.items():
                self._record(messenger, InputEnding(input=number, outcome="failed", reason=reason))
        # Not from the file: there the last endings may be missing until the next commit.
        ended = (await messenger.ask(Recall())).ended
        unsolved = [number for number, code in enumerate(ended) if ENDED_AS[code] in UNSOLVED]
        numbers = {state: ended.count(ENDED_AS.index(state)) for state in UNSOLVED}
        first = ""
        if unsolved:
            ending = await self._ending(messenger, unsolved[0])
            first = f"; input {unsolved[0]}: {None if ending is None else ending.reason}"
        return ending_of(self._total, account.inputs_done, numbers, first)

    async def _ending(self, messenger: RoleMessenger, number: int) -> InputEnding | None:
        if number in self._endings:
            return self._endings[number]
        recalled = await messenger.ask(Recall(path=str(number)))
        return recalled.ending


def ending_of(total: int, done: int, unsolved: Mapping[Unsolved, int], first: str) -> RunEnding:
    """Return the ending of a run on many inputs.

    Args:
        total: number of its inputs.
        done: number of completed ones.
        unsolved: numbers of inputs that ended otherwise, by their outcome.
        first: words on the first of these, behind a semicolon.
    """
    left = total - done - sum(unsolved.values())
    if not left and not any(unsolved.values()):
        return RunEnding(outcome="completed")
    counts = ", ".join(f"{count:,} {state}" for state, count in (*unsolved.items(), ("not done yet", left)) if count)
    others = ", the others are completed" if done else ""
    reason = f"of {total:,} inputs {counts}{others}{first}; resume the run to do what is not completed"
    outcome: RunOutcome = next((state for state in UNSOLVED if unsolved.get(state)), "stopped")
    return RunEnding(outcome=outcome, reason=reason)


async def _conduct_to_ending(messenger: RoleMessenger, run_id: str, lane: int, request: Conduct) -> InputEnding:
    """Conduct an input. Its failure becomes an ending, unless it concerns the whole run."""
    number = request.input
    try:
        result = await messenger.ask_replica(lane, request)
    except (Aborted, Parked, Refused, Stopped, TakenOver, JournalMismatch, NoHandler, PeerLost):
        raise
    except Undecided as error:
        return InputEnding(input=number, outcome="undecided", reason=error.in_run(run_id))
    except MicroagentsError as error:
        if isinstance(error, ModelUnavailable) and error.status in REFUSES_ALL:
            raise
        return InputEnding(input=number, outcome="failed", reason=str(error), traceback=error.traceback)
    return InputEnding(input=number, outcome="completed", result=result)


async def _end_of_batch(messenger: RoleMessenger, lane: int, batch: str) -> None:
    """Wait until a batch of a lane has ended."""
    try:
        await messenger.ask_replica(lane, AwaitBatch(name=batch))
    except NotSent:  # the run is ending, and the keeper knows why
        await messenger.ask(Report(when="stopped"))


def undecided_elections(paths: Sequence[str]) -> str:
    """Return the reason of an undecided run or input whose work continued to a result."""
    return f"{len(paths)} elections are undecided, the first at {paths[0]}"


async def conduct_single_input(messenger: RoleMessenger) -> str:
    """Conduct the only input to its end; returns its result as JSON."""
    recalls = False
    while True:
        try:
            result = await messenger.ask(Conduct(input=0, recalls=recalls))
        except Undecided:
            if not await _inputs_that_go_on(messenger):
                raise
        else:
            if not await _decided_inputs(messenger):
                return result
        recalls = True  # what was unknown is known meanwhile, so the work continues from there


async def _inputs_that_go_on(messenger: RoleMessenger) -> list[int]:
    """Wait for the effects under way; returns the inputs whose work can continue, since a call's outcome or a person's words are known."""
    ended = await _end_effects(messenger)
    return sorted({*ended, *await _decided_inputs(messenger)})


async def _decided_inputs(messenger: RoleMessenger) -> tuple[int, ...]:
    return (await messenger.ask(Recall(with_decided_inputs=True))).decided_inputs


async def leave_effects(messenger: RoleMessenger) -> None:
    """Wait for the effects under way at the end of a run, whatever has ended it."""
    with suppress(MicroagentsError):  # a lost executor, or a journal that cannot be written, has ended the run already
        await _end_effects(messenger)


async def _end_effects(messenger: RoleMessenger) -> list[int]:
    scope = TaskScope()
    try:
        executors = range(messenger.replicas(EndEffects))
        ending = [scope.start(messenger.ask_replica(each, EndEffects())) for each in executors]
        ended = await asyncio.gather(*ending)
    finally:
        await scope.close()
    return [each for inputs in ended for each in inputs]
