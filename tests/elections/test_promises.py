"""Laws of promises and of audits, against sums of whole numbers."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import comb

import numpy as np
import pytest

from microagents.elections.promises import (
    CONFIDENCE,
    NEVER,
    LabelledRow,
    confidence_of,
    find_thresholds,
    fixed_order,
    most_lost,
    wrong_bound,
)
from microagents.studies.promised import WantedPromise
from tests.benchmarks.promise import drift, promised


def exact_binomial(most: int, trials: int, p: Fraction) -> Fraction:
    return sum((comb(trials, each) * p**each * (1 - p) ** (trials - each) for each in range(most + 1)), Fraction())


def row(cheap: float, *, right: bool = True, strong: float = 1.0, strong_right: bool = True) -> LabelledRow:
    return LabelledRow(cheap=cheap, cheap_is_right=right, strong=strong, strong_is_right=strong_right)


@pytest.mark.parametrize(("wrong_at_most", "labels"), [(0.01, (405, 1_445)), (0.02, (200, 720)), (0.05, (80, 290))])
def test_a_promise_takes_as_many_labels_as_stated(wrong_at_most: float, labels: tuple[int, int]) -> None:
    needed = WantedPromise(wrong_at_most=wrong_at_most, confidence=CONFIDENCE).labels()
    assert all(number - 5 < each <= number for each, number in zip(needed, labels, strict=True)), needed


def test_a_promise_is_kept_though_labels_are_added_after_tests_that_failed() -> None:
    worlds, tests = 20_000, (79, 150, 220, 287)
    lost = np.cumsum(np.random.default_rng(1).random((worlds, tests[-1])) < 0.0501, axis=1)

    def broken(confidence: Callable[[int], float]) -> float:
        passed = [lost[:, n - 1] <= most_lost(n, 0.05, confidence(i)) for i, n in enumerate(tests)]
        return float(np.any(passed, axis=0).mean())

    assert broken(lambda test: confidence_of(test, CONFIDENCE)) <= 0.1
    assert broken(lambda _: CONFIDENCE) > 0.15, "without a share for each test"


@pytest.mark.parametrize("labels", [44, 45, 80, 300])
def test_the_test_passes_with_as_many_lost_rows_as_the_exact_tail_allows(labels: int) -> None:
    most, tenth, p = most_lost(labels, 0.05, CONFIDENCE), Fraction(1, 10), Fraction(1, 20)
    assert most < 0 or exact_binomial(most, labels, p) <= tenth
    assert exact_binomial(most + 1, labels, p) > tenth


def test_thresholds_are_tested_from_the_strictest_and_end_at_the_first_that_fails() -> None:
    order = list(fixed_order())
    assert order[0] == (NEVER, 1.0)
    assert order[-1] == (0.0, 0.0)
    rows = [*[row(1.0)] * 200, *[row(0.8, right=False)] * 25, *[row(0.5)] * 400]
    found = find_thresholds(rows, 0.05, CONFIDENCE)
    assert found is not None
    assert found.thresholds == (0.81, 0.0)
    assert found.lost == 0


def test_rows_stay_open_where_the_strong_model_is_too_often_wrong() -> None:
    rows = [*[row(1.0, right=False)] * 200, *[row(1.0, right=False, strong=0.8, strong_right=False)] * 40]
    found = find_thresholds(rows, 0.05, CONFIDENCE)
    assert found is not None
    assert found.thresholds == (NEVER, 0.81)
    assert [rows[0].path(found.thresholds), rows[-1].path(found.thresholds)] == ["strong", None]


def test_too_few_labels_promise_nothing() -> None:
    assert find_thresholds([row(1.0)] * 44, 0.05, CONFIDENCE) is None
    assert find_thresholds([row(1.0)] * 45, 0.05, CONFIDENCE) is not None


@pytest.mark.parametrize(
    ("wrong", "judged", "population"), [(0, 100, 2_000), (3, 100, 2_000), (7, 40, 60), (2, 60, 60)]
)
def test_an_audit_bounds_by_the_largest_number_that_its_sample_does_not_exclude(
    wrong: int, judged: int, population: int
) -> None:
    def chance(marked: int) -> Fraction:
        ways = sum(comb(marked, each) * comb(population - marked, judged - each) for each in range(wrong + 1))
        return Fraction(ways, comb(population, judged))

    marked = round(wrong_bound(wrong, judged, population) * population)
    assert chance(marked) > Fraction(1, 20)
    assert marked == population - judged + wrong or chance(marked + 1) <= Fraction(1, 20)


@pytest.mark.slow
def test_labels_of_the_first_rows_break_a_promise_under_drift_and_random_ones_keep_it() -> None:
    rng = np.random.default_rng(3)
    broken = {
        first_rows: sum(promised(rng, drift(rng), 300, 0.05, first_rows=first_rows).is_broken for _ in range(60))
        for first_rows in (False, True)
    }
    assert broken[False] <= 12  # in 60 worlds at .10 more have a chance of .005
    assert broken[True] > 30
