"""Strategies that hold one election for each step of a chain: the ways to walk it, and their options."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import Field

from microagents.actors.ranges import OneOrMore, OneToMillion
from microagents.systems.chains.chain import ChainConductor, ChainWork, step_by_step
from microagents.systems.chains.known_inputs import side_by_side
from microagents.systems.chains.ladder import Climbing
from microagents.systems.chains.speculation import AHEAD, guess_ahead


class Stepwise(Climbing):
    """Options of a walk along a chain, and of its ladder."""

    changes_no_decision = ("speculate", "hedge")

    max_draws: OneToMillion = 100
    """Cap of an election: after this many samples, flagged ones included, it ends undecided."""
    speculate: bool = True
    """Open the next steps on guesses. Changes no decision."""
    ahead: OneOrMore = AHEAD
    """Number of steps that are open at a time with speculate."""
    hedge: Annotated[int, Field(ge=0, le=100)] = 0
    """Number of calls in flight at each open step beyond what its vote needs: the next step opens sooner, for more calls. \
Changes no decision."""
    known_inputs: bool = False
    """Start every step from the oracle's state, so that steps run side by side."""
    window: OneOrMore = 256
    """Number of steps that are open at a time with known_inputs."""

    @property
    def passes_undecided(self) -> bool:
        """Whether undecided steps stop no others: only with known inputs."""
        return self.known_inputs


W = TypeVar("W", bound=Stepwise)
WIDE = 10_000
"""Number of steps that are open at a time with known inputs, if calls go in batches."""


class StepwiseConductor(ChainConductor[W]):
    """Walks a chain in the mode of the strategy: step by step, with guesses, or with known inputs."""

    async def conduct(self, work: ChainWork[W]) -> object:
        """Walk the chain; returns the task's result, or with known inputs the counts of its elections."""
        strategy, chain = work.strategy, self.chain(work)
        if strategy.known_inputs:
            window = WIDE if work.role.context.is_in_batches else strategy.window
            return await side_by_side(chain, window=window)
        return await (guess_ahead(chain, ahead=strategy.ahead) if strategy.speculate else step_by_step(chain))
