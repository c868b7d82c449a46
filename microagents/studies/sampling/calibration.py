"""Calibrations: two samples of random steps of a chain, and more only if they are not all valid and right."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Hashable, Iterator
from functools import cached_property
from hashlib import blake2b
from heapq import nsmallest
from types import NoneType
from typing import Annotated, Any, ClassVar

from msgspec import Struct, json, structs
from pydantic import BaseModel, ConfigDict, Field

from microagents.actors.role import Strategy
from microagents.base.aio import TaskScope
from microagents.base.user_code import called
from microagents.elections.rules import FirstValid, Rule
from microagents.replies.chat import Prompt, hashable, voted_fields
from microagents.studies.sampling.study import is_right, right_reply
from microagents.systems.chains.chain import Chain, ChainConductor
from microagents.task import ChainTask, Task
from microagents.work.durable import Work

FIRST = 2
"""Number of samples of each step."""
MORE = 8
"""Number of further samples of a step if one of the first is wrong or flagged, or if they differ."""


class CalibratedStep(Struct, frozen=True, array_like=True):
    """The samples of a step, judged."""

    number: int
    first_wrong: int
    first_valid: int
    """Among the first samples, as many for every step."""
    wrong: int
    valid: int
    """Among all samples."""
    drawn: int
    """Number of all samples, flagged ones included."""
    same_wrong: int
    """Number of samples with the most frequent wrong reply."""
    same_right: int
    """Number of samples with the most frequent right reply."""
    mistakes: dict[str, int]
    """Number of wrong samples by the first field that is not the oracle's."""


class Calibrated(Struct, frozen=True, kw_only=True):
    """Result of a calibration of one model."""

    total: int
    """Number of steps of the task."""
    steps: tuple[CalibratedStep, ...]


class GivenState(BaseModel):
    """A state in which a step is asked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    """Number of the step, or of the line of a file, counted from 0."""
    state: Any
    """As JSON has it."""
    reply: Any = None
    """The reply that an earlier run decided there, as JSON has it; None if there is none."""

    def read(self, chain: Chain) -> Any:
        """Return the state."""
        return chain.read_state(json.encode(self.state))


class CalibrationConductor(ChainConductor["Calibration"]):
    """Draws the samples."""

    async def conduct(self, work: Work[ChainTask[Any, Any], Calibration]) -> Calibrated:
        """Sample the chosen steps side by side, at most ``window`` at a time."""
        sampling = structs.replace(work.task.sampling, first_temperature=work.task.sampling.temperature)
        chain = Chain(work, max_draws=FIRST, sampling=sampling)
        given, of, total = work.strategy.states, work.strategy.of or 0, chain.total
        total = max(of, total) if total is not None else of or sum(1 for _ in _walk(chain))
        count = min(work.strategy.steps, total)
        chosen = (
            chosen_among(total, count, work.role.context.seed) if given is None else {each.number for each in given}
        )
        open_steps: deque[asyncio.Task[CalibratedStep]] = deque()
        done: list[CalibratedStep] = []
        work.progress(0, count)
        async with TaskScope() as scope:
            for number, state, right in _walk(chain) if given is None else _judged(chain, given):
                if number in chosen:
                    open_steps.append(scope.start(sampled(chain, number, state, right)))
                while open_steps and (len(open_steps) >= work.strategy.window or len(done) + len(open_steps) == count):
                    done.append(await open_steps.popleft())
                    work.progress(len(done), count)
                if len(done) == count:
                    break
        return Calibrated(total=total, steps=tuple(done))


class Calibration(Strategy):
    """Two samples of random steps, and eight more of steps with an error, a flag or a difference. The oracle judges them."""

    solves = (ChainTask,)
    conductor = CalibrationConductor
    changes_no_decision: ClassVar = ("window",)

    steps: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000
    """Number of steps that are sampled, at most all of the task."""
    window: Annotated[int, Field(ge=1)] = 64
    """Number of steps that are open at a time."""
    states: tuple[GivenState, ...] | None = None
    """States of the chosen steps; None for the oracle's."""
    of: Annotated[int | None, Field(ge=1)] = None
    """Number of the states that they were chosen from; None for all steps of the task."""

    def expected_calls(self, task: Task) -> float | None:
        """Count the first samples of every step."""
        total = self.of or (called(task.steps, gives=(int, NoneType)) if isinstance(task, ChainTask) else None)
        return float(FIRST * (self.steps if total is None else min(self.steps, total)))

    @cached_property
    def default_rule(self) -> Rule:
        """The rule of every sample: no vote."""
        return FirstValid(1)


def chosen_among(total: int, count: int, seed: int) -> set[int]:
    """Choose random steps: fewer are a part of more, so that a larger calibration asks the same steps and others."""
    return set(
        nsmallest(count, range(total), key=lambda number: blake2b(f"{seed}/{number}".encode(), digest_size=8).digest())
    )


def _walk(chain: Chain) -> Iterator[tuple[int, Any, Any]]:
    """Walk the steps of the oracle: number, state and right reply."""
    state, number = chain.start(), 0
    while not chain.is_done(state, number):
        right = right_reply(chain, state, number)
        yield number, state, right
        state, number = chain.next_state(state, right, number), number + 1


def _judged(chain: Chain, given: tuple[GivenState, ...]) -> Iterator[tuple[int, Any, Any]]:
    """Walk given states: number, state and right reply."""
    for each in given:
        state = each.read(chain)
        yield each.number, state, right_reply(chain, state, each.number)


async def sampled(chain: Chain, number: int, state: Any, right: Any) -> CalibratedStep:
    """Draw the samples of a step and judge them by the oracle's reply."""
    asked: Prompt = called(chain.task.prompt, state, gives=Prompt, at=number)
    fields = voted_fields(chain.reply_type)

    async def drawn(at: str, count: int) -> list[Any]:
        place = f"step/{number}/{at}"
        return await chain.work.sample(
            place, asked, chain.reply_type, n=count, max_draws=count, sampling=chain.sampling, state=state
        )

    def mistake(reply: Any) -> str:
        differing = (name for name in fields if hashable(getattr(reply, name)) != hashable(getattr(right, name)))
        return next(differing, "vote")

    return await judged_samples(
        number, drawn, lambda reply: is_right(chain, state, reply, number, right), mistake, chain.task.vote_of
    )


async def judged_samples(
    number: int,
    draw: Callable[[str, int], Awaitable[list[Any]]],
    is_right: Callable[[Any], bool],
    mistake: Callable[[Any], str],
    vote_of: Callable[[Any], Hashable],
) -> CalibratedStep:
    """Draw the samples of a step and judge them.

    Args:
        number: the step's.
        draw: draws a number of samples at a place, and returns the valid replies.
        is_right: whether a reply is right.
        mistake: names the first field of a wrong reply that is wrong.
        vote_of: returns the vote of a reply.
    """
    replies, count = await draw("first", FIRST), FIRST
    first = [is_right(reply) for reply in replies]
    verdicts = first
    if len(first) < FIRST or not all(first) or len({vote_of(reply) for reply in replies}) > 1:
        more = await draw("more", MORE)
        verdicts = first + [is_right(reply) for reply in more]
        replies, count = replies + more, FIRST + MORE
    votes = {
        verdict: Counter(vote_of(reply) for reply, each in zip(replies, verdicts, strict=True) if each is verdict)
        for verdict in (False, True)
    }
    mistakes = Counter(mistake(reply) for reply, each in zip(replies, verdicts, strict=True) if not each)
    return CalibratedStep(
        number=number,
        first_wrong=first.count(False),
        first_valid=len(first),
        wrong=verdicts.count(False),
        valid=len(verdicts),
        drawn=count,
        same_wrong=max(votes[False].values(), default=0),
        same_right=max(votes[True].values(), default=0),
        mistakes=dict(mistakes),
    )
