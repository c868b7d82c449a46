"""Panels: each member votes once, yes or no, and a share of all members approves."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import ceil, floor

from microagents.base.errors import InvalidUsage
from microagents.elections.rules import Rule, Tally


class ApprovalShare(Rule, frozen=True):
    """A panel approves with more than a share of its members, or with at least that share (SeqCV, algorithm 1 and section 2.2).

    A vote is True for an approval and False for an objection. It is decided once the other votes cannot change the result.
    """

    members: int
    share: float = 0.5
    inclusive: bool = False
    """Whether exactly the share is enough. With it and a share of 1 all members must approve."""

    def __post_init__(self) -> None:
        if not 1 <= self.approvals_needed <= self.members:
            raise InvalidUsage(
                f"{self!r} can never approve: it needs {self.approvals_needed} approvals of {self.members} members"
            )

    @property
    def approvals_needed(self) -> int:
        """Fewest approvals with which the panel approves."""
        return _approvals_needed(self.members, self.share, inclusive=self.inclusive)

    def votes_needed(self, tally: Tally) -> int:
        """Votes that can complete the approvals, or the objections, whichever are fewer."""
        approvals, objections = tally.counts.get(True, 0), tally.counts.get(False, 0)
        return max(0, min(self.approvals_needed - approvals, self.members - self.approvals_needed + 1 - objections))

    def winner(self, tally: Tally) -> bool:
        """True if the panel approves."""
        return tally.counts.get(True, 0) >= self.approvals_needed


@lru_cache(maxsize=256)
def _approvals_needed(members: int, share: float, *, inclusive: bool) -> int:
    exact = Fraction(str(share)) * members
    if inclusive:
        return ceil(exact)
    return floor(exact) + 1
