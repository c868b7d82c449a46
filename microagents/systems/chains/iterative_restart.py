"""Iterative restart: as many steps as a reply holds, then again from the state that they lead to (LEAD, section 4.1)."""

from __future__ import annotations

from functools import cached_property

from microagents.actors.ranges import OneToTenThousand
from microagents.actors.role import Strategy
from microagents.elections.rules import FirstValid, Rule
from microagents.systems.chains.chain import ChainConductor, ChainWork
from microagents.systems.chains.long_replies import in_long_replies
from microagents.task import ChainTask


class IterativeRestartConductor(ChainConductor["IterativeRestart"]):
    """Asks for many steps at a time."""

    async def conduct(self, work: ChainWork[IterativeRestart]) -> object:
        """Walk the chain."""
        return await in_long_replies(self.chain(work), horizon=work.strategy.horizon, restarts=True)


class IterativeRestart(Strategy):
    """As many steps of a chain as a reply holds, then again from the state that they lead to, without a vote."""

    solves = (ChainTask,)
    conductor = IterativeRestartConductor

    horizon: OneToTenThousand = 50
    """Greatest number of steps that a reply is asked for."""

    @property
    def draws_rollouts(self) -> bool:
        """True: its replies have many steps."""
        return True

    @cached_property
    def default_rule(self) -> Rule:
        """Rule of every reply, which needs no vote."""
        return FirstValid(1)
