"""Analysis of samples beyond error rates: how right rollouts are (LEAD, section 5).

A mean over steps has an interval over steps: steps differ, so the pooled samples of a few steps say little about others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import count, takewhile
from statistics import fmean

from microagents.elections.laws import Proportion, proportion
from microagents.studies.measuring import MeasuredStep


def lookahead_in(steps: Sequence[MeasuredStep], horizon: int) -> tuple[Proportion | None, ...]:
    """Return the accuracy of steps by themselves, then at each position of rollouts up to the longest; None without a prediction."""
    found = [_mean([1 - each.wrong / each.valid for each in steps if each.valid])]
    for position in range(horizon):
        shares = []
        for start in steps:
            said = [each[position] for each in start.rollouts if len(each) > position]
            given = [verdict for verdict in said if verdict is not None]
            if given:
                shares.append(fmean(given))
        found.append(_mean(shares))
    return tuple(found)


def errors_ahead(steps: Sequence[MeasuredStep], hard: Sequence[int]) -> tuple[float, ...]:
    """Return how often rollouts err at hard steps that they reach from one step before, from two, and so on, as far as they do.

    To each are added half a right and half a wrong prediction: a few right ones do not tell that rollouts never err.
    """
    wrong = defaultdict[int, list[bool]](list)
    for start in steps:
        for rollout in start.rollouts:
            for at in [number - start.number for number in hard if 0 < number - start.number < len(rollout)]:
                wrong[at].append(rollout[at] is not True)
    reached = [wrong[at] for at in takewhile(wrong.__contains__, count(1))]
    return tuple([(sum(each) + 0.5) / (len(each) + 1) for each in reached])


def _mean(shares: Sequence[float]) -> Proportion | None:
    """Return the mean of shares, one of each step, with its interval over the steps; None without any."""
    if not shares:
        return None
    return proportion(min(sum(shares), len(shares)), len(shares))
