"""Calibrations of simulated models whose error rates are known, plans made of them, and simulations of what was planned.

Every statistical test fixes its seed.
"""

from __future__ import annotations

import asyncio
from datetime import date
from math import exp
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec import structs

from microagents import InvalidUsage, compare, run
from microagents.elections.error_rates import chance_of
from microagents.elections.laws import race_won
from microagents.models.model import ModelSpec
from microagents.models.prices import OwnPrice
from microagents.models.simulation.simulated import SimulatedModel
from microagents.replies.chat import Prompt, system_with_instructions
from microagents.runs.driver.forecast import Forecast
from microagents.runs.inspection.runs import inspect_run
from microagents.studies.bills import Bill, Terms
from microagents.studies.calibration import CalibrationReport, calibrate, calibration_from
from microagents.studies.measured import Latency, ModelCalibration, pooled
from microagents.studies.planning import plan_runs
from microagents.studies.sampling.calibration import CalibratedStep
from microagents.studies.simulation import simulate
from microagents.systems.chains.lead import Lead
from microagents.systems.chains.maker import Maker
from microagents.tasks.drift import Drift, Onward, Place
from microagents.tasks.hanoi import Hanoi
from microagents.tasks.multiplication import Multiplication
from tests.benchmarks.calibration import calibration

TASK = Drift(length=1_000)
EASY = "sim:gpt-4.1-mini@error=0.02,alternatives=1"
HARD = "sim:gpt-4.1-mini@error=0.005,hard=0.02,hard_error=0.7"
WRONG = "sim:gpt-4.1-mini@error=0.7"


def calibrated(*models: str, task: Any = TASK, **options: Any) -> CalibrationReport:
    return asyncio.run(calibrate(task, models=models, **{"steps": 400, **options}))


def only(*models: str, **options: Any) -> ModelCalibration:
    return calibrated(*models, **options).models[0]


def test_few_samples_of_steps_suffice_where_they_are_right() -> None:
    found = only("sim:perfect")
    assert (found.draws, len(found.steps), found.calls) == (800, 400, 800)
    assert (found.p.share, found.p.high, found.rates.hard) == (1.0, 1.0, 0.0)
    assert found.p.low < 1 - 3 / 400


def test_a_step_with_an_error_or_a_flag_is_asked_eight_times_more() -> None:
    found = only("sim:gpt-4.1-mini@error=0.1,flag=0.1")
    for step in found.steps:
        assert step.drawn == (2 if (step.first_valid, step.first_wrong) == (2, 0) else 10)
    assert found.valid.low < 0.9 < found.valid.high
    assert found.p.low < 0.9 < found.p.high


def test_hard_steps_are_those_that_the_model_finds_hard() -> None:
    found = only(HARD, steps=1_000)
    model = SimulatedModel(ModelSpec.parse(HARD), [TASK], 0)
    state, hard = TASK.start(), set()
    for number in range(1_000):
        asked = TASK.prompt(state)
        if model.is_hard(Prompt(system=system_with_instructions(asked.system, Onward, TASK.format), user=asked.user)):
            hard.add(number)
        state = TASK.advance(state, TASK.oracle(state))
    assert hard
    assert len(set(found.hard) - hard) <= 0.05 * len(found.hard)
    assert len(hard & set(found.hard)) >= 0.75 * len(hard)
    assert found.rates.correlation > 0.3
    independent, measured = found.chances(3).independent, found.chances(3).measured
    assert independent > 0.9
    assert measured.high < 0.01


@pytest.mark.parametrize(
    ("model", "steps", "verdict"),
    [
        (EASY, 400, "votes-help"),
        (HARD, 400, "hard-steps"),
        (WRONG, 100, "voting-hurts"),
        ("sim:perfect", 10, "too-few"),
    ],
)
def test_the_verdict_is_of_a_closed_list(model: str, steps: int, verdict: str) -> None:
    assert only(model, steps=steps).verdict(0.95)[0] == verdict


def made(
    *, right_alike: int = 10, wrong: int = 0, steps: int = 100, total: int = 1_000, **known: Any
) -> ModelCalibration:
    """A calibration whose steps are all alike, with ten samples each."""
    first = min(2, wrong)
    each = [CalibratedStep(number, first, 2, wrong, 10, 10, wrong, right_alike, {}) for number in range(steps)]
    facts = {"model": "made:made", "calls": 1, "input_tokens": 1, "output_tokens": 1, "cost_usd": None, **known}
    return ModelCalibration(run_id="made", total=total, steps=tuple(each), **facts)


def test_right_replies_that_differ_need_votes_by_meaning() -> None:
    assert made(right_alike=4).verdict(0.95)[0] == "too-many-answers"
    assert made(right_alike=6).verdict(0.95)[0] == "votes-help"


def test_a_verdict_tells_how_many_steps_are_missing() -> None:
    assert made(steps=20).verdict(0.95) == ("too-few", "too few steps for this promise: 39 more are needed")
    assert made(steps=20, total=30).verdict(0.95)[1] == "too few steps for this promise: 10 more are needed"
    kind, said = made(steps=3, total=3).verdict(0.95)
    assert (kind, said[:43]) == ("small-task", "all 3 steps of the task are too few for thi")


def test_a_model_of_unknown_price_is_planned_without_a_cost() -> None:
    plan = plan_runs(TASK, [made()], 100, 0.9)
    assert {each.cost_usd for each in plan.runs} == {Bill(low=None, mid=None, high=None)}
    assert plan.best is not None
    assert plan_runs(TASK, [made()], 100, 0.9, budget_usd=100.0).best is None


LUNA = {"openai:gpt-6-luna": OwnPrice(input=1.0, output=10.0, cached=0.1)}


class LongTask(Drift):
    """A walk with a constant part of the prompt that providers cache."""

    def prompt(self, state: Place) -> Prompt:
        return Prompt(system="Read this. " * 500, user=f"Number: {state.number}")


@pytest.mark.parametrize(("task", "cached"), [(TASK, 0), (LongTask(length=100), 1_000)])
def test_a_cost_ranges_by_savings(task: Drift, cached: int) -> None:
    # A call reads 2,000 tokens and writes 100: 0.003 US dollars.
    usage: dict[str, Any] = {"calls": 10, "input_tokens": 20_000, "output_tokens": 1_000, "cost_usd": 0.028}
    found = made(model="openai:gpt-6-luna", prices=LUNA, **usage)
    bill = Terms(found, task).bill(3)  # two requests for three votes, at half the price
    constant = len(system_with_instructions(task.prompt(Place()).system, Onward, task.format)) // 4 if cached else 0
    assert constant >= cached
    read = (2_000 - constant) * 1.0 + constant * 0.1
    assert bill.low == pytest.approx((read * 2 / 3 + 1_000) / 2e6, rel=1e-3)
    assert bill.mid == pytest.approx(0.0028)
    assert bill.high == pytest.approx(0.003)
    notes = " ".join(Terms(found, task).notes(date(2026, 11, 1)))
    assert ("below the 1,024 from which on the provider caches" in notes) == (not cached)
    assert ("a cache that holds" in notes) == bool(cached)


def test_a_plan_tells_of_a_limit_that_throttles_and_of_an_announced_end() -> None:
    usage: dict[str, Any] = {"calls": 10, "input_tokens": 1_000, "output_tokens": 5_000, "cost_usd": 0.1}
    latency = Latency(p50=1.0, p95=2.0, p99=3.0)
    found = made(model="openai:gpt-4.1-mini", latency=latency, limits={"output tokens": 1_000}, **usage)
    plan = plan_runs(TASK, [found], 100, 0.9)
    assert plan.best is not None
    assert plan.best.duration_s == pytest.approx(plan.best.calls * 500 / 1_000 * 60)
    said = " ".join(plan.notes[found.model,])
    assert "the limit of 1,000 output tokens a minute makes a run last longer than its waiting" in said
    assert "the model will be shut down on 2027-01-14" in said


def test_a_deadline_is_a_further_condition() -> None:
    found = made(latency=Latency(p50=10.0, p95=20.0, p99=30.0))
    best = plan_runs(TASK, [found], 100, 0.9).best
    assert best is not None
    assert best.duration_s is not None
    assert plan_runs(TASK, [found], 100, 0.9, deadline_s=best.duration_s).best == best
    within = plan_runs(TASK, [found], 100, 0.9, deadline_s=best.duration_s - 1).best
    assert within is None or (within.duration_s or 0) < best.duration_s
    assert plan_runs(TASK, [found], 100, 0.9, deadline_s=1.0).best is None
    assert plan_runs(TASK, [made()], 100, 0.9, deadline_s=1e9).best is None  # its latency is unknown
    slow = plan_runs(TASK, [found], 100, 0.9, concurrency=1).runs[0]
    assert slow.duration_s == pytest.approx(100 * 10.0, rel=0.2)


def test_a_planned_duration_is_that_of_the_run() -> None:
    found = only("sim:gpt-4.1-mini@error=0.05,alternatives=1,latency=0.02", steps=400, task=Drift(length=400))
    planned = next(each for each in plan_runs(TASK, [found], 300, 0.9).runs if each.k == 2)
    real = simulate(Drift(length=300), model=found.simulated, strategy=Maker(k=2), runs=3)
    assert planned.duration_s == pytest.approx(real.duration_s, rel=0.15)


def test_all_steps_of_a_small_task_leave_no_condition_and_a_hundred_clean_ones_three_percent_of_hard_ones() -> None:
    found = only("sim:perfect", task=Drift(length=30))
    assert (found.condition(30), found.most_hard(30)) == ("all steps of the task were sampled", 0.0)
    assert (
        found.condition(10_000)
        == "if no step is harder than those seen: 30 steps with 0 hard ones leave up to 950 hard ones in 10,000 (95 %)"
    )
    assert only("sim:perfect", steps=100).condition(10**6).endswith("leave up to 29,513 hard ones in 1,000,000 (95 %)")


def test_two_models_are_calibrated_on_the_same_steps() -> None:
    report = calibrated(HARD, "sim:o3-mini@error=0.3,hard=0")
    one, other = report.models
    assert [each.number for each in one.steps] == [each.number for each in other.steps]
    assert [each.models for each in report.missed] == [(one.model, other.model)]
    same = calibrated(HARD, HARD.replace("0.005", "0.006")).missed[0]
    assert same.together > 10 * same.independent  # one model's hard steps are hard at both error rates


def test_a_calibration_continues_where_it_ended() -> None:
    stopped = calibrated(EASY, max_calls=300)
    assert (stopped.outcome, stopped.models) == ("stopped", ())
    whole, again = only(EASY, max_calls=2_000), calibrated(EASY, max_calls=2_000)
    assert again.recorded_at is not None
    assert again.models[0].steps == whole.steps == only(EASY, run_id="anew").steps


def test_the_cheapest_run_that_reaches_the_target_is_marked() -> None:
    calibrations = calibrated(EASY, "sim:o3-mini@error=0.02,alternatives=1").models
    plan = plan_runs(TASK, calibrations, 1_000, 0.95)
    best = plan.best
    assert best is not None
    runs = [each for each in plan.runs if len(each.models) == 1 and not each.options and each.k is not None]
    assert best.models == (EASY,)
    assert (
        best.chance.low
        >= 0.95
        > max(each.chance.low for each in runs if each.models == (EASY,) and (each.k or 0) < (best.k or 0))
    )
    assert best.cost_usd.mid is not None
    assert all(best.cost_usd.mid <= (each.cost_usd.mid or 0) for each in runs if each.chance.low >= 0.95)
    assert plan_runs(TASK, calibrations, 1_000, 0.95, budget_usd=0.01).best is None


def test_lead_and_a_ladder_succeed_as_often_as_their_rows_say() -> None:
    found = only("sim:gpt-4.1-mini@error=0.005,hard=0.03,hard_error=0.8", steps=1_000, task=Drift(length=1_000))
    runs = {each.strategy: each for each in plan_runs(TASK, [found], 60, 0.9).runs if each.k is None or each.options}
    lead, ladder = runs["lead"], runs["maker"]
    assert ladder.options["ladder"] == "lookahead,judge"
    best = plan_runs(TASK, [made()], 100, 0.9).best
    assert best is not None
    assert not best.options  # by assumption alone no strategy goes before votes that a law judges
    done = simulate(Drift(length=60), model=found.simulated, strategy=Lead(speculate=False), runs=40)
    assert done.success.low <= lead.chance.high
    assert lead.chance.low <= done.success.high
    assert done.calls == pytest.approx(lead.calls, rel=0.2)
    assert lead.chance.share > 1.5 * ladder.chance.share  # votes decide a hard step before they are improbable


def test_a_pool_of_two_misses_what_both_miss() -> None:
    # Models of different names find different steps hard; those of one name the same.
    one, other = (f"sim:{name}@error=0.005,hard=0.02,hard_error=0.7" for name in ("gpt-4.1-mini", "o3-mini"))
    apart = calibrated(one, other, steps=1_000).models
    alike = calibrated(one, one.replace("0.005", "0.006"), steps=1_000).models
    chances = []
    for models in (apart, alike):
        both = pooled(*models)
        assert both is not None
        chances.append(both.chances(5, 30).measured)
        assert chances[-1].low <= chances[-1].share <= chances[-1].high
    assert chances[0].share > 0.75
    assert chances[1].share < 0.75
    simulation = simulate(Drift(length=30), model=[one, other], strategy=Maker(k=5, speculate=False), runs=60)
    assert simulation.success.low <= chances[0].high
    assert chances[0].low <= simulation.success.high
    rows = [each for each in plan_runs(TASK, apart, 30, 0.9).runs if len(each.models) == 2]
    assert {each.models for each in rows} == {tuple(each.model for each in apart)}


def test_an_interval_holds_the_chance_under_a_smooth_tail_of_ever_harder_steps() -> None:
    """With error rates of beta(.2, 20), whose hardest steps a sample rarely has; 5 of these 8 plans did without the tail."""
    rates = [Random(f"truth {number}").betavariate(0.2, 20) for number in range(20_000)]
    true = chance_of(sum(race_won(rate, 4) for rate in rates) / len(rates), 16_383)
    plans = [calibration(Random(seed), lambda rng: rng.betavariate(0.2, 20))[0].chances(4, 16_383) for seed in range(8)]
    assert sum(each.measured.low <= true <= each.measured.high for each in plans) >= 7


def test_simulated_runs_succeed_as_the_plan_said() -> None:
    task = Drift(length=60)
    found = only("sim:gpt-4.1-mini@error=0.1,flag=0.02,alternatives=1", steps=1_000, task=TASK)
    chance = found.chances(2, 60).measured
    simulation = simulate(task, model=found.simulated, strategy=Maker(k=2, speculate=False), runs=60)
    assert simulation.success.low <= chance.high
    assert chance.low <= simulation.success.high
    assert simulation.calls == pytest.approx(found.chances(2, 60).calls, rel=0.05)


def test_a_simulation_lasts_as_long_as_the_calls_of_the_calibration() -> None:
    found = only("sim:perfect@latency=0.05,sigma=0.4", task=Drift(length=100), steps=100)
    assert found.latency is not None
    assert found.latency.p50 == pytest.approx(0.05, rel=0.15)
    assert found.latency.sigma == pytest.approx(0.4, abs=0.15)
    again = calibration_from(Path("runs"), found.run_id)
    assert again.latency == found.latency
    strategy = Maker(k=1, speculate=False)
    simulation = simulate(Drift(length=50), model=again.simulated, strategy=strategy, runs=10)
    mean_s = found.latency.p50 * exp(found.latency.sigma**2 / 2)
    assert simulation.duration_s == pytest.approx(50 * mean_s, rel=0.1)
    assert only("sim:perfect", steps=10).latency is None


def test_a_run_is_expected_as_calibrated_and_tells_how_it_lies_to_that() -> None:
    found, told = only(EASY), list[Forecast]()
    result = asyncio.run(run(TASK, models=EASY, k=3, calibration=found, on_forecast=told.append))
    promise = found.promise(3, 1_000)
    assert told[0].calls == promise.calls
    assert told[0].cost_usd == pytest.approx(promise.cost_usd)
    assert "as calibrated; chance that all steps of an input are right: " in str(told[0])
    assert str(told[0]).endswith(found.condition(1_000))
    assert result.account.promise == inspect_run(Path("runs"), result.run_id).account.promise == promise
    assert f"promised   {promise.calls:,.0f} calls, $" in str(result)
    assert "0 errors, as a chance of" in str(result)


def test_a_run_with_more_errors_than_promised_says_so() -> None:
    worse = "sim:gpt-4.1-mini@error=0.2,alternatives=1"
    promised = structs.replace(only(EASY), model=worse)
    result = asyncio.run(run(TASK, models=worse, k=3, calibration=promised))
    assert result.account.errors
    assert f"{result.account.errors} errors, MORE than a chance of" in str(result)


def test_a_comparison_is_expected_as_calibrated_with_a_chance_for_each_k() -> None:
    found, told = only(EASY), list[Forecast]()
    asyncio.run(compare(TASK, models=EASY, k=[2, 3], repeat=2, calibration=found, on_forecast=told.append))
    assert told[0].calls == pytest.approx(2 * sum(found.promise(k, 1_000).calls for k in (2, 3)))
    assert [each.k for each in told[0].promises] == [2, 3]
    assert str(told[0]).count(found.condition(1_000)) == 1


@pytest.mark.parametrize(
    ("task", "options", "said"),
    [
        (TASK, {"models": "sim:perfect"}, "is of sim:gpt-4.1-mini.*, not of sim:perfect"),
        (TASK, {"strategy": Maker(rule="first-to")}, "maker as given here decides otherwise"),
        (TASK, {"strategy": Maker(ladder="lookahead", p=0.9)}, "maker as given here decides otherwise"),
        (TASK, {"strategy": Maker(steps=5)}, "maker as given here decides otherwise"),
        (Multiplication(), {}, "measured the steps of a chain, and Multiplication is none"),
    ],
)
def test_a_run_of_which_a_calibration_tells_nothing_is_refused(task: Any, options: Any, said: str) -> None:
    with pytest.raises(InvalidUsage, match=said):
        asyncio.run(run(task, calibration=made(model=EASY), runs_dir=None, **{"models": EASY, **options}))


@pytest.mark.parametrize(
    ("models", "task", "options", "said"),
    [
        (["sim:perfect"], Multiplication(), {}, "Multiplication is not a chain of steps"),
        ([], TASK, {}, "a calibration needs at least one model"),
        (["sim:perfect"], TASK, {"steps": 0}, "steps must be"),
        (["sim:perfect@flag=1"], TASK, {"steps": 5}, "gave no valid reply to 5 steps"),
    ],
)
def test_what_cannot_be_calibrated_is_refused(models: list[str], task: Any, options: Any, said: str) -> None:
    with pytest.raises(InvalidUsage, match=said):
        assert calibrated(*models, task=task, **options).models[0].p.share


def test_only_a_calibration_of_the_same_task_makes_a_plan() -> None:
    own = only("sim:perfect", steps=20)
    assert calibration_from(Path("runs"), own.run_id, Drift(length=5)).steps == own.steps
    with pytest.raises(
        InvalidUsage, match="is a calibration of drift, not of hanoi; make one: microagents calibrate hanoi"
    ):
        calibration_from(Path("runs"), own.run_id, Hanoi(disks=3))
    asyncio.run(run(Drift(length=3), models="sim:perfect", run_id="plain"))
    with pytest.raises(InvalidUsage, match="run 'plain' is not a calibration; make one: microagents calibrate drift"):
        calibration_from(Path("runs"), "plain", TASK)
    calibrated(EASY, run_id="open", max_calls=50)
    name = next(path.stem for path in Path("runs").iterdir() if path.stem.startswith("open-"))
    with pytest.raises(InvalidUsage, match="has not ended"):
        calibration_from(Path("runs"), name, TASK)
    with pytest.raises(InvalidUsage, match="wrong more often than right"):
        plan_runs(TASK, [only(WRONG, steps=100)], 100, 0.95)
    with pytest.raises(InvalidUsage, match="is not a simulated model"):
        simulate(TASK, model="openai:gpt-6-luna", strategy=Maker(k=2), runs=1)
