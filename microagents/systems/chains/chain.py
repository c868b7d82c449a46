"""Chains: the parts of the work on a `ChainTask`, for strategies to combine.

`Chain` asks, holds and commits the steps of one input. There are three ways to walk them: `step_by_step` in order,
`microagents.systems.chains.speculation` in order with guesses, and `microagents.systems.chains.known_inputs` side by side.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing
from types import NoneType
from typing import Any, Protocol

from msgspec import Raw, Struct, structs

from microagents.actors.role import G, Strategy
from microagents.base.errors import InvalidDefinition, InvalidUsage, TaskFailed
from microagents.base.plain_values import encode, plain
from microagents.base.round_trips import NotGivenBack, RoundTrip, lost_part
from microagents.base.user_code import called, mistyped, unkept
from microagents.elections.election import (
    ESCALATED,
    OPEN_OUTCOMES,
    Ballot,
    Decision,
    ElectionId,
    Flagged,
    Question,
    Verdict,
)
from microagents.elections.rules import Rule
from microagents.journal.messages import RecordDecision
from microagents.replies.chat import Prompt, Sampling
from microagents.replies.model_replies import as_reply
from microagents.replies.reply_forms import decoder_of
from microagents.replies.rollouts import MAX_OUTPUT_TOKENS, Rollout, rollout_of
from microagents.task import ChainTask, chain_types, state_class
from microagents.tools.effect_keys import keyed_by
from microagents.work.conductor import Conductor
from microagents.work.durable import Work
from microagents.work.elections import decision_of

MAX_TIMES_LONGER, MAX_MORE_STEPS = 10, 100
"""A chain is endless once it has taken this multiple of its number of steps, plus this number."""
MAX_PAST = 1_000
"""Number of the last steps that are kept for a ladder; earlier ones would be read from the journal."""
ChainWork = Work[ChainTask, G]


class ChainStep(Struct, frozen=True, kw_only=True):
    """A step of a chain, asked in a given state."""

    number: int
    """Counted from 0."""
    state: Any
    election: ElectionId
    question: Question


class Past(Struct, frozen=True, kw_only=True):
    """A step that the chain has gone on from."""

    number: int
    state: Any
    reply: Any
    """The reply that led on: the decided one, or the oracle's with known inputs."""


class Rung(Protocol):
    """A remedy for a step that its vote does not decide."""

    @property
    def name(self) -> str:
        """Its name in accounts, and the last part of the path of its election."""

    async def hold(self, chain: Chain, step: ChainStep, tried: Sequence[Verdict]) -> tuple[ElectionId, Verdict] | None:
        """Hold its election; None if it has nothing to ask. Only a verdict that is `decided` or `inferred` decides the step.

        ``tried`` are the verdicts of the step's vote and of the rungs before.
        """


class Chain:
    """Chain of one input. The cap of draws is by default the strategy's, and temperatures and limits are the task's."""

    def __init__(self, work: ChainWork, *, max_draws: int | None = None, sampling: Sampling | None = None) -> None:
        self.work = work
        self.task = work.task
        self.max_draws = work.strategy.draw_cap if max_draws is None else max_draws
        self.sampling = sampling
        self._strategy: Strategy = work.strategy
        self._rungs: Sequence[Rung] = work.strategy.rungs
        self._past: dict[int, Past] = {}
        """The last steps by number."""
        self.rollouts: dict[tuple[int, str], Rollout | Flagged] = {}
        """Rollouts that later steps may count as well, by the number of their first step and their place."""
        self.total: int | None = called(self.task.steps, gives=(int, NoneType))
        """Number of steps; None if it is unknown."""
        if self.total is not None and self.total < 0:
            raise mistyped(self.task.steps, self.total, "a whole number from 0 on or None")
        self.state_type, self.reply_type = chain_types(type(work.task))[0], work.task.reply_type()
        self._most_steps: int | None = None
        """Number of steps at which the chain counts as endless; None if its own number is unknown."""
        self._first = 0
        """Number of the step at which this sitting resumes the chain. Of those still to do, only this one can have a record: it ended
        undecided, and a person may have decided it since."""
        self._state = state_class(type(work.task))
        self._kept: RoundTrip[Any] = RoundTrip(self.state_type, "state")

    # The task's methods. The number of a step names it in errors; it enters no question.

    def start(self) -> Any:
        """Return the initial state."""
        return called(self.task.start, gives=self._state)

    def asked(self, state: Any, number: int) -> Prompt:
        """Return the prompt of a step."""
        asked: Prompt = called(self.task.prompt, state, gives=Prompt, at=number)
        return asked

    def is_done(self, state: Any, number: int) -> bool:
        """Whether a state is the last."""
        return bool(called(self.task.done, state, gives=bool, at=number))

    def next_state(self, state: Any, reply: Any, number: int) -> Any:
        """Return the state that a reply leads to."""
        return called(self.task.advance, state, reply, gives=self._state, at=number)

    def advance(self, step: ChainStep, reply: Any) -> Any:
        """Return the state after a step.

        Raises:
            TaskFailed: the task changed the state that it was given. After a guess, the decided reply would lead on from another state.
        """
        with keyed_by(self.work.role.context.run_id, step.election.path, reply):
            state = self.next_state(step.state, reply, step.number)
        if self._kept.encode(step.state) != step.question.state:
            raise TaskFailed(
                f"{type(self.task).__name__}.advance",
                f"changed the state that it was given at step {step.number}; return a new state, and copy the lists and dicts in it",
            )
        return state

    def oracle(self, state: Any, number: int) -> Any:
        """Return the right reply to a step; None if code cannot know it."""
        return called(self.task.oracle, state, gives=(self.reply_type, NoneType), at=number)

    def correct(self, state: Any, reply: Any, number: int) -> bool | None:
        """Whether a reply is right; None if code cannot know it."""
        right: bool | None = called(self.task.correct, state, reply, gives=(bool, NoneType), at=number)
        return right

    def right(self, state: Any, number: int) -> Any:
        """Return the right reply to a step as JSON-like values, of a row the fields that code knows; None if it knows none."""
        reply = self.oracle(state, number)
        if reply is not None:
            return plain(as_reply(reply))
        return plain(called(self.task.right_fields, state, gives=dict, at=number)) or None

    def result(self, state: Any) -> object:
        """Return the result of the work."""
        result = called(self.task.result, state)
        if isinstance(result, Iterator):  # it can be read once, and is read several times
            result = list(result)
        try:
            encode(result)
        except (TypeError, ValueError) as error:
            raise mistyped(self.task.result, result, f"JSON-like values or a struct ({error})") from None
        if (lost := lost_part(result, "result", encode)) is not None:
            raise unkept(self.task.result, lost)
        return result

    # The parts of the work.

    def step(self, number: int, state: Any, rule: Rule | None = None) -> ChainStep:
        """Build the step with this number in this state, decided by a rule or by that of the strategy.

        The step is asked, and the chain goes on, in the state as the journal gives it back: a resumed chain does the same.

        Raises:
            TaskFailed: the chain has gone on far beyond its number of steps, or the journal cannot give the state back.
        """
        if self._most_steps is not None and number >= self._most_steps:
            failure = (
                f"is False after {number:,} steps, where {type(self.task).__name__}.steps gives {self.total or 0:,}"
            )
            raise TaskFailed(
                f"{type(self.task).__name__}.done", f"{failure}; perhaps advance leads to the same state again"
            )
        written, state = self._read_back(state, number)
        asked = self.asked(state, number)
        rule = rule or self._strategy.rule_of(self.task, number, self.total)
        question = self.work.question(
            asked, self.reply_type, rule=rule, max_draws=self.max_draws, sampling=self.sampling, state=Raw(written)
        )
        return ChainStep(
            number=number, state=state, election=self.work.election_id(f"step/{number}", question), question=question
        )

    async def take_up(self) -> tuple[Any, int]:
        """Resume from the checkpoint, or begin; returns the state and the number of steps that led to it.

        Raises:
            InvalidUsage: the checkpoint names another decision than the journal has.
            InvalidDefinition: the recorded state is not a state of the task.
        """
        last, total = await self.last_step(), self.total
        state = self.start() if last is None else self.advance(*last)
        # Wrong decisions may make a chain longer, but one that never ends would buy calls for ever.
        self._most_steps = None if total is None else MAX_TIMES_LONGER * total + MAX_MORE_STEPS
        self.work.progress(self._first, total)
        return state, self._first

    async def last_step(self) -> tuple[ChainStep, Any] | None:
        """Return the last step of earlier sittings and its decided reply, from the checkpoint; None before the first.

        Raises:
            InvalidUsage: the checkpoint names another decision than the journal has.
        """
        checkpoint = self.work.checkpoint
        if checkpoint is None:
            return None
        self._first = checkpoint.done
        last = self.step(checkpoint.done - 1, self.read_state(checkpoint.state))
        if await self._decided_at(last) != checkpoint.value:
            raise InvalidUsage(
                f"the journal contradicts itself: its checkpoint does not match the decision of step {last.number}; it was left as it is; "
                "begin another run"
            )
        return last, decoder_of(self.reply_type).decode(checkpoint.value)

    def hold(self, step: ChainStep) -> Coroutine[Any, Any, Verdict]:
        """Return the recorded verdict of a step, or hold its election now."""
        return self.work.hold(step.election, step.question, recalls=self._may_be_recorded(step))

    def follow(self, step: ChainStep) -> AsyncGenerator[Ballot | Verdict]:
        """Yield the same as `hold`, item by item: valid ballots as they arrive, then the verdict."""
        if self._may_be_recorded(step):
            return self._recall_or_follow(step)
        return self._follow(step)

    def _may_be_recorded(self, step: ChainStep) -> bool:
        """Whether the journal may have a step: the one at which the chain resumes, and any if work was handed off."""
        return bool(self.work.handed) or step.number == self._first

    async def commit(
        self,
        step: ChainStep,
        verdict: Verdict,
        *,
        checkpoint: bool = True,
        correct: Callable[[Any], bool | None] | None = None,
    ) -> Decision[Any]:
        """Settle and record a verdict; returns its decision.

        With ``checkpoint``, a resumed run continues after this step. ``correct`` judges the decision, by default as the task's oracle does.
        """
        work, election = self.work, step.election
        verdict = self.as_taken(verdict)
        tried: list[tuple[ElectionId, Verdict]] = []
        resolution = (
            RecordDecision(id=election, verdict=verdict)
            if verdict.outcome == "decided"
            else await self.climb(step, verdict, tried)
        )
        if resolution is None:
            resolution = await work.settle(election, step.question, verdict)
            resolution = structs.replace(resolution, verdict=self.as_taken(resolution.verdict))
            is_open = resolution.verdict.outcome in OPEN_OUTCOMES
            for place, each in tried[1:]:
                work.leave(place, each, rung=place.path.rpartition("/")[2] if is_open else None)
        done = step.number + 1 if checkpoint else None
        decision = work.commit(
            resolution,
            self.reply_type,
            correct or (lambda reply: self.correct(step.state, reply, step.number)),
            done=done,
            state=step.question.state,
        )
        if decision.decided or len(tried) <= 1:
            return decision
        rungs = [decision_of(place.path, each, self.reply_type) for place, each in tried[1:]]
        return structs.replace(decision, rungs=tuple(rungs))

    def as_taken(self, verdict: Verdict) -> Verdict:
        """A verdict as the chain takes it: a plurality (``argmax``) decides no step."""
        if verdict.outcome == "argmax":
            return structs.replace(verdict, outcome="undecided")
        return verdict

    async def climb(
        self, step: ChainStep, verdict: Verdict, tried: list[tuple[ElectionId, Verdict]]
    ) -> RecordDecision | None:
        """Try the rungs of the ladder; None if none decides the step. Those without a decision are added to ``tried``."""
        if verdict.outcome in ("leader", "person"):
            return None
        tried.append((step.election, verdict))
        for rung in self._rungs:
            resolutions = [each for _, each in tried]
            held = _checked(rung, await rung.hold(self, step, resolutions))
            if held is not None and held[1].outcome in ("decided", "inferred"):
                for each in tried:
                    self.work.leave(*each)
                return RecordDecision(id=held[0], verdict=held[1], rung=rung.name)
            if held is not None:
                tried.append(held)
        return None

    async def rollout(
        self,
        at: str,
        asked: Prompt,
        horizon: int,
        *,
        first: bool = False,
        correct: Callable[[Rollout], bool | None] = lambda _: None,
    ) -> Rollout | Flagged:
        """Draw one reply with several steps, or its red flag. ``correct`` judges it for the account of errors, if code can.

        Only the ``first`` one of a question has the temperature of a first sample: others would repeat it.

        The length flag does not apply: a length that is long for one step is not for many. The provider's limit grows with the steps.
        """
        most = min(MAX_OUTPUT_TOKENS, horizon * self.task.sampling.max_output_tokens)
        sampling = structs.replace(self.sampling or self.task.sampling, max_output_tokens=most, flag_above_tokens=None)
        if not first:
            sampling = structs.replace(sampling, first_temperature=sampling.temperature)
        return await self.work.draw(at, asked, rollout_of(self.reply_type, horizon), sampling=sampling, correct=correct)

    # What it has gone on from.

    def go_on(self, step: ChainStep | Past, reply: Any) -> None:
        """Note that the chain continues from a step with this reply."""
        if self._rungs:
            self._past[step.number] = Past(number=step.number, state=step.state, reply=reply)
            self._past.pop(step.number - MAX_PAST, None)

    async def before(self, step: ChainStep, count: int) -> list[Past]:
        """Up to ``count`` steps before a step, the last first. Steps of an earlier sitting are read from the journal."""
        numbers = range(step.number - 1, max(-1, step.number - 1 - count), -1)
        if any(number not in self._past for number in numbers):
            state = self.start()
            for number in range(step.number):
                state = self._read_back(state, number)[1]
                value = await self._value_at(f"step/{number}")
                if value is None:
                    raise InvalidUsage(f"the decision of step {number} is not in the journal; begin another run")
                past = Past(number=number, state=state, reply=decoder_of(self.reply_type).decode(value))
                if number in numbers:
                    self._past.setdefault(number, past)
                state = self.next_state(state, past.reply, number)
        return [self._past[number] for number in numbers]

    async def _recall_or_follow(self, step: ChainStep) -> AsyncGenerator[Ballot | Verdict]:
        recalled = await self.work.recall(step.election, step.question)
        if recalled is not None:
            yield recalled
            return
        async with aclosing(self._follow(step)) as items:
            async for item in items:
                yield item

    def _follow(self, step: ChainStep) -> AsyncGenerator[Ballot | Verdict]:
        return self.work.follow(step.election, step.question, hedge=self._strategy.extra_draws)

    async def _decided_at(self, step: ChainStep) -> bytes | None:
        """Return the recorded decision of a step."""
        await self.work.recorded(step.election)  # refuses another question
        return await self._value_at(f"step/{step.number}")

    async def _value_at(self, at: str) -> bytes | None:
        """Return the recorded decision of a step, by its vote, by a rung, or by another model if it was undecided."""
        for place in (at, *(f"{at}/{rung.name}" for rung in self._rungs), at + ESCALATED):
            recalled = await self.work.recorded(place)
            if recalled is not None and recalled.is_decision:
                return recalled.value
        return None

    def read_state(self, state: bytes) -> Any:
        """Read a state from JSON.

        Raises:
            InvalidDefinition: it is not a state of the task.
        """
        try:
            return self._kept.decode(state)
        except NotGivenBack as error:
            raise InvalidDefinition(f"{error}; use field types that JSON can hold") from None

    def _read_back(self, state: Any, number: int) -> tuple[bytes, Any]:
        """Return a state as the journal keeps it, and as it gives it back. Nothing is bought in a state that a resumed chain would lack."""
        try:
            return self._kept(state)
        except NotGivenBack as error:
            method = self.task.advance if number else self.task.start
            raise unkept(method, str(error), number) from None


def _checked(rung: Rung, held: object) -> tuple[ElectionId, Verdict] | None:
    match held:
        case None:
            return None
        case (ElectionId() as election, Verdict() as verdict):
            return election, verdict
    raise mistyped(rung.hold, held, "the id of its election and the verdict, or None")


async def step_by_step(chain: Chain) -> object:
    """Walk a chain, and ask each step only after the one before is decided; returns the task's result."""
    total = chain.total
    state, done = await chain.take_up()
    while not chain.is_done(state, done):
        step = chain.step(done, state)
        resolution = await chain.hold(step)
        decision = await chain.commit(step, resolution)
        reply = decision.require()
        chain.go_on(step, reply)
        state, done = chain.advance(step, reply), done + 1
        chain.work.progress(done, total)
    return chain.result(state)


class ChainConductor(Conductor[ChainTask, G]):
    """Base class of conductors that walk chains. `try --one` works with every strategy that has such a conductor."""

    def chain(self, work: ChainWork[G]) -> Chain:
        """Return the chain of one input, as the strategy describes it."""
        return Chain(work)

    async def conduct(self, work: ChainWork[G]) -> object:
        """Walk the chain step by step."""
        return await step_by_step(self.chain(work))
