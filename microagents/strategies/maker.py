"""MAKER: every step of a chain is one election (arXiv 2511.09030, sections 3 and 4). A problem is a chain of one step."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from microagents.actors import Strategy
from microagents.durable import Work
from microagents.elections.rules import FirstTo, FirstToAheadBy, Rule
from microagents.errors import InvalidUsage
from microagents.problems.problem import Problem, answer_type_of, direct_prompt, text_of
from microagents.problems.questions import ToSolve
from microagents.problems.tree import Solution
from microagents.strategies.chain import ChainConductor, step_by_step
from microagents.strategies.known_inputs import side_by_side
from microagents.strategies.problem_conductor import concluded, is_problem
from microagents.strategies.speculation import AHEAD, guess_ahead
from microagents.task import ChainTask


class MakerConductor(ChainConductor["Maker"]):
    """Walks a chain in the mode of the strategy: step by step, with guesses, or with known inputs."""

    async def conduct(self, work: Work[ChainTask[Any, Any], Maker]) -> object:
        """Walk the chain; returns the task's result, or with known inputs the counts of its elections."""
        if is_problem(work):
            return await _answer(work)
        strategy, chain = work.strategy, self.chain(work)
        if strategy.known_inputs:
            return await side_by_side(chain, window=strategy.window)
        return await (guess_ahead(chain, ahead=strategy.ahead) if strategy.speculate else step_by_step(chain))


async def _answer(work: Work[Any, Maker]) -> Solution:
    """Answer a problem by one election.

    Raises:
        Undecided: no answer is ahead at the cap.
        InvalidUsage: known inputs are asked for.
    """
    task, strategy = work.task, work.strategy
    if strategy.known_inputs:
        raise InvalidUsage(f"{type(task).__name__} has no steps, so their inputs are not known; run it without --known-inputs")
    prompt = direct_prompt(ToSolve(problem=text_of(task)))
    decision = await work.elect("answer", prompt, answer_type_of(task), max_draws=strategy.max_draws)
    return concluded(work, decision.require())


class Maker(Strategy):
    """One election for each step of a chain: first-to-ahead-by-k voting over replies that no red flag discards.

    A problem is one step: the direct answer to it.
    """

    solves = (ChainTask, Problem)
    conductor = MakerConductor
    in_order = True
    changes_no_decision: ClassVar = ("speculate", "hedge")

    k: Annotated[int, Field(ge=1)] = 3
    """Number of votes that decide: a lead over every other reply, or a total with the rule first-to."""
    rule: Literal["ahead-by", "first-to"] = "ahead-by"
    """`ahead-by`: the first reply that leads every other by k votes wins. `first-to`: the first reply with k votes wins."""
    max_draws: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """Cap of an election: after this many samples, flagged ones included, it ends undecided."""
    speculate: bool = True
    """Open the next steps on guesses. Changes no decision."""
    ahead: Annotated[int, Field(ge=1)] = AHEAD
    """Number of steps that are open at a time with speculate."""
    hedge: Annotated[int, Field(ge=0, le=100)] = 0
    """Number of calls in flight at each open step beyond those that its vote needs: the next step opens sooner, for more calls. \
Changes no decision."""
    known_inputs: bool = False
    """Start every step from the oracle's state, so that steps run side by side."""
    window: Annotated[int, Field(ge=1)] = 256
    """Number of steps that are open at a time with known_inputs."""

    @model_validator(mode="after")
    def _can_decide(self) -> Self:
        if self.k > self.max_draws:
            raise ValueError(f"k = {self.k} votes cannot come from max_draws = {self.max_draws} samples")
        return self

    @property
    def passes_undecided(self) -> bool:
        """Whether undecided steps stop no others: only with known inputs."""
        return self.known_inputs

    @cached_property
    def default_rule(self) -> Rule:
        """The rule of every step."""
        return FirstTo(self.k) if self.rule == "first-to" else FirstToAheadBy(self.k)
