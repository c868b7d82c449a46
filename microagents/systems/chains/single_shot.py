"""Single shot: one call without a vote, for a problem or for all steps of a chain: the baseline of comparisons."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from msgspec import structs

from microagents.actors.ranges import Temperature
from microagents.actors.role import Strategy
from microagents.elections.rules import FirstValid, Rule
from microagents.systems.chains.chain import Chain, ChainConductor, ChainWork
from microagents.systems.chains.long_replies import in_long_replies
from microagents.systems.questions.problem import Problem, answer_type_of
from microagents.systems.questions.problem_conductor import concluded, drawn_answers, is_problem
from microagents.systems.questions.tree import Solution
from microagents.task import ChainTask, Task
from microagents.work.durable import Work


class SingleShotConductor(ChainConductor["SingleShot"]):
    """Draws one answer."""

    def chain(self, work: ChainWork[SingleShot]) -> Chain:
        """Return the chain, at the temperature of the strategy."""
        temperature = work.strategy.temperature
        return Chain(work, max_draws=1, sampling=structs.replace(work.task.sampling, first_temperature=temperature))

    async def conduct(self, work: ChainWork[SingleShot]) -> object:
        """Solve a problem or walk a chain."""
        if is_problem(work):
            return await _answer(work)
        return await in_long_replies(self.chain(work), restarts=False)


async def _answer(work: Work[Any, SingleShot]) -> Solution:
    sampling = structs.replace(work.task.sampling, first_temperature=work.strategy.temperature)
    (answer,) = await drawn_answers(work, answer_type_of(work.task), sampling=sampling)
    return concluded(work, answer)


class SingleShot(Strategy):
    """One answer without a vote, to a problem or with all steps of a chain."""

    solves = (Problem, ChainTask)
    conductor = SingleShotConductor

    temperature: Temperature = 0.0
    """Temperature of the answer."""

    def expected_calls(self, task: Task) -> float | None:  # noqa: ARG002 - of every task
        """One."""
        return 1.0

    @property
    def draws_rollouts(self) -> bool:
        """True: of a chain, all steps in one reply."""
        return True

    @cached_property
    def default_rule(self) -> Rule:
        """Rule of the answer, which needs no vote."""
        return FirstValid(1)
