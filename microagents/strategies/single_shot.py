"""Single shot: one call without a vote, the baseline of comparisons."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from pydantic import Field

from microagents.actors import Strategy
from microagents.durable import Work
from microagents.problems.problem import Problem, answer_type, direct_prompt, text_of
from microagents.problems.questions import ToSolve
from microagents.problems.tree import Solution
from microagents.strategies.problem_conductor import ProblemConductor


class SingleShotConductor(ProblemConductor["SingleShot"]):
    """Draws one answer."""

    async def conduct(self, work: Work[Problem[Any], SingleShot]) -> Solution:
        """Draw the answer.

        Raises:
            Undecided: the reply was flagged.
        """
        (answer,) = await work.sample(
            "answer",
            direct_prompt(ToSolve(problem=text_of(work.task))),
            answer_type(type(work.task)),
            sampling=msgspec.structs.replace(work.task.sampling, first_temperature=work.strategy.temperature),
            max_draws=1,
            needed=True,
        )
        return self.concluded(work, answer)


class SingleShot(Strategy):
    """One direct answer, without a vote."""

    solves = (Problem,)
    conductor = SingleShotConductor

    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    """Temperature of the answer."""
