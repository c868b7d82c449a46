"""Panels: each member votes once, yes or no, and more than half of all members approve."""

from __future__ import annotations

from microagents.elections.rules import Rule, Tally


class Majority(Rule, frozen=True):
    """A panel approves with more than half of its members (SeqCV, algorithm 1 and section 2.2).

    A vote is True for an approval and False for an objection. It is decided once the other votes cannot change the result.
    """

    members: int

    @property
    def approvals_needed(self) -> int:
        """Fewest approvals with which the panel approves."""
        return self.members // 2 + 1

    def votes_needed(self, tally: Tally) -> int:
        """Votes that can complete the approvals, or the objections, whichever are fewer."""
        approvals, objections = tally.counts.get(True, 0), tally.counts.get(False, 0)
        return max(0, min(self.approvals_needed - approvals, self.members - self.approvals_needed + 1 - objections))

    def winner(self, tally: Tally) -> bool:
        """True if the panel approves."""
        return tally.counts.get(True, 0) >= self.approvals_needed
