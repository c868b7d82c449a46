"""LEAD: a step that a few samples do not agree on is decided by rollouts (Lookahead-Enhanced Atomic Decomposition, algorithm 1)."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Self

from pydantic import Field, model_validator

from microagents.elections.rules import Rule, Unanimity
from microagents.systems.chains.ladder import rungs_in
from microagents.systems.chains.stepwise import Stepwise, StepwiseConductor
from microagents.task import ChainTask


class LeadConductor(StepwiseConductor["Lead"]):
    """Walks a chain: each step by the agreement of a few samples, or by rollouts."""


class Lead(Stepwise):
    """Each step by the agreement of a few samples; if they differ, by a vote of rollouts, some from earlier steps."""

    solves = (ChainTask,)
    conductor = LeadConductor

    samples: Annotated[int, Field(ge=2, le=10_000)] = 8
    """Number of samples of one step that must all agree."""
    ladder: str = "lookahead"
    """What is tried at a step on which they do not, separated by commas: `lookahead`, and before or behind it `paraphrase`, \
`model=SPEC`, `judge`."""

    @model_validator(mode="after")
    def _looks_ahead(self) -> Self:
        if "lookahead" not in rungs_in(self.ladder):
            raise ValueError(f"the ladder {self.ladder!r} has no lookahead; without it, take the strategy maker")
        if self.samples > self.max_draws:
            raise ValueError(f"samples = {self.samples} cannot come from max_draws = {self.max_draws} draws")
        return self

    @cached_property
    def default_rule(self) -> Rule:
        """Rule of every step: all samples agree."""
        return Unanimity(self.samples)
