"""Self-consistency: many direct answers, and the one that is given most often (arXiv 2203.11171)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from pydantic import Field

from microagents.actors import Strategy
from microagents.problems.candidates import merged
from microagents.problems.problem import Problem, answer_type, direct_prompt, text_of
from microagents.problems.questions import ToSolve
from microagents.problems.tree import Solution
from microagents.strategies.problem_conductor import ProblemConductor


class SelfConsistencyConductor(ProblemConductor["SelfConsistency"]):
    """Asks many times at once."""

    async def conduct(self) -> Solution:
        """The answer that most replies gave, the first launched of equals; marked where they are no majority of the samples.

        Raises:
            Undecided: every reply was flagged.
        """
        strategy, temperature = self.strategy, self.strategy.temperature
        replies = await self.sample(
            "answer",
            direct_prompt(ToSolve(problem=text_of(self.task))),
            answer_type(type(self.task)),
            n=strategy.samples,
            sampling=msgspec.structs.replace(self.task.sampling, first_temperature=temperature, temperature=temperature),
            max_draws=strategy.samples,
            needed=True,
        )
        most = max(merged(replies), key=lambda candidate: candidate.copies)
        is_majority = 2 * most.copies > strategy.samples
        return self.concluded(most.reply, argmax=() if is_majority else (f"{self.input}/answer",))


class SelfConsistency(Strategy):
    """So many direct answers, and the one that is given most often: a plurality, which may be wrong together."""

    solves = (Problem,)
    conductor = SelfConsistencyConductor

    samples: Annotated[int, Field(ge=1, le=10_000)] = 20
    """How many answers are drawn."""
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.7
    """Their temperature."""
