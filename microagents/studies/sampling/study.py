"""Studies: samples of every step of a chain, asked in the oracle's state, for the analysis of a model's errors (LEAD, section 5)."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Hashable, Sequence
from functools import cached_property
from types import NoneType
from typing import Annotated, Any, ClassVar

from msgspec import Struct, structs
from pydantic import Field

from microagents.actors.role import Strategy
from microagents.base.aio import TaskScope
from microagents.base.errors import InvalidUsage
from microagents.base.user_code import called
from microagents.elections.rules import FirstValid, Rule
from microagents.replies.chat import Prompt, Reply, hashable, voted_fields
from microagents.replies.rollouts import Rollout
from microagents.systems.chains.chain import Chain, ChainConductor
from microagents.task import ChainTask, Task
from microagents.work.durable import Work


class StudiedStep(Struct, frozen=True, kw_only=True):
    """Valid replies of a model to one step, judged. Flagged ones are left out."""

    samples: tuple[int, ...] = ()
    """For each sample in launch order, the number of its first fields that are right; of a right reply all of them."""
    majority: bool | None = None
    """Whether the most frequent reply is right; None without a valid one."""
    field_majorities: tuple[bool | None, ...] = ()
    """For each field, whether its most frequent value is right among samples with the fields before it right; None without such samples."""
    rollouts: tuple[tuple[bool | None, ...], ...] = ()
    """For each rollout that starts here, whether each of its steps is right; None for a step that it does not give."""


class Studied(Struct, frozen=True, kw_only=True):
    """Result of a study of one model."""

    fields: tuple[str, ...]
    """Names of the fields of a reply that are voted on."""
    steps: tuple[StudiedStep, ...]


class StudyConductor(ChainConductor["Study"]):
    """Draws samples and rollouts of all steps."""

    async def conduct(self, work: Work[ChainTask[Any, Any], Study]) -> Studied:
        """Ask the steps side by side, at most ``window`` at a time."""
        sampling = structs.replace(work.task.sampling, first_temperature=work.task.sampling.temperature)
        chain = Chain(work, max_draws=work.strategy.samples, sampling=sampling)
        state, total, launched = chain.start(), chain.total, 0
        open_steps: deque[asyncio.Task[StudiedStep]] = deque()
        studied: list[StudiedStep] = []
        work.progress(0, total)
        async with TaskScope() as scope:
            while open_steps or not chain.is_done(state, launched):
                while len(open_steps) < work.strategy.window and not chain.is_done(state, launched):
                    step = _Step(chain, launched, state)
                    open_steps.append(scope.start(step.study(work.strategy)))
                    state, launched = chain.next_state(state, step.right, launched), launched + 1
                studied.append(await open_steps.popleft())
                work.progress(len(studied), total)
        return Studied(fields=tuple(voted_fields(chain.reply_type)), steps=tuple(studied))


class Study(Strategy):
    """Samples of every step in the oracle's state, and rollouts that start there. Nothing is decided."""

    solves = (ChainTask,)
    conductor = StudyConductor
    changes_no_decision: ClassVar = ("window",)

    samples: Annotated[int, Field(ge=1, le=10_000)] = 20
    """Number of samples of each step."""
    rollouts: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Number of rollouts from each step."""
    horizon: Annotated[int, Field(ge=1, le=10_000)] = 8
    """Number of steps in a rollout."""
    window: Annotated[int, Field(ge=1)] = 64
    """Number of steps that are open at a time."""

    def expected_calls(self, task: Task) -> float | None:
        """Return the samples and the rollouts of every step."""
        steps = called(task.steps, gives=(int, NoneType)) if isinstance(task, ChainTask) else None
        return None if steps is None else float(steps * (self.samples + self.rollouts))

    @property
    def draws_rollouts(self) -> bool:
        """Whether rollouts are asked for."""
        return self.rollouts > 0

    @cached_property
    def default_rule(self) -> Rule:
        """The rule of every sample: no vote."""
        return FirstValid(1)


class _Step:
    """A step of the chain in the oracle's state."""

    def __init__(self, chain: Chain, number: int, state: Any) -> None:
        self._chain = chain
        self._number = number
        self._state = state
        self.right = right_reply(chain, state, number)

    async def study(self, strategy: Study) -> StudiedStep:
        chain, work = self._chain, self._chain.work
        at = f"step/{self._number}"
        asked: Prompt = called(chain.task.prompt, self._state, gives=Prompt, at=self._number)
        count = strategy.samples
        async with TaskScope() as scope:
            drawn = scope.start(
                work.sample(
                    f"{at}/sample",
                    asked,
                    chain.reply_type,
                    n=count,
                    max_draws=count,
                    sampling=chain.sampling,
                    state=self._state,
                )
            )
            rollouts = []
            if strategy.rollouts:
                several: Prompt = called(
                    chain.task.rollout_prompt, self._state, strategy.horizon, gives=Prompt, at=self._number
                )
                rollouts = [
                    scope.start(chain.rollout(f"{at}/rollout/{each}", several, strategy.horizon))
                    for each in range(strategy.rollouts)
                ]
            await scope.join()
        valid = [reply for each in rollouts if isinstance(reply := each.result(), Rollout)]
        return structs.replace(
            self._judge(drawn.result()), rollouts=tuple([self._judge_rollout(each, strategy.horizon) for each in valid])
        )

    def _judge(self, replies: Sequence[Reply]) -> StudiedStep:
        fields = voted_fields(self._chain.reply_type)
        votes = [self._chain.task.vote_of(reply) for reply in replies]
        kinds = dict(zip(votes, replies, strict=True))
        right = {
            vote for vote, reply in kinds.items() if is_right(self._chain, self._state, reply, self._number, self.right)
        }
        # Where several replies are right, a wrong one may begin as any of them does.
        begun = [
            _beginnings(reply, fields) for reply in (self.right, *[kinds[vote] for vote in kinds if vote in right])
        ]
        known = {beginning for each in begun for beginning in each}
        samples, begins = [], []
        for vote, reply in zip(votes, replies, strict=True):
            beginnings = _beginnings(reply, fields)
            same = sum(beginning in known for beginning in beginnings)
            samples.append(len(fields) if vote in right else min(same, len(fields) - 1))
            begins.append(beginnings)
        return StudiedStep(
            samples=tuple(samples),
            majority=max(votes, key=Counter(votes).__getitem__) in right if votes else None,
            field_majorities=tuple([_field_majority(samples, begins, field) for field in range(len(fields))]),
        )

    def _judge_rollout(self, rollout: Rollout, horizon: int) -> tuple[bool | None, ...]:
        """Each step is judged in the state that the right ones before it lead to; a wrong one counts as if the oracle had replied."""
        chain, state = self._chain, self._state
        verdicts: list[bool | None] = []
        for number in range(self._number, self._number + horizon):
            if chain.is_done(state, number):
                break
            reply = rollout.steps[len(verdicts)] if len(verdicts) < len(rollout.steps) else None
            right = right_reply(chain, state, number)
            verdict = None if reply is None else is_right(chain, state, reply, number, right)
            verdicts.append(verdict)
            state = chain.next_state(state, reply if verdict else right, number)
        return tuple(verdicts)


def right_reply(chain: Chain, state: Any, number: int) -> Any:
    """Ask the oracle for the reply to a step.

    Raises:
        InvalidUsage: there is none.
    """
    reply = chain.oracle(state, number)
    if reply is None:
        raise InvalidUsage(
            f"{type(chain.task).__name__} has no oracle for step {number}, so its replies cannot be judged"
        )
    return reply


def is_right(chain: Chain, state: Any, reply: Reply, number: int, right: Reply) -> bool:
    """Return whether a reply is right: by the task, or else by the oracle's reply."""
    verdict = chain.correct(state, reply, number)
    return chain.task.vote_of(reply) == chain.task.vote_of(right) if verdict is None else verdict


def _beginnings(reply: Reply, fields: Sequence[str]) -> list[Hashable]:
    """Return the values of the first field, of the first two, and so on."""
    values = tuple([hashable(getattr(reply, name)) for name in fields])
    return [values[: length + 1] for length in range(len(fields))]


def _field_majority(samples: Sequence[int], begins: Sequence[Sequence[Hashable]], field: int) -> bool | None:
    drawn = [
        (beginnings[field], right > field) for right, beginnings in zip(samples, begins, strict=True) if right >= field
    ]
    if not drawn:
        return None
    values = Counter(beginning for beginning, _ in drawn)
    _, verdict = max(drawn, key=lambda each: values[each[0]])
    return verdict
