"""The law of votes by field: a row ends once all of its fields lead by k at the same time.

There is no closed form. Here the fields err independently and each has one rival; the time of the end comes from a recursion that looks
back over a few samples only, and is right to a percent. Where samples err in several fields together, it is far off: hold votes on a pilot
of rows instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from microagents.elections.races import RaceEnd

WINDOW = 5
"""Number of samples that the recursion looks back over."""
NEGLIGIBLE = 1e-10


def row_end(right: Sequence[float], k: int, max_draws: int) -> RaceEnd[float]:
    """Compute how votes by field end, by inclusion and exclusion over the last `WINDOW` samples. A row with a wrong field is wrong.

    Args:
        right: for each field the probability that a sample has it right.
        k: the lead at which all fields end.
        max_draws: the cap of an election.
    """
    fields, is_open, all_right, draws = _Fields(right, k), 1.0, 0.0, 0.0
    for now in range(1, max_draws + 1):
        draws += is_open
        fields.vote()
        if now < k:
            continue
        before = range(min(WINDOW, now) - 1, 0, -1)  # so many samples ago
        none_before = fields.none_end(before)
        if is_open * none_before <= NEGLIGIBLE:
            break
        terms = [(-1) ** len(each) * fields.chance((*each, 0), is_right=True) for each in _subsets(before)]
        all_right += is_open * sum(terms) / none_before
        is_open *= fields.none_end((*before, 0)) / none_before
    return RaceEnd(right=all_right, wrong=max(0.0, 1 - is_open - all_right), undecided=is_open, draws=draws)


class _Fields:
    """Leads of all fields over the last samples. A lead of more than k + `WINDOW` is as good as that."""

    def __init__(self, right: Sequence[float], k: int) -> None:
        rates, number = np.unique(np.asarray(right, dtype=float), return_counts=True)
        self._rates, self._number = rates[:, None], number
        self._leads = np.arange(-k - WINDOW, k + WINDOW + 1)
        self._k = k
        self._last = [np.tile(self._leads == 0, (len(rates), 1)).astype(float)]
        """For each of the last samples the probability of each lead, by rate of a field; the newest one is the last."""

    def vote(self) -> None:
        """Add a sample."""
        self._last = [*self._last, self._step(self._last[-1])][-WINDOW:]

    def none_end(self, ago: Sequence[int]) -> float:
        """Return the probability that at none of some times all fields lead."""
        return sum([(-1.0) ** len(each) * self.chance(each) for each in _subsets(ago)], 0.0)

    def chance(self, ago: Sequence[int], *, is_right: bool = False) -> float:
        """Return the probability that all fields lead at all of some times; at the last one for the right value only, if wanted."""
        if not ago:
            return 1.0
        ahead = abs(self._leads) >= self._k
        chances = self._last[-1 - ago[0]]
        for before, now in zip(ago, [*ago[1:], ago[-1]], strict=True):
            chances = chances * ahead
            for _ in range(before - now):
                chances = self._step(chances)
        if is_right:
            chances = chances * (self._leads > 0)
        return float(np.prod(chances.sum(axis=1) ** self._number))

    def _step(self, chances: NDArray[np.float64]) -> NDArray[np.float64]:
        after = np.zeros_like(chances)
        after[:, 1:] += chances[:, :-1] * self._rates
        after[:, :-1] += chances[:, 1:] * (1 - self._rates)
        after[:, -1] += chances[:, -1] * self._rates[:, 0]
        after[:, 0] += chances[:, 0] * (1 - self._rates[:, 0])
        return after


def _subsets(times: Sequence[int]) -> list[tuple[int, ...]]:
    return [each for size in range(len(times) + 1) for each in combinations(times, size)]
