"""Agreement: two samples of steps in given states, if no reply is known to be right."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import cached_property
from typing import Annotated, Any, ClassVar

from msgspec import Struct, json, structs
from pydantic import Field

from microagents.actors.role import Strategy
from microagents.base.aio import TaskScope
from microagents.elections.rules import FirstValid, Rule
from microagents.studies.sampling.calibration import FIRST, GivenState
from microagents.systems.chains.chain import Chain, ChainConductor
from microagents.task import ChainTask, Task
from microagents.work.durable import Work


class AgreedStep(Struct, frozen=True, array_like=True):
    """The two samples of a step, compared."""

    number: int
    valid: int
    """Number of samples without a red flag."""
    same: bool | None
    """Whether both give the same vote; None if one is flagged."""
    as_decided: int | None
    """Number of valid samples with the vote that an earlier run decided; None without one."""


class Agreed(Struct, frozen=True, kw_only=True):
    """Result of the samples of one model."""

    steps: tuple[AgreedStep, ...]


class AgreementConductor(ChainConductor["Agreement"]):
    """Draws the samples."""

    async def conduct(self, work: Work[ChainTask[Any, Any], Agreement]) -> Agreed:
        """Sample the states side by side, at most ``window`` at a time."""
        sampling = structs.replace(work.task.sampling, first_temperature=work.task.sampling.temperature)
        chain, given = Chain(work, max_draws=FIRST, sampling=sampling), deque(work.strategy.states)
        open_steps: deque[asyncio.Task[AgreedStep]] = deque()
        done: list[AgreedStep] = []
        work.progress(0, len(given))
        async with TaskScope() as scope:
            while given or open_steps:
                while given and len(open_steps) < work.strategy.window:
                    open_steps.append(scope.start(_sampled(chain, given.popleft())))
                done.append(await open_steps.popleft())
                work.progress(len(done), len(work.strategy.states))
        return Agreed(steps=tuple(done))


class Agreement(Strategy):
    """Two samples of each of given states. Nothing is decided or judged."""

    solves = (ChainTask,)
    conductor = AgreementConductor
    changes_no_decision: ClassVar = ("window",)

    states: tuple[GivenState, ...]
    """The states."""
    window: Annotated[int, Field(ge=1)] = 64
    """Number of steps that are open at a time."""

    def expected_calls(self, task: Task) -> float | None:  # noqa: ARG002 - of any task
        """Count the samples of every state."""
        return float(FIRST * len(self.states))

    @cached_property
    def default_rule(self) -> Rule:
        """The rule of every sample: no vote."""
        return FirstValid(1)


async def _sampled(chain: Chain, given: GivenState) -> AgreedStep:
    state = given.read(chain)
    replies = await chain.work.sample(
        f"step/{given.number}",
        chain.asked(state, given.number),
        chain.reply_type,
        n=FIRST,
        max_draws=FIRST,
        sampling=chain.sampling,
        state=state,
    )
    vote_of = chain.task.vote_of
    votes = [vote_of(reply) for reply in replies]
    decided = None if given.reply is None else vote_of(json.decode(json.encode(given.reply), type=chain.reply_type))
    return AgreedStep(
        number=given.number,
        valid=len(votes),
        same=votes[0] == votes[1] if len(votes) == FIRST else None,
        as_decided=None if decided is None else votes.count(decided),
    )
