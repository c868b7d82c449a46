"""Chains: the parts of the work on a `ChainTask`, for strategies to combine.

`Chain` asks, holds and commits the steps of one input. There are three ways to walk them: `step_by_step` in order,
`microagents.strategies.speculation` in order with guesses, and `microagents.strategies.known_inputs` side by side.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import NoneType
from typing import Any

import msgspec
from msgspec import Struct, structs

from microagents.actors import G
from microagents.chat import Prompt, Sampling, decoder_of
from microagents.conductor import Conductor
from microagents.durable import Resolution, Work, encode_state
from microagents.elections.election import ESCALATED, Ballot, Decision, ElectionId, Question, Verdict
from microagents.errors import InvalidDefinition, InvalidUsage, TaskFailed
from microagents.journal.messages import Recall
from microagents.task import ChainTask, chain_types
from microagents.user_code import called, mistyped

MAX_TIMES_LONGER, MAX_MORE_STEPS = 10, 100
"""A chain that takes so many times its number of steps, and so many more, is endless."""
ChainWork = Work[ChainTask[Any, Any], Any]


class Step(Struct, frozen=True, kw_only=True):
    """A step of a chain, asked in a given state."""

    number: int
    """Counted from 0."""
    state: Any
    election: ElectionId
    question: Question


class Chain:
    """The chain of one input.

    Args:
        work: the work on the input.
        max_draws: cap of each step's election.
        hedge: number of draws in flight beyond those that a followed step's decision needs.
        sampling: temperatures and limits of its draws; by default the task's.
    """

    def __init__(self, work: ChainWork, *, max_draws: int, hedge: int = 0, sampling: Sampling | None = None) -> None:
        self.work = work
        self.task = work.task
        self.max_draws = max_draws
        self.sampling = sampling
        self._hedge = hedge
        self.state_type, self.reply_type = chain_types(type(work.task))
        self._most_steps: int | None = None
        """Number of steps at which the chain counts as endless; None where its own number is unknown."""
        self._first = 0
        """Number of the step at which this sitting resumes the chain."""
        state: Any = self.state_type
        self._state: Any = state if isinstance(state, type) else object

    # The task's methods. The number of a step names it in errors; it enters no question.

    def start(self) -> Any:
        """The initial state."""
        return called(self.task.start, gives=self._state)

    def steps(self) -> int | None:
        """Number of steps; None if it is unknown."""
        steps: int | None = called(self.task.steps, gives=(int, NoneType))
        return steps

    def is_done(self, state: Any, number: int) -> bool:
        """Whether a state is the last."""
        done: bool = called(self.task.done, state, gives=bool, at=number)
        return done

    def next_state(self, state: Any, reply: Any, number: int) -> Any:
        """The state that a reply leads to."""
        return called(self.task.advance, state, reply, gives=self._state, at=number)

    def advance(self, step: Step, reply: Any) -> Any:
        """The state after a step.

        Raises:
            TaskFailed: the task changed the state that it was given. After a guess, the decided reply would lead on from another state.
        """
        state = self.next_state(step.state, reply, step.number)
        if encode_state(step.state) != step.question.state:
            raise TaskFailed(
                f"{type(self.task).__name__}.advance",
                f"changed the state that it was given at step {step.number}; return a new state, and copy the lists and dicts in it",
            )
        return state

    def oracle(self, state: Any, number: int) -> Any:
        """The right reply to a step; None if code cannot know it."""
        return called(self.task.oracle, state, gives=(self.reply_type, NoneType), at=number)

    def correct(self, state: Any, reply: Any, number: int) -> bool | None:
        """Whether a reply is right; None if code cannot know it."""
        right: bool | None = called(self.task.correct, state, reply, gives=(bool, NoneType), at=number)
        return right

    def result(self, state: Any) -> object:
        """The result of the work."""
        result = called(self.task.result, state)
        try:
            msgspec.json.encode(result)
        except (TypeError, ValueError) as error:
            raise mistyped(self.task.result, result, f"JSON-like values or a struct ({error})") from None
        return result

    # The parts of the work.

    def step(self, number: int, state: Any) -> Step:
        """Build the step with this number in this state.

        Raises:
            TaskFailed: the chain has gone on far beyond its number of steps.
        """
        if self._most_steps is not None and number >= self._most_steps:
            failure = f"is False after {number:,} steps, where {type(self.task).__name__}.steps gives {self.task.steps():,}"
            raise TaskFailed(f"{type(self.task).__name__}.done", f"{failure}; perhaps advance leads to the same state again")
        asked = called(self.task.prompt, state, gives=Prompt, at=number)
        question = self.work.question(asked, self.reply_type, max_draws=self.max_draws, sampling=self.sampling, state=state)
        return Step(number=number, state=state, election=self.work.election_id(f"step/{number}", question), question=question)

    async def take_up(self) -> tuple[Any, int]:
        """Resume from the checkpoint, or begin; returns the state and the number of steps that led to it.

        Raises:
            InvalidUsage: the checkpoint names another decision than the journal has.
            InvalidDefinition: a state cannot be read back from JSON.
        """
        state, self._first = await self._resume()
        total = self.steps()
        # Wrong decisions may make a chain longer, but one that never ends would buy calls for ever.
        self._most_steps = None if total is None else MAX_TIMES_LONGER * total + MAX_MORE_STEPS
        self.work.progress(self._first, total)
        return state, self._first

    async def hold(self, step: Step) -> Verdict:
        """The recorded verdict of a step, or that of an election held now."""
        return await self._recall(step) or await self.work.hold(step.election, step.question)

    def follow(self, step: Step) -> AsyncGenerator[Ballot | Verdict]:
        """The same as `hold`, item by item: valid ballots as they arrive, then the verdict."""
        return self._recall_or_follow(step) if step.number == self._first else self._follow(step)

    async def commit(self, step: Step, verdict: Verdict, *, checkpoint: bool = True) -> Decision[Any]:
        """Settle and record a verdict; returns its decision.

        With ``checkpoint``, a resumed run continues after this step. A plurality (``argmax``) decides no step: it counts as undecided.
        """
        work, election = self.work, step.election
        if verdict.outcome == "argmax":
            verdict = structs.replace(verdict, outcome="undecided")
        decided = verdict.outcome == "decided"
        resolution = Resolution(id=election, verdict=verdict) if decided else await work.settle(election, step.question, verdict)
        done = step.number + 1 if checkpoint else None
        return work.commit(
            resolution, self.reply_type, lambda reply: self.correct(step.state, reply, step.number), done=done, state=step.question.state
        )

    async def _recall_or_follow(self, step: Step) -> AsyncGenerator[Ballot | Verdict]:
        recalled = await self._recall(step)
        if recalled is not None:
            yield recalled
            return
        async with aclosing(self._follow(step)) as items:
            async for item in items:
                yield item

    def _follow(self, step: Step) -> AsyncGenerator[Ballot | Verdict]:
        return self.work.follow(step.election, step.question, hedge=self._hedge)

    async def _recall(self, step: Step) -> Verdict | None:
        # Of the steps still to do, only the first can have a record: it ended undecided, and a person may have decided it since.
        return await self.work.recall(step.election, step.question) if step.number == self._first else None

    async def _resume(self) -> tuple[Any, int]:
        checkpoint = self.work.checkpoint
        if checkpoint is None:
            self._check_readable(self.start())
            return self.start(), 0
        last = self.step(checkpoint.done - 1, self._read_state(checkpoint.state))
        if await self._decided_at(last) != checkpoint.value:
            raise InvalidUsage(
                f"the journal contradicts itself: its checkpoint does not match the decision of step {last.number}; it was left as it is; "
                "begin another run"
            )
        return self.advance(last, decoder_of(self.reply_type).decode(checkpoint.value)), checkpoint.done

    async def _decided_at(self, step: Step) -> bytes | None:
        """The recorded decision of a step."""
        recalled = await self.work.recalled(step.election)
        if recalled is None or recalled.value is None:  # the step was undecided, and another model decided it
            recalled = await self.work.role.ask(Recall(path=step.election.path + ESCALATED))
        return None if recalled is None else recalled.value

    def _read_state(self, state: bytes) -> Any:
        try:
            return msgspec.json.decode(state, type=self.state_type)
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            name = self.state_type.__qualname__
            raise InvalidDefinition(
                f"a {name} cannot be read back from the journal: {error}; give its fields types that JSON has"
            ) from None

    def _check_readable(self, state: Struct) -> None:
        # Without this check, a state that cannot be read back would fail only when a long run is resumed.
        written = encode_state(state)
        if encode_state(self._read_state(written)) != written:
            raise InvalidDefinition(f"{state!r:.200} is another state when it is read back from JSON; give its fields types that JSON has")


async def step_by_step(chain: Chain) -> object:
    """Walk a chain, and ask each step only after the one before is decided; returns the task's result."""
    total = chain.steps()
    state, done = await chain.take_up()
    while not chain.is_done(state, done):
        step = chain.step(done, state)
        decision = await chain.commit(step, await chain.hold(step))
        state, done = chain.advance(step, decision.require()), done + 1
        chain.work.progress(done, total)
    return chain.result(state)


class ChainConductor(Conductor[ChainTask[Any, Any], G]):
    """The base class of conductors that walk chains. `microagents step` works with every strategy that has such a conductor."""

    def chain(self, work: Work[ChainTask[Any, Any], G]) -> Chain:
        """The chain of one input, with the strategy's ``max_draws`` as the cap of each election, and its ``hedge``."""
        strategy = work.strategy
        return Chain(work, max_draws=getattr(strategy, "max_draws", 100), hedge=getattr(strategy, "hedge", 0))

    async def conduct(self, work: Work[ChainTask[Any, Any], G]) -> object:
        """Walk the chain step by step."""
        return await step_by_step(self.chain(work))
