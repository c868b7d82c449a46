"""The law of votes by field, beside races that are held here sample by sample."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from microagents.elections.races import row_end

RACES, MOST = 20_000, 60


def held(right: list[float], k: int, seed: int) -> tuple[float, float, float]:
    """Hold races: the shares that end right and wrong, and the mean number of samples."""
    rng = np.random.default_rng(seed)
    steps = np.where(rng.random((RACES, MOST, len(right))) < right, 1, -1)
    leads = steps.cumsum(axis=1)
    ends = np.all(abs(leads) >= k, axis=2)
    is_over = np.max(ends, axis=1)
    first = np.where(is_over, ends.argmax(axis=1), MOST - 1)
    is_right = np.all(leads[np.arange(RACES), first] >= k, axis=1)
    return float(is_right.mean()), float((is_over & ~is_right).mean()), float(first.mean()) + 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_law_agrees_with_races_of_fields_that_err_independently(seed: int) -> None:
    rng = Random(seed)
    right = [rng.choice([0.8, 0.9, 0.95, 0.99]) for _ in range(rng.randint(2, 9))]
    k = rng.randint(2, 3)
    end, (won, lost, draws) = row_end(right, k, MOST), held(right, k, seed)
    assert end.right == pytest.approx(won, abs=0.005)
    assert end.wrong == pytest.approx(lost, abs=0.005)
    assert end.draws == pytest.approx(draws, rel=0.02)


@pytest.mark.slow
def test_one_field_is_the_race_of_the_paper_and_twenty_take_eight_samples() -> None:
    one = row_end([0.9], 3, 1_000)
    assert one.right == pytest.approx(0.9**3 / (0.9**3 + 0.1**3), abs=1e-3)
    many = row_end([0.9] * 20, 3, 100)
    assert many.right == pytest.approx(0.9958, abs=1e-3)
    assert many.draws == pytest.approx(7.78, rel=0.01)


def test_a_cap_leaves_rows_open() -> None:
    end = row_end([0.7] * 5, 3, 6)
    assert end.undecided > 0.3
    assert end.right + end.wrong + end.undecided == pytest.approx(1, abs=1e-6)
