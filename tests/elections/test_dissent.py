"""The sequential test of an election's votes: how often it is wrong about an easy step, and how soon it finds a hard one."""

from __future__ import annotations

from random import Random

import pytest

from microagents.elections.dissent import is_improbable


def noticed_at(right: list[bool], p: float, alpha: float, k: int) -> int | None:
    """The vote at which an election ahead by k is found improbable; None if it is decided before that. All wrong votes agree."""
    votes = {True: 0, False: 0}
    for number, each in enumerate(right, start=1):
        votes[each] += 1
        if is_improbable(min(votes.values()), number, p, alpha):
            return number
        if abs(votes[True] - votes[False]) >= k:
            return None
    return None


@pytest.mark.slow
@pytest.mark.parametrize(("p", "alpha", "k"), [(0.9, 0.05, 4), (0.98, 0.01, 6), (0.998, 0.005, 10), (0.7, 0.02, 12)])
def test_easy_steps_are_noticed_no_more_often_than_alpha(p: float, alpha: float, k: int) -> None:
    random, elections = Random(k), 20_000
    alarms = sum(
        noticed_at([random.random() < p for _ in range(400)], p, alpha, k) is not None for _ in range(elections)
    )
    assert alarms / elections <= alpha + 4 * (alpha / elections) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize(("k", "least", "most"), [(3, 0.5, 0.65), (14, 0.0, 0.04)])
def test_a_hard_step_is_noticed_if_the_margin_leaves_time_for_it(k: int, least: float, most: float) -> None:
    """With p = .998, and .3 of the votes right at a hard step."""
    random, elections = Random(1), 4_000
    found = sum(
        noticed_at([random.random() < 0.3 for _ in range(400)], 0.998, 0.005, k) is not None for _ in range(elections)
    )
    assert least <= 1 - found / elections <= most
