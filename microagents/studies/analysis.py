"""Analysis of samples beyond error rates: how right rollouts are (LEAD, section 5).

A mean over steps has an interval over steps: steps differ, so the pooled samples of a few steps say little about others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import count, takewhile
from statistics import fmean

from msgspec import Struct

from microagents.elections.laws import Proportion, proportion
from microagents.studies.measuring import MeasuredStep


class PositionAccuracy(Struct, frozen=True, kw_only=True):
    """Accuracy of steps by their position: asked by themselves, or inside a rollout (LEAD, figure 7)."""

    position: int
    """0 for a step that is asked by itself, 1 for the first step of a rollout."""
    accuracy: Proportion | None
    """Mean over the steps; None without a prediction."""
    given_first: Proportion | None
    """The accuracy among rollouts whose first step is right; None for position 0."""
    at_hardest: float | None
    """Accuracy at the step that is right most rarely when it is asked by itself."""


def lookahead_in(steps: Sequence[MeasuredStep], horizon: int) -> tuple[PositionAccuracy, ...]:
    """Return the accuracy by position, up to the end of the longest rollout."""
    alone = {each.number: 1 - each.wrong / each.valid for each in steps if each.valid}
    hardest = min(alone, key=lambda number: (alone[number], number), default=None)
    at_hardest = None if hardest is None else alone[hardest]
    found = [PositionAccuracy(position=0, accuracy=_mean([*alone.values()]), given_first=None, at_hardest=at_hardest)]
    for position in range(horizon):
        by_step, after_right = dict[int, float](), list[float]()
        for start in steps:
            said = [each for each in start.rollouts if len(each) > position]
            given = [verdict for each in said if (verdict := each[position]) is not None]
            right = [verdict for each in said if each[0] and (verdict := each[position]) is not None]
            if given:
                by_step[start.number + position] = fmean(given)
            if right:
                after_right.append(fmean(right))
        found.append(
            PositionAccuracy(
                position=position + 1,
                accuracy=_mean([*by_step.values()]),
                given_first=_mean(after_right),
                at_hardest=None if hardest is None else by_step.get(hardest),
            )
        )
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
