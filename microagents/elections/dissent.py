"""Whether the votes of an election are improbable for a step at which the model is as good as calibration says: a sequential test.

Under the null hypothesis every vote is right with probability at least p. At least ``votes - leading`` of the votes are wrong, whichever is
right. The statistic is the mean, over some rates of wrong votes above 1 - p, of the likelihood ratio of that rate to 1 - p. It is a
martingale that begins at 1, so it ever exceeds 1/alpha with probability at most alpha (Ville's inequality), however often one looks.
"""

from __future__ import annotations

from functools import lru_cache
from math import exp, log, log1p

RATES = tuple(tenth / 10 for tenth in range(1, 10))
"""Rates of wrong votes at a hard step."""


@lru_cache(maxsize=65_536)
def is_improbable(dissent: int, votes: int, p: float, alpha: float) -> bool:
    """Return whether this number of votes against the leader is evidence of a hard step.

    Args:
        dissent: number of votes for another reply than the leading one.
        votes: number of all votes.
        p: probability that a vote is right, by calibration, between 0 and 1.
        alpha: greatest probability that an election with this p is ever called improbable.
    """
    rates = [rate for rate in RATES if rate > 1 - p]
    ratios = [dissent * log(rate / (1 - p)) + (votes - dissent) * (log1p(-rate) - log(p)) for rate in rates]
    greatest = max(ratios, default=0.0)
    total = sum(exp(each - greatest) for each in ratios)
    return bool(ratios) and greatest + log(total / len(ratios)) > -log(alpha)


def alpha_of(number: int, steps: int | None, false_alarms: float) -> float:
    """Compute the share of a run's rate of false alarms that one step has.

    Shares are equal, or fall if the number of steps is unknown.

    Args:
        number: number of the step, from 0.
        steps: number of steps of the chain, if it is known.
        false_alarms: expected number of easy steps of the run that are called improbable, at most.
    """
    return min(0.5, false_alarms * (1 / ((number + 1) * (number + 2)) if steps is None else 1 / max(1, steps)))
