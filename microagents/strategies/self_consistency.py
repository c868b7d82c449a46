"""Self-consistency: the most frequent of many direct answers (arXiv 2203.11171)."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from pydantic import Field

from microagents.actors import Strategy
from microagents.durable import Work
from microagents.problems.candidates import merged
from microagents.problems.problem import Problem, answer_type, direct_prompt, text_of
from microagents.problems.questions import ToSolve
from microagents.problems.tree import Solution
from microagents.strategies.problem_conductor import ProblemConductor


class SelfConsistencyConductor(ProblemConductor["SelfConsistency"]):
    """Draws many answers at once."""

    async def conduct(self, work: Work[Problem[Any], SelfConsistency]) -> Solution:
        """Draw the answers; returns the most frequent one, marked ``argmax`` if it is no majority of the samples.

        Ties go to the answer that was launched first.

        Raises:
            Undecided: every reply was flagged.
        """
        strategy, temperature = work.strategy, work.strategy.temperature
        replies = await work.sample(
            "answer",
            direct_prompt(ToSolve(problem=text_of(work.task))),
            answer_type(type(work.task)),
            n=strategy.samples,
            sampling=msgspec.structs.replace(work.task.sampling, first_temperature=temperature, temperature=temperature),
            max_draws=strategy.samples,
            needed=True,
        )
        leader = max(merged(replies), key=lambda candidate: candidate.copies)
        is_majority = 2 * leader.copies > strategy.samples
        return self.concluded(work, leader.reply, argmax=() if is_majority else (work.path_of("answer"),))


class SelfConsistency(Strategy):
    """The most frequent of many direct answers: a plurality, without a margin."""

    solves = (Problem,)
    conductor = SelfConsistencyConductor

    samples: Annotated[int, Field(ge=1, le=10_000)] = 20
    """Number of answers drawn."""
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.7
    """Temperature of the answers."""
