"""The truth that marks of plans are held against, and the share of a world whose marks are right."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.benchmarks.marks import Told, against, chance, lost, summary, told_of, worst

MARKED = Told(
    kind="equal", sampled=1_000, is_marked=True, is_right=True, row="", is_condition_true=True, is_possible=True
)


def test_the_truth_is_the_law_of_the_race_with_one_rival_and_kinder_with_several() -> None:
    for error, k in ((0.1, 3), (0.3, 2)):
        odds = (error / (1 - error)) ** k
        assert lost((1 - error, error), k) == pytest.approx(odds / (1 + odds), abs=1e-9)
    assert lost((0.4, *[0.06] * 10), 5) < 0.05 < lost((0.4, 0.6), 5)
    assert lost((0.55, 0.45), 12) > 0.2, "a race that is not over at the cap is lost"
    assert chance(against([0.1, 0.2]), 1) == pytest.approx(0.72)
    assert (chance(against([0.1]), 3) >= 0.95) is True, "a share counts what is True"
    assert worst(against([0.1, 0.45])) == pytest.approx(0.45)
    assert worst([]) == 0


def test_a_false_mark_or_too_few_marks_are_outside_of_the_aim() -> None:
    false, none = structs.replace(MARKED, is_right=False), structs.replace(MARKED, is_marked=False, is_right=None)
    for worlds, is_met in (([MARKED, none], True), ([MARKED, false], False), ([MARKED, none, none], False)):
        assert ("OUTSIDE" in summary(worlds)[0]) != is_met


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_plan_of_equal_steps_is_marked_and_right_and_of_a_part_of_them_not_marked() -> None:
    of_all, of_part = (told_of(("equal", sampled, 0, 11)) for sampled in (1_000, 300))
    assert (of_all.is_marked, of_all.is_right) == (True, True)
    assert not of_part.is_marked
