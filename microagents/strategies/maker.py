"""MAKER: every step of a chain is one election (arXiv 2511.09030, sections 3 and 4)."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from microagents.actors import Strategy
from microagents.durable import Work
from microagents.elections.rules import FirstTo, FirstToAheadBy, Rule
from microagents.strategies.chain import ChainConductor, step_by_step
from microagents.strategies.known_inputs import side_by_side
from microagents.strategies.speculation import guess_ahead
from microagents.task import ChainTask


class MakerConductor(ChainConductor["Maker"]):
    """Walks the chain; each step's question is made from the state that the steps before it decided."""

    async def conduct(self, work: Work[ChainTask[Any, Any], Maker]) -> object:
        """The chain's result; with known inputs, how its elections went."""
        strategy, chain = work.strategy, self.chain(work)
        if strategy.known_inputs:
            return await side_by_side(chain, window=strategy.window)
        return await (guess_ahead(chain, ahead=strategy.ahead) if strategy.speculate else step_by_step(chain))


class Maker(Strategy):
    """First-to-ahead-by-k voting over red-flagged replies, step by step."""

    solves = (ChainTask,)
    conductor = MakerConductor
    in_order = True
    changes_no_decision: ClassVar = ("speculate",)

    k: Annotated[int, Field(ge=1)] = 3
    """The margin by which a reply must lead every other."""
    rule: Literal["ahead-by", "first-to"] = "ahead-by"
    """`first-to`: the first reply with k votes wins."""
    max_draws: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """The cap of an election: after so many samples, flagged ones included, it is undecided."""
    speculate: bool = True
    """Open the next steps on guesses, before the steps before them are decided. Changes no decision."""
    ahead: Annotated[int, Field(ge=1)] = 32
    """Number of steps that are open at a time with speculate."""
    known_inputs: bool = False
    """Feed every step the oracle's state; steps run side by side."""
    window: Annotated[int, Field(ge=1)] = 256
    """Number of steps that are open at a time with known_inputs."""

    @model_validator(mode="after")
    def _can_decide(self) -> Self:
        if self.k > self.max_draws:
            raise ValueError(f"k = {self.k} votes cannot come from max_draws = {self.max_draws} samples")
        return self

    @property
    def passes_undecided(self) -> bool:
        """With known inputs a step that ends undecided holds up no other."""
        return self.known_inputs

    @cached_property
    def default_rule(self) -> Rule:
        """The rule of every step."""
        return FirstTo(self.k) if self.rule == "first-to" else FirstToAheadBy(self.k)
