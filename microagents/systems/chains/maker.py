"""MAKER: every step of a chain is one election (arXiv 2511.09030, sections 3 and 4). A problem is a chain of one step."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from microagents.actors.ranges import OneOrMore, OneToThousand
from microagents.base.errors import InvalidUsage
from microagents.elections.rules import LEAST_LEVEL, Certify, FirstTo, FirstToAheadBy, Rule, Tally
from microagents.systems.chains.chain import Chain, ChainWork
from microagents.systems.chains.grouping import GroupedChain
from microagents.systems.chains.ladder import check_no_ladder
from microagents.systems.chains.stepwise import Stepwise, StepwiseConductor
from microagents.systems.questions.problem import Problem, answer_type_of, direct_prompt
from microagents.systems.questions.problem_conductor import concluded, is_problem
from microagents.systems.questions.tree import Solution
from microagents.task import ChainTask, Task
from microagents.work.durable import Work


class MakerConductor(StepwiseConductor["Maker"]):
    """Walks a chain, or answers a problem."""

    def chain(self, work: ChainWork[Maker]) -> Chain:
        """Return the chain of one input, in groups if a question asks for several steps."""
        steps = work.strategy.steps
        if steps == 1:
            return super().chain(work)
        return GroupedChain(work, steps)

    async def conduct(self, work: ChainWork[Maker]) -> object:
        """Walk the chain, or answer the problem by one election."""
        if is_problem(work):
            return await _answer(work)
        return await super().conduct(work)


async def _answer(work: Work[Any, Maker]) -> Solution:
    task, strategy = work.task, work.strategy
    if strategy.known_inputs:
        raise InvalidUsage(
            f"{type(task).__name__} has no steps, so their inputs are not known; run it without known_inputs"
        )
    check_no_ladder(task, strategy)
    prompt = direct_prompt(task)
    decision = await work.elect("answer", prompt, answer_type_of(task), max_draws=strategy.max_draws)
    return concluded(work, decision.require())


class Maker(Stepwise):
    """One election for each step of a chain: first-to-ahead-by-k voting over replies that no red flag discards.

    A problem is one step: the direct answer to it.
    """

    solves = (ChainTask, Problem)
    conductor = MakerConductor

    k: OneOrMore = 3
    """Number of votes that decide: a lead over every other reply, or a total with the rule first-to."""
    steps: OneToThousand = 1
    """Steps of a chain that one question asks for (the paper's m): all of them are one vote."""
    rule: Literal["ahead-by", "first-to", "certify"] = "ahead-by"
    """`ahead-by`: the first reply that leads every other by k votes wins. `first-to`: the first reply with k votes wins. \
`certify`: the first reply that is surely the model's likeliest one wins; where none is, the step stays open. k has no effect."""
    level: Annotated[float, Field(ge=LEAST_LEVEL, lt=0.5)] = 0.05
    """With the rule certify: greatest chance that another reply than the likeliest wins."""

    @model_validator(mode="after")
    def _can_decide(self) -> Self:
        needed = Tally(self.default_rule).votes_needed
        if needed > self.max_draws:
            raise ValueError(
                f"rule {self.rule}: k = {needed} votes cannot come from max_draws = {self.max_draws} samples"
            )
        if self.steps > 1 and self.rungs:
            raise ValueError("a ladder climbs single steps; give steps or a ladder")
        return self

    @property
    def deciding_votes(self) -> int | None:
        """Its k; None with the rule certify."""
        if self.rule == "certify":
            return None
        return self.k

    @property
    def draws_rollouts(self) -> bool:
        """Whether its questions ask for several steps."""
        return self.steps > 1 or super().draws_rollouts

    def expected_calls(self, task: Task) -> float | None:
        """Expected number of calls, fewer if a question asks for several steps."""
        calls = super().expected_calls(task)
        if calls is None:
            return None
        return calls / self.steps

    @cached_property
    def default_rule(self) -> Rule:
        """Rule of every step."""
        return self.rule_by(self.k)

    def rule_by(self, k: int) -> Rule:
        """Return its rule with this number of deciding votes."""
        if self.rule == "first-to":
            return FirstTo(k)
        if self.rule == "certify":
            return Certify(self.level)
        return FirstToAheadBy(k)
