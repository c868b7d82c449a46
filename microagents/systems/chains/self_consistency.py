"""Self-consistency: the most frequent of many answers (arXiv 2203.11171), to a problem or to each step of a chain."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Self

from msgspec import structs
from pydantic import model_validator

from microagents.actors.ranges import OneToTenThousand, Temperature
from microagents.elections.election import Verdict
from microagents.elections.rules import FirstValid, Rule
from microagents.systems.chains.chain import Chain, ChainConductor, ChainWork, step_by_step
from microagents.systems.chains.ladder import Climbing, check_no_ladder
from microagents.systems.chains.speculation import AHEAD, guess_ahead
from microagents.systems.questions.problem import Problem, answer_type_of
from microagents.systems.questions.problem_conductor import concluded_by_plurality, drawn_answers, is_problem
from microagents.systems.questions.tree import Solution
from microagents.systems.questions.turns import sampling_at
from microagents.task import ChainTask
from microagents.work.durable import Work


class PluralityChain(Chain):
    """A chain whose steps take the most frequent of the valid replies. Ties go to the reply that was launched first.

    Flagged samples are not drawn again.
    """

    def as_taken(self, verdict: Verdict) -> Verdict:
        """Return the most frequent reply decides. A step without a valid reply is undecided, and so is one whose votes are improbable."""
        if verdict.outcome == "undecided" and verdict.leader is not None:
            return structs.replace(verdict, outcome="decided")
        return super().as_taken(verdict)


class SelfConsistencyConductor(ChainConductor["SelfConsistency"]):
    """Draws many answers at once."""

    def chain(self, work: ChainWork[SelfConsistency]) -> Chain:
        """Return the chain, with the most frequent reply of each step."""
        strategy = work.strategy
        return PluralityChain(work, max_draws=strategy.samples, sampling=sampling_at(work.task, strategy.temperature))

    async def conduct(self, work: ChainWork[SelfConsistency]) -> object:
        """Solve a problem or walk a chain."""
        if is_problem(work):
            return await _most_frequent(work)
        chain = self.chain(work)
        return await (guess_ahead(chain, ahead=AHEAD) if work.strategy.speculate else step_by_step(chain))


async def _most_frequent(work: Work[Any, SelfConsistency]) -> Solution:
    strategy = work.strategy
    check_no_ladder(work.task, strategy)
    sampling = sampling_at(work.task, strategy.temperature)
    replies = await drawn_answers(work, answer_type_of(work.task), samples=strategy.samples, sampling=sampling)
    return concluded_by_plurality(work, replies, strategy.samples)


class SelfConsistency(Climbing):
    """Most frequent of many answers, to a problem or to each step of a chain: a plurality, without a margin."""

    solves = (Problem, ChainTask)
    conductor = SelfConsistencyConductor
    changes_no_decision = ("speculate",)

    samples: OneToTenThousand = 20
    """Number of answers drawn."""
    temperature: Temperature = 0.7
    """Temperature of the answers."""
    speculate: bool = True
    """Open the next steps of a chain on guesses. Changes no decision."""

    @model_validator(mode="after")
    def _can_climb(self) -> Self:
        if self.ladder and self.p is None:
            raise ValueError(
                "a plurality is always decided; give p, the share of right votes, so that a step with improbable votes climbs"
            )
        return self

    @cached_property
    def default_rule(self) -> Rule:
        """Rule of every step of a chain: over once all samples are drawn."""
        return FirstValid(self.samples)
