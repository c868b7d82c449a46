"""The threshold ``at_least`` of a model that weighs options: fitted to a target error on one half of the steps, held against the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from microagents.elections.election import Ballot
from microagents.elections.rules import ORDERS, likeliest
from microagents.journal.reading import Reader
from microagents.studies.measured import Threshold, proportion
from microagents.studies.measuring import FIRST, MeasuredStep

TARGETS = (0.05, 0.01, 0.001)
"""Shares of wrong decisions to which thresholds are fitted."""
LEAST = 0.5001
"""Smallest threshold: the likeliest option must have more than one half."""


def thresholds_in(reader: Reader, measured: Sequence[MeasuredStep]) -> tuple[Threshold, ...]:
    """Fit a threshold to each target; none if the model weighs no options, or if nothing judges its replies."""
    weighed = list(_weighed(reader, measured))
    Random(0).shuffle(weighed)  # noqa: S311 - no secret; kinds of steps may take turns
    half = len(weighed) // 2
    return tuple([_threshold(target, weighed[:half], weighed[half:]) for target in TARGETS]) if half else ()


def _weighed(reader: Reader, measured: Sequence[MeasuredStep]) -> Iterator[tuple[float, bool]]:
    """Yield the mean probability of the likeliest option of each step, and whether it is right. The first samples have both orders."""
    for step in measured:
        recorded = reader.decision_at(f"0/step/{step.number}/0-{FIRST}")
        ballots = [each for each in recorded.ballots if isinstance(each, Ballot) and each.shares] if recorded else []
        if len({each.seq % ORDERS for each in ballots}) == ORDERS == len(ballots) and step.right is not None:
            led = {likeliest(each.shares): vote for each, vote in zip(ballots, step.votes, strict=False)}
            means = {option: sum(each.shares.get(option, 0.0) for each in ballots) / ORDERS for option in led}
            yield means[likeliest(means)], step.right[led[likeliest(means)]]


def _threshold(target: float, fitted: Sequence[tuple[float, bool]], held: Sequence[tuple[float, bool]]) -> Threshold:
    at_least = _fitted(target, fitted)
    if at_least is None:
        return Threshold(target=target, at_least=None)
    decided = [is_right for p, is_right in held if p >= at_least]
    return Threshold(
        target=target,
        at_least=at_least,
        decided=proportion(len(decided), len(held)),
        wrong=proportion(decided.count(False), len(decided)) if decided else None,
    )


def _fitted(target: float, weighed: Sequence[tuple[float, bool]]) -> float | None:
    """Return the smallest threshold with at most the target's share of wrong decisions; None if there is none."""
    for p in sorted({p for p, _ in weighed if p > LEAST}):
        decided = [is_right for other, is_right in weighed if other >= p]
        if decided.count(False) <= target * len(decided):
            return max(LEAST, int(p * 10_000) / 10_000)  # as it is typed
    return None
