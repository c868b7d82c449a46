"""Known inputs: every step of a chain starts from the oracle's state, so that steps run side by side (MAKER, figure 8)."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from msgspec import Struct

from microagents.base.aio import TaskScope
from microagents.base.errors import InvalidUsage
from microagents.elections.election import Verdict
from microagents.systems.chains.chain import Chain, ChainStep
from microagents.task import ChainTask, Task


class KnownInputs(Struct, frozen=True, kw_only=True):
    """Result of a run with known inputs: numbers of steps."""

    steps: int
    wrong: int
    """Number of decisions that the oracle calls wrong."""
    undecided: int
    """Number of steps that ended undecided."""


async def side_by_side(chain: Chain, *, window: int) -> KnownInputs:
    """Hold the elections of all steps in the oracle's states, with at most ``window`` of them open at a time."""
    state, total, launched = chain.start(), chain.total, 0
    open_steps: deque[tuple[ChainStep, asyncio.Task[Verdict]]] = deque()
    wrong = undecided = 0
    chain.work.progress(0, total)
    async with TaskScope() as scope:
        while open_steps or not chain.is_done(state, launched):
            while len(open_steps) < window and not chain.is_done(state, launched):
                step = chain.step(launched, state)
                open_steps.append((step, scope.start(chain.work.hold(step.election, step.question))))
                state, launched = chain.advance(step, _oracle_reply(chain, state, launched)), launched + 1
            # Verdicts are committed in step order: the digest of decisions is a chain over the steps.
            step, election = open_steps.popleft()
            decision = await chain.commit(step, await election, checkpoint=False)
            chain.go_on(step, _oracle_reply(chain, step.state, step.number))
            wrong += decision.decided and chain.correct(step.state, decision.require(), step.number) is False
            undecided += not decision.decided
            chain.work.progress(launched - len(open_steps), total)
    return KnownInputs(steps=launched, wrong=wrong, undecided=undecided)


def check_oracle(task: Task) -> None:
    """Refuse a chain whose class has no oracle, before its run begins."""
    if isinstance(task, ChainTask) and type(task).oracle is ChainTask.oracle:
        raise _unknown_inputs(task, "has no oracle")


def _oracle_reply(chain: Chain, state: Any, number: int) -> Any:
    reply = chain.oracle(state, number)
    if reply is None:
        raise _unknown_inputs(chain.task, f"has no oracle for step {number}")
    return reply


def _unknown_inputs(task: Task, why: str) -> InvalidUsage:
    return InvalidUsage(
        f"{type(task).__name__} {why}, so its inputs are not known; define oracle(state), or run it without known_inputs"
    )
