"""A stop rule of your own: a panel of fixed size, approved by a share of its votes; and a strategy that uses it."""

from functools import cached_property
from math import ceil
from typing import Literal

from microagents import ChainTask, Rule, Strategy, Tally
from microagents.systems import ChainConductor


class Panel(Rule, frozen=True):
    """Decided once a candidate has its share of the whole panel, at the latest when all members have voted."""

    size: int = 5
    share: float = 0.6

    def votes_needed(self, tally: Tally) -> int:
        return max(0, min(self._enough - tally.leading, self.size - tally.counted))

    def outcome(self, tally: Tally) -> Literal["decided", "argmax"]:
        """Where no candidate has its share, the one with most votes is no decision: the step stays undecided."""
        return "decided" if tally.leading >= self._enough else "argmax"

    @property
    def _enough(self) -> int:
        return ceil(self.share * self.size)


class PanelConductor(ChainConductor["Panels"]):
    """Walks a chain step by step, as its base class does."""


class Panels(Strategy):
    """microagents run ledger.py:Ledger -o bookings=@bookings.csv --strategy panel.py:Panels -s size=7"""

    solves, conductor = (ChainTask,), PanelConductor
    size: int = 5
    share: float = 0.6

    @cached_property
    def default_rule(self) -> Rule:
        return Panel(size=self.size, share=self.share)
