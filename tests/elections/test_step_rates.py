"""Rates of steps: figures of planted steps against their truth, which code of the benchmark computes on its own."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

import numpy as np
import pytest
from msgspec import structs

from microagents.base.errors import InvalidUsage
from microagents.elections.laws import expected_votes, race_won
from microagents.elections.race_tables import ERRORS, OTHERS, race_table
from microagents.elections.step_rates import SeenStep, StepRates
from tests.benchmarks.step_rates import check_laws

HARD = SeenStep(right=1, wrong=(9,))
CLEAN = SeenStep(right=2)


def test_a_table_against_one_rival_is_the_law() -> None:
    table = race_table(3, 10_000)
    for index in (0, 60, 100, 120):
        error = float(ERRORS[index])
        assert table.loss[index, 0] == pytest.approx(race_won(error, 3))
        assert table.votes[index, 0] == pytest.approx(expected_votes(error, 3))


@pytest.mark.slow
def test_a_sampled_step_of_the_run_counts_by_its_own_samples_and_one_of_a_like_task_by_the_population() -> None:
    steps = [CLEAN] * 61 + [HARD] * 2
    own, like = StepRates(steps, 63), StepRates([structs.replace(each, is_own=False) for each in steps], 63)
    assert own.chance(3).high < 0.2
    assert like.chance(3).high > 0.3
    assert own.hard.low == own.hard.mid == 2
    assert own.hard_found == (61, 62)


@pytest.mark.slow
@pytest.mark.parametrize("share", [1.0, 1 / 3])
def test_intervals_hold_the_truth_of_steps_that_are_known(share: float) -> None:
    laws = [(0.998, 0.002)] * 150 + [(0.9, 0.05, 0.05)] * 30 + [(0.3, 0.5, 0.2)] * 3
    held = check_laws(laws, share, 5, ks=(1, 3))
    # Of 5 intervals that hold with .93 each, fewer than 4 do so once in 25 times.
    assert min(held.held.values()) >= 4


def test_the_bound_of_hard_steps_counts_those_that_no_sample_shows() -> None:
    found = StepRates([CLEAN] * 300, 1_000)
    assert found.hard_found == ()
    assert found.hard.high == found.unseen_hard == pytest.approx(700 * 3 / 300, rel=0.25)
    assert StepRates([CLEAN] * 300, 300).hard.high <= 1
    assert "the other 700 steps are of the kinds of the 300" in found.condition


def test_wrong_replies_that_differ_lose_fewer_elections_and_may_take_more_votes() -> None:
    alike = StepRates([SeenStep(right=4, wrong=(6,))] * 100, 100)
    apart = StepRates([SeenStep(right=4, wrong=(2, 1, 1, 1, 1))] * 100, 100)
    assert alike.decided(3).high < 0.4
    assert apart.decided(3).low > 0.6
    assert apart.calls(3).low > alike.calls(3).high


@pytest.mark.slow
def test_the_rates_of_a_run_are_those_of_its_sampled_steps_and_come_again() -> None:
    steps = [SeenStep(right=0, wrong=(10,), number=7), *[SeenStep(right=2, number=number) for number in range(20, 60)]]
    found = StepRates(steps, 100)
    errors, rivals = found.rates(3)
    assert errors.shape == rivals.shape == (100,)
    assert errors[7] > 0.6
    assert np.median(errors) < 0.05
    assert (errors == StepRates(steps, 100).rates(3)[0]).all()
    assert found.chance(3) == StepRates(steps, 100).chance(3)


def test_without_worse_steps_among_the_unsampled_less_is_risked() -> None:
    rates = StepRates([CLEAN] * 100 + [SeenStep(right=9, wrong=(1,))], 300)
    bounded = rates.if_none_is_worse()
    assert bounded.chance(6).low > 0.95 > rates.chance(6).low
    assert bounded.calls(6).mid <= rates.calls(6).mid
    whole = StepRates([CLEAN] * 100, 100)
    assert whole.if_none_is_worse().chance(6) == whole.chance(6)


def test_right_draws_leave_open_a_rate_at_which_they_are_all_right_in_one_measurement_of_twenty() -> None:
    for draws in (2, 10):
        hidden = StepRates([SeenStep(right=draws)] * 50, 100).hidden
        assert 0.04 < (1 - hidden) ** draws <= 0.05
    assert StepRates([SeenStep(right=9, wrong=(1,))] * 50, 100).hidden == 0


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: StepRates([], 10), "no sample is valid"),
        (lambda: StepRates([SeenStep(right=0, flagged=2)], 10), "no sample is valid"),
        (lambda: StepRates([CLEAN] * 3, 2), "3 steps were sampled of a run of 2 steps"),
        (lambda: StepRates([CLEAN], 2).chance(3, max_draws=2), "raise the cap"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(made: Callable[[], object], says: str) -> None:
    with pytest.raises(InvalidUsage, match=says):
        made()


@pytest.mark.parametrize(("wrong", "others"), [((3,), 0.3), ((1,) * 7, 200.0)])
def test_how_much_rare_wrong_replies_differ_is_taken_from_the_samples(wrong: tuple[int, ...], others: float) -> None:
    seen = [SeenStep(right=3, wrong=(6, *wrong), number=number) for number in range(30)]
    assert StepRates(seen, 30).others == others
    assert StepRates([SeenStep(right=3, wrong=(2, 1))], 30).others == OTHERS[0]


@pytest.mark.slow
def test_a_chance_may_be_as_high_as_it_is_with_three_equal_rivals_at_a_few_steps() -> None:
    seen = [SeenStep(right=3, wrong=(3, 2, 2), number=number) for number in range(10)]
    seen += [SeenStep(right=2, number=number) for number in range(10, 300)]
    found = StepRates(seen, 300).chance(5)
    # Ten elections with shares of .4, .2, .2 and .2 are all decided right with this chance (`tests.benchmarks.step_rates.ended`).
    assert found.low < 0.53 < found.high


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_more_draws_of_the_same_steps_narrow_the_chance_on_average() -> None:
    """Over 40 worlds of beta-distributed errors: of 60 steps, two draws of each, then eight more."""
    widths: dict[int, list[float]] = {2: [], 10: []}
    for world in range(40):
        rng = np.random.default_rng([9, world])
        errors = np.minimum(rng.beta(0.5, 25, 60), 0.95)
        wrong = rng.random((60, 10)) < errors[:, None]
        for draws, found in widths.items():
            counts = wrong[:, :draws].sum(1).tolist()
            seen = [
                SeenStep(right=draws - count, wrong=(count,) * (count > 0), number=at)
                for at, count in enumerate(counts)
            ]
            chance = StepRates(seen, 60, seed=world).chance(3)
            found.append(chance.high - chance.low)
    assert fmean(widths[10]) < 0.7 * fmean(widths[2])
