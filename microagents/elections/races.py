"""One election in figures: how a race of the right reply against one rival ends under a rule and a cap, and after how many draws."""

from __future__ import annotations

import math
from typing import NamedTuple

from microagents.elections.rules import FirstToAheadBy, Rule, Tally

EXACT = 1e-40
"""A race is followed until so little of it is open: one step of the longest task."""


class RaceEnd(NamedTuple):
    """End of a race at a cap."""

    right: float
    """Probability that the right reply wins."""
    wrong: float
    """Probability that the rival wins."""
    undecided: float
    """Probability that no reply has won at the cap, or by plurality only."""
    draws: float
    """Expected number of draws."""


def race_end(p: float, rule: Rule, max_draws: int) -> RaceEnd:
    """Follow a race draw by draw.

    Args:
        p: probability that a vote is right.
        rule: the rule that decides.
        max_draws: the cap.
    """
    ended, after, draws = dict.fromkeys(("right", "wrong", "undecided"), 0.0), dict[tuple[int, int], str | None](), 0.0
    here = {(0, 0): 1.0}
    for _ in range(max_draws):
        if (still := math.fsum(here.values())) <= EXACT:
            break
        draws += still
        there: dict[tuple[int, int], float] = {}
        for (right, rival), chance in here.items():
            for share, votes in ((p, (right + 1, rival)), (1 - p, (right, rival + 1))):
                # Only the lead matters to first-to-ahead-by, so that votes which both have are left out.
                least = min(votes) if isinstance(rule, FirstToAheadBy) else 0
                left = votes[0] - least, votes[1] - least
                if left not in after:
                    after[left] = _end(rule, *left)
                if (end := after[left]) is None:
                    there[left] = there.get(left, 0.0) + chance * share
                else:
                    ended[end] += chance * share
        here = there
    return RaceEnd(ended["right"], ended["wrong"], ended["undecided"] + math.fsum(here.values()), draws)


def _end(rule: Rule, right: int, rival: int) -> str | None:
    """Return the end of a race with these votes; None while it is open."""
    tally = Tally(rule)
    # Of equals the one that was launched first wins; here that is the rival.
    tally.counts = {index: votes for index, votes in ((1, rival), (0, right)) if votes}
    tally.leading, tally.second, tally.counted = max(right, rival), min(right, rival), right + rival
    if rule.votes_needed(tally):
        return None
    if rule.outcome(tally) != "decided":
        return "undecided"
    if rule.winner(tally) == 0:
        return "right"
    return "wrong"
