"""One election in figures: how a race of the right reply against one rival ends under a rule and a cap, and after how many draws.

Votes by field are a race of each field: the row ends once all of them lead by k at the same time. There is no closed form, so they are
simulated; where samples err in several fields together, that is far off: hold votes on a pilot of rows instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from microagents.elections.rules import FirstToAheadBy, Rule, Tally

F = TypeVar("F", float, NDArray[np.float64])
EXACT = 1e-40
"""A race is followed until so little of it is open: one step of the longest task."""
ROWS = 20_000
"""Number of simulated rows: a share of .5 is known to .007 (95 %), one of .99 to .0014."""


class RaceEnd(NamedTuple, Generic[F]):
    """End of an election at a cap."""

    right: F
    """Probability that the right reply wins."""
    wrong: F
    """Probability that a rival wins."""
    undecided: F
    """Probability that no reply has won at the cap, or by plurality only."""
    draws: F
    """Expected number of draws."""

    @property
    def lost(self) -> F:
        """Probability that the right reply does not win."""
        return self.wrong + self.undecided


def race_end(error: F, rule: Rule, max_draws: int) -> RaceEnd[F]:
    """Follow a race draw by draw.

    Args:
        error: probability that a vote is wrong, or several.
        rule: the rule that decides.
        max_draws: the cap.
    """
    ended, after = dict.fromkeys(("right", "wrong", "undecided", "draws"), 0 * error), dict[tuple[int, int], str]()
    here = {(0, 0): 1 + 0 * error}
    for _ in range(max_draws):
        still = sum(here.values(), 0 * error)
        if np.max(still) <= EXACT:
            break
        ended["draws"] = ended["draws"] + still
        there: dict[tuple[int, int], F] = {}
        for (right, rival), chance in here.items():
            for share, votes in ((1 - error, (right + 1, rival)), (error, (right, rival + 1))):
                # Only the lead matters to first-to-ahead-by, so that votes which both have are left out.
                least = min(votes) if isinstance(rule, FirstToAheadBy) else 0
                left = votes[0] - least, votes[1] - least
                if left not in after:
                    after[left] = _end(rule, *left)
                if after[left]:
                    ended[after[left]] = ended[after[left]] + chance * share
                else:
                    there[left] = there.get(left, 0 * error) + chance * share
        here = there
    ended["undecided"] = ended["undecided"] + sum(here.values(), 0 * error)
    return RaceEnd(**ended)


def _end(rule: Rule, right: int, rival: int) -> str:
    """Return the end of a race with these votes; empty while it is open."""
    tally = Tally(rule)
    # Of equals the one that was launched first wins; here that is the rival.
    tally.counts = {index: votes for index, votes in ((1, rival), (0, right)) if votes}
    tally.leading, tally.second, tally.counted = max(right, rival), min(right, rival), right + rival
    if rule.votes_needed(tally):
        return ""
    if rule.outcome(tally) != "decided":
        return "undecided"
    if rule.winner(tally) == 0:
        return "right"
    return "wrong"


def row_end(right: Sequence[float], k: int, max_draws: int) -> RaceEnd[float]:
    """Simulate how votes by field end, if fields err independently, always with the same random numbers. A row with a wrong field is wrong.

    Args:
        right: for each field the probability that a sample has it right.
        k: the lead at which all fields end.
        max_draws: the cap of an election.
    """
    rng, leads = np.random.default_rng(0), np.zeros((ROWS, len(right)), np.int64)
    all_right = draws = 0
    for _ in range(max_draws):
        draws += len(leads)
        leads += np.where(rng.random(leads.shape) < right, 1, -1)
        has_ended = (abs(leads) >= k).all(1)
        all_right += int((leads[has_ended] > 0).all(1).sum())
        leads = leads[~has_ended]
    wrong = ROWS - len(leads) - all_right
    return RaceEnd(right=all_right / ROWS, wrong=wrong / ROWS, undecided=len(leads) / ROWS, draws=draws / ROWS)
