"""One call, taken as it is: what every other strategy has to beat."""

from __future__ import annotations

from typing import Annotated

import msgspec
from pydantic import Field

from microagents.actors import Strategy
from microagents.problems.problem import Problem, answer_type, direct_prompt, text_of
from microagents.problems.questions import ToSolve
from microagents.problems.tree import Solution
from microagents.strategies.problem_conductor import ProblemConductor


class SingleShotConductor(ProblemConductor["SingleShot"]):
    """Asks once."""

    async def conduct(self) -> Solution:
        """The answer.

        Raises:
            Undecided: the reply was flagged.
        """
        (answer,) = await self.sample(
            "answer",
            direct_prompt(ToSolve(problem=text_of(self.task))),
            answer_type(type(self.task)),
            sampling=msgspec.structs.replace(self.task.sampling, first_temperature=self.strategy.temperature),
            max_draws=1,
            needed=True,
        )
        return self.concluded(answer)


class SingleShot(Strategy):
    """One sample, no vote."""

    solves = (Problem,)
    conductor = SingleShotConductor

    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    """Temperature of the sample."""
