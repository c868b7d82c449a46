"""Votes by field, simulated: a row ends once all of its fields lead by k at the same time.

There is no closed form. Here the fields err independently and each has one rival. Where samples err in several fields together, this is
far off: hold votes on a pilot of rows instead.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from microagents.elections.races import RaceEnd

ROWS = 20_000
"""Number of simulated rows: a share of .5 is known to .007 (95 %), one of .99 to .0014."""


def row_end(right: Sequence[float], k: int, max_draws: int) -> RaceEnd[float]:
    """Simulate how votes by field end, always with the same random numbers. A row with a wrong field is wrong.

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
