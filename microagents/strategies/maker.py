"""MAKER: every step of a chain is one election (arXiv 2511.09030, sections 3 and 4)."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from contextlib import aclosing
from functools import cached_property
from typing import Annotated, Any, Literal, Self

import msgspec
import structlog
from msgspec import Struct
from pydantic import Field, model_validator

from microagents.actors import Strategy
from microagents.aio import TaskScope, retrieve_exception
from microagents.chat import decoder_of
from microagents.durable import Conductor, Resolution, encode_state, no_verdict
from microagents.elections.election import ESCALATED, Ballot, Decision, ElectionId, Follow, Question, Verdict
from microagents.elections.rules import FirstTo, FirstToAheadBy, Rule
from microagents.errors import InvalidDefinition, InvalidUsage
from microagents.journal.messages import Recall
from microagents.strategies.speculation import OpenStep, Waste
from microagents.task import ChainTask, chain_types


class KnownInputs(Struct, frozen=True, kw_only=True):
    """What a run with known inputs shows: how elections ended, and how they came to an end (MAKER, figure 8)."""

    steps: int
    wrong: int
    undecided: int
    sampling_rounds: list[int]
    """How many steps are undecided after each round of samples, flagged ones included; the first item is before any (figure 8a)."""
    voting_rounds: list[int]
    """The same after each round of valid ballots (figure 8b)."""


class MakerConductor(Conductor[ChainTask[Any, Any], "Maker"]):
    """Walks the chain; each step's question is made from the state that the steps before it decided."""

    async def conduct(self) -> object:
        """The chain's result; with known inputs, how its elections went."""
        self._state_type, self._reply = chain_types(type(self.task))
        if self.context.settings["known_inputs"]:
            return await self._side_by_side()
        state, self._first = await self._taken_up()
        self.progress(self._first, self.task.steps())
        return await (self._guessing_ahead if self.context.settings["speculate"] else self._step_by_step)(state, self._first)

    async def _taken_up(self) -> tuple[Any, int]:
        """The state to go on from, and how many steps led there."""
        if self.reached is None:
            self._check_readable(self.task.start())
            return self.task.start(), 0
        before = self._read_state(self.reached.state)
        if await self._decided_at(self.reached.done - 1, before) != self.reached.value:
            raise InvalidUsage(
                f"the journal does not fit together: what step {self.reached.done - 1} decided is not where the run is to be taken up; it "
                "was left as it is; begin another run"
            )
        reply = decoder_of(self._reply).decode(self.reached.value)
        return self.task.advance(before, reply), self.reached.done

    async def _decided_at(self, step: int, state: Any) -> bytes | None:
        """What the journal says of a step that was asked in this state."""
        election, _ = self._question(step, state)
        recalled = await self.recalled(election.path, election.question_digest)
        if recalled is None or recalled.value is None:  # another model decided
            recalled = await self.ask(Recall(path=election.path + ESCALATED))
        return None if recalled is None else recalled.value

    def _read_state(self, state: bytes) -> Any:
        try:
            return msgspec.json.decode(state, type=self._state_type)
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            name = self._state_type.__qualname__
            raise InvalidDefinition(
                f"a {name} cannot be read back from the journal: {error}; give its fields types that JSON has"
            ) from None

    def _check_readable(self, state: Struct) -> None:
        """A state that cannot be read back would show only when a long run is taken up again."""
        written = encode_state(state)
        if encode_state(self._read_state(written)) != written:
            raise InvalidDefinition(f"{state!r:.200} is another state when it is read back from JSON; give its fields types that JSON has")

    async def _step_by_step(self, state: Any, step: int) -> object:
        task, total = self.task, self.task.steps()
        while not task.done(state):
            election, question = self._question(step, state)
            verdict = await self._recall_first(step, election, question) or await self.hold(election, question)
            step += 1
            state = task.advance(state, (await self._commit(election, question, verdict, step, state)).require())
            self.progress(step, total)
        return task.result(state)

    async def _guessing_ahead(self, state: Any, done: int) -> object:
        """Steps open on guesses, so that voting costs no waiting time; commits go in step order, each from the decided state."""
        task, total = self.task, self.task.steps()
        self._steps: deque[OpenStep] = deque()
        self._waste = Waste()
        self._scope = TaskScope()
        try:
            while not task.done(state):
                if not self._steps:  # nothing was guessed, or something wrong
                    self._open(done, state)
                step = self._steps[0]
                verdict = await step.held
                done += 1
                reply = (await self._commit(step.election, step.question, verdict, done, state)).require()
                state = self._after(step, reply)
                self._waste.used(len(verdict.ballots))
                self.progress(done, total)
                if self._steps:
                    self._extend(self._steps[-1])
            return task.result(state)
        finally:
            await self._scope.close()

    def _after(self, step: OpenStep, reply: Any) -> Any:
        """The state after the first open step; what was guessed otherwise is dropped."""
        self._steps.popleft()
        if self._steps and step.guess == reply:
            return self._steps[0].state
        state = self.task.advance(step.state, reply)
        if self._steps and (self.task.done(state) or self._question(step.number + 1, state)[0] != self._steps[0].election):
            self._drop(0)
        return state

    def _open(self, number: int, state: Struct) -> None:
        step = OpenStep(number, state, *self._question(number, state), self._reply)
        step.held = self._scope.start(self._follow(step))
        step.held.add_done_callback(retrieve_exception)
        self._steps.append(step)

    async def _follow(self, step: OpenStep) -> Verdict:
        recalled = await self._recall_first(step.number, step.election, step.question)
        if recalled is not None:
            return recalled
        async with aclosing(self.stream(Follow(id=step.election, question=step.question))) as items:
            async for item in items:
                if isinstance(item, Verdict):
                    return item
                if step.arrive(item) and step in self._steps:
                    self._drop(step.number + 1 - self._steps[0].number)
                    self._extend(step)
        raise no_verdict(step.election)

    async def _recall_first(self, number: int, election: ElectionId, question: Question) -> Verdict | None:
        """Only the step at which the chain is taken up may have ended already: undecided, or decided by a person since."""
        return await self.recall(election, question) if number == self._first else None

    def _extend(self, last: OpenStep) -> None:
        """Open the step after the last one, on the guess at its reply."""
        if last.guess is None or len(self._steps) >= self.strategy.ahead or self._waste.is_high:
            return
        try:
            state = self.task.advance(last.state, last.guess)
            if not self.task.done(state):
                self._open(last.number + 1, state)
        except Exception as error:  # noqa: BLE001 - a guess may lead where the task never goes: it counts only if the decision leads there
            structlog.get_logger().debug("a guess leads nowhere", step=last.number, error=repr(error))

    def _drop(self, first: int) -> None:
        """Cancel the open steps from a place on, first launched first."""
        dropped = [self._steps.pop() for _ in range(len(self._steps) - first)]
        for step in reversed(dropped):
            step.held.cancel()
            self._waste.wasted(max(step.arrived, step.question.rule.votes_needed(0, 0, 0)))

    async def _side_by_side(self) -> KnownInputs:
        """Every step's input is the oracle's, so that steps need not wait for each other; a window of them is open at a time."""
        task, state, total, launched = self.task, self.task.start(), self.task.steps(), 0
        open_steps: deque[tuple[ElectionId, Question, Struct, asyncio.Task[Verdict]]] = deque()
        curves = _Curves()
        scope = TaskScope()
        self.progress(0, total)
        try:
            while open_steps or not task.done(state):
                while len(open_steps) < self.strategy.window and not task.done(state):
                    election, question = self._question(launched, state)
                    open_steps.append((election, question, state, scope.start(self._recall_or_hold(election, question))))
                    state, launched = task.advance(state, self._known(state)), launched + 1
                election, question, before, held = open_steps.popleft()
                verdict = await held
                decision = await self._commit(election, question, verdict, None, before)
                curves.add(verdict, wrong=decision.decided and task.correct(before, decision.require()) is False)
                self.progress(launched - len(open_steps), total)
        finally:
            await scope.close()
        return curves.drawn()

    async def _recall_or_hold(self, election: ElectionId, question: Question) -> Verdict:
        return await self.recall(election, question) or await self.hold(election, question)

    def _known(self, state: Struct) -> Any:
        reply = self.task.oracle(state)
        if reply is None:
            raise InvalidUsage(f"{type(self.task).__name__} has no oracle, so its inputs are not known; run it without --known-inputs")
        return reply

    def _question(self, step: int, state: Struct) -> tuple[ElectionId, Question]:
        question = self.question(self.task.prompt(state), self._reply, max_draws=self.strategy.max_draws, state=state)
        return self.election_id(f"step/{step}", question), question

    async def _commit(self, election: ElectionId, question: Question, verdict: Verdict, done: int | None, state: Any) -> Decision[Any]:
        decided = verdict.outcome == "decided"
        held = Resolution(id=election, verdict=verdict) if decided else await self.settle(election, question, verdict)
        return self.commit(held, self._reply, lambda reply: self.task.correct(state, reply), done=done, state=question.state)


class _Curves:
    def __init__(self) -> None:
        self._samples: Counter[int] = Counter()
        self._ballots: Counter[int] = Counter()
        self._steps = self._wrong = self._undecided = 0

    def add(self, verdict: Verdict, *, wrong: bool) -> None:
        self._steps += 1
        self._wrong += wrong
        if verdict.outcome == "undecided":
            self._undecided += 1
        else:
            self._samples[len(verdict.ballots)] += 1
            self._ballots[sum(isinstance(ballot, Ballot) for ballot in verdict.ballots)] += 1

    def drawn(self) -> KnownInputs:
        return KnownInputs(
            steps=self._steps,
            wrong=self._wrong,
            undecided=self._undecided,
            sampling_rounds=self._left_after(self._samples),
            voting_rounds=self._left_after(self._ballots),
        )

    def _left_after(self, decided: Counter[int]) -> list[int]:
        left = [self._steps]
        for after in range(1, max(decided, default=0) + 1):
            left.append(left[-1] - decided[after])
        return left


class Maker(Strategy):
    """First-to-ahead-by-k voting over red-flagged replies, step by step."""

    solves = (ChainTask,)
    conductor = MakerConductor
    in_order = True
    known_inputs = True

    k: Annotated[int, Field(ge=1)] = 3
    """The margin by which a reply must lead every other."""
    rule: Literal["ahead-by", "first-to"] = "ahead-by"
    """`first-to`: the first reply with k votes wins."""
    max_draws: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """The cap of an election: so many samples, flagged ones included, then it is undecided."""
    ahead: Annotated[int, Field(ge=1)] = 32
    """How many steps are open at a time when guessing ahead."""
    window: Annotated[int, Field(ge=1)] = 256
    """How many steps are open at a time with --known-inputs."""

    @model_validator(mode="after")
    def _can_decide(self) -> Self:
        if self.k > self.max_draws:
            raise ValueError(f"k = {self.k} votes cannot come from max_draws = {self.max_draws} samples")
        return self

    @cached_property
    def default_rule(self) -> Rule:
        """The rule of every step."""
        return FirstToAheadBy(self.k) if self.rule == "ahead-by" else FirstTo(self.k)
