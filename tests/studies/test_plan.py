"""Plans made of measurements and of given rates, and simulations of what was planned. Every statistical test fixes its seed."""

from __future__ import annotations

import asyncio
from math import comb, exp, prod
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from microagents import InvalidUsage, Rates, compare, plan, run
from microagents.elections.laws import race_won
from microagents.runs.driver.forecast import Forecast
from microagents.runs.inspection.runs import inspect_run
from microagents.studies.measure import measured_from
from microagents.studies.measured import Latency
from microagents.studies.simulation import simulate, simulated_rates
from microagents.systems.chains.lead import Lead
from microagents.systems.chains.maker import Maker
from microagents.tasks.drift import Drift
from microagents.tasks.hanoi import Hanoi
from microagents.tasks.multiplication import Multiplication
from tests.studies.measured import EASY, TASK, WRONG, hard_steps, made, measured, only, planted

pytestmark = pytest.mark.usefixtures("plans_by_few_simulated_steps")


@pytest.mark.slow
@pytest.mark.usefixtures("few_simulated_steps")
def test_a_plan_tells_of_a_limit_that_throttles_and_of_an_announced_end() -> None:
    usage: dict[str, Any] = {"calls": 10, "input_tokens": 1_000, "output_tokens": 5_000, "cost_usd": 0.1}
    latency = Latency(p50=1.0, p95=2.0, p99=3.0)
    found = made(model="openai:gpt-4.1-mini", latency=latency, limits={"output tokens": 1_000}, total=100, **usage)
    planned = plan(TASK, [found], steps=100, target=0.9)
    assert planned.best is not None
    assert planned.best.duration_s == pytest.approx(planned.best.calls * 500 / 1_000 * 60)
    said = " ".join(planned.notes[found.model,])
    assert "the limit of 1,000 output tokens a minute makes a run last longer than its waiting" in said
    assert "the model will be shut down on 2027-01-14" in said


@pytest.mark.slow
@pytest.mark.usefixtures("few_simulated_steps")
def test_a_deadline_is_a_further_condition() -> None:
    found = made(latency=Latency(p50=10.0, p95=20.0, p99=30.0), total=100)
    best = plan(TASK, [found], steps=100, target=0.9).best
    assert best is not None
    assert best.duration_s is not None
    assert plan(TASK, [found], steps=100, target=0.9, max_time_s=best.duration_s).best == best
    within = plan(TASK, [found], steps=100, target=0.9, max_time_s=best.duration_s - 1).best
    assert within is None or (within.duration_s or 0) < best.duration_s
    assert plan(TASK, [found], steps=100, target=0.9, max_time_s=1.0).best is None
    assert plan(TASK, [made(total=100)], steps=100, target=0.9, max_time_s=1e9).best is None  # its latency is unknown
    slow = plan(TASK, [found], steps=100, target=0.9, concurrency=1).runs[0]
    assert slow.duration_s == pytest.approx(100 * 10.0 * exp(0.42**2 / 2), rel=0.2)


@pytest.mark.slow
@pytest.mark.usefixtures("few_simulated_steps")
def test_the_cheapest_run_that_reaches_the_target_is_marked() -> None:
    found = measured(EASY, "sim:o3-mini@error=0.02,alternatives=1", steps=1_000).models
    planned = plan(TASK, found, steps=1_000, target=0.95)
    best = planned.best
    assert best is not None
    assert best.k is not None
    runs = [each for each in planned.runs if len(each.models) == 1 and not each.options and each.k is not None]
    assert best.models == (EASY,)
    own = [each for each in runs if each.models == (EASY,)]
    assert [each.k for each in own if each.chance.low >= 0.95] == [best.k] == [own[-1].k]
    fewer = plan(TASK, found[:1], steps=1_000, k=best.k - 1).best
    assert fewer is None or fewer.k is None
    assert best.cost_usd is not None
    assert all(best.cost_usd <= (each.cost_usd or 0) for each in runs if each.chance.low >= 0.95)
    assert plan(TASK, found, steps=1_000, target=0.95, max_cost_usd=0.01).best is None


@pytest.mark.slow
def test_lead_and_a_ladder_succeed_as_often_as_their_rows_say() -> None:
    found = only("sim:gpt-4.1-mini@error=0.005,hard=0.03,hard_error=0.8", steps=1_000, task=Drift(length=1_000))
    runs = {
        each.strategy: each for each in plan(TASK, [found], steps=60, target=0.9).runs if each.k is None or each.options
    }
    lead, ladder = runs["lead"], runs["maker"]
    assert ladder.options["ladder"] == "lookahead,judge"
    best = plan(TASK, [made(total=100)], steps=100, target=0.9).best
    assert best is not None
    assert not best.options  # by assumption alone no strategy goes before votes that a law judges
    done = simulate(simulated_rates(found, found.total), 60, Lead(speculate=False), 40)
    assert done.success.low <= lead.chance.high
    assert lead.chance.low <= done.success.high
    assert done.calls == pytest.approx(lead.calls, rel=0.2)
    assert lead.chance.share > 1.3 * ladder.chance.share  # votes decide a hard step before they are improbable


@pytest.mark.slow
@pytest.mark.usefixtures("few_simulated_steps")
def test_rows_of_lead_take_the_errors_and_the_horizon_of_measured_rollouts() -> None:
    easy, hard = only("sim:perfect", steps=60, task=Drift(length=60)), 30
    wrong = tuple(
        [structs.replace(each, votes=(0,) * 10, drawn=10, right=(False,)) for each in easy.steps[hard : hard + 1]]
    )
    rollouts = ((True, True, False), (True, True, True), (True, True, True), (True, True, True))
    steps = [structs.replace(each, rollouts=rollouts) for each in (*easy.steps[:hard], *wrong, *easy.steps[hard + 1 :])]
    found = structs.replace(easy, steps=tuple(steps))
    assert (found.hard, found.ahead, found.horizon) == ([hard], (0.1, 0.3), 3)
    assert simulated_rates(found, found.total).ahead == (0.1, 0.3)
    assert (easy.ahead, simulated_rates(easy, easy.total).ahead) == ((), (0.5, 0.1))
    planned = plan(Drift(length=60), [found], target=0.9)  # rollouts may pass the ceiling of single replies
    assert {run.options["horizon"] for run in planned.runs if run.independent is None} == {"3"}
    assert "there a rollout from 1, 2, ... steps before errs in 0.10, 0.30, as measured" in " ".join(
        planned.notes[found.model,]
    )


STARRED = "sim:perfect@error=0.002,hard=0.002,hard_error=0.9,alternatives=1"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 5])
def test_no_run_is_marked_while_a_hard_step_may_be_among_those_not_sampled(seed: int) -> None:
    task = Drift(length=300)
    part, whole = [plan(task, [only(STARRED, task=task, steps=steps, seed=seed)], target=0.9) for steps in (200, 300)]
    assert part.best is None
    assert (whole.best is None) == bool(hard_steps(STARRED, task, seed))
    assert all(run.chance.low >= 0.9 for run in whole.runs if run.is_best)
    assert whole.assumed is None


@pytest.mark.slow
def test_a_promise_is_of_the_cap_of_draws() -> None:
    noisy = only("sim:gpt-4.1-mini@error=0.3,alternatives=1", task=Drift(length=60), draws=20)
    capped, free = noisy.promise(3, 60, max_draws=4), noisy.promise(3, 60)
    assert capped.calls <= 4 * 60 < free.calls
    assert capped.high < free.low


def test_every_rung_of_a_ladder_can_be_simulated() -> None:
    simulated = simulate(Rates(p=0.55).simulated(), 10, Maker(k=3, ladder="paraphrase,judge", p=0.9), 1)
    assert simulated.steps == 10


@pytest.mark.slow
@pytest.mark.usefixtures("few_simulated_steps")
def test_a_run_whose_every_step_was_sampled_is_planned_by_its_own_steps() -> None:
    model, task = "sim:perfect@error=0.002,hard=0.04,hard_error=0.8,alternatives=1", Hanoi(disks=6)
    found, hard = only(model, task=task, seed=6), hard_steps(model, task, seed=6)
    true = prod(1 - race_won(0.8 if number in hard else 0.002, 3) for number in range(63))
    assert 0 < true < 0.02
    (row, *_) = plan(task, [found], k=3).runs
    assert row.chance.low <= true <= row.chance.high
    assert found.rates().hard.low <= len(hard) <= found.rates().hard.high
    assert (
        plan(task, [found], steps=64, k=3).runs[0].chance.share > row.chance.share
    )  # a task like it may have no such step


@pytest.mark.slow
def test_the_marked_row_is_simulated_unless_another_is_asked_for() -> None:
    found = planted(lambda _: 0.02, steps=60)
    planned = plan(None, [found], steps=60, target=0.5, repeat=3)
    assert planned.best is not None
    assert planned.simulation is not None
    assert planned.simulation.calls == pytest.approx(planned.best.calls, rel=0.3)
    asked = plan(None, [found], steps=60, target=0.5, k=4, repeat=3).simulation
    assert asked is not None
    assert asked.calls == pytest.approx(found.chances(4, 60).calls, rel=0.3)


@pytest.mark.slow
def test_a_simulation_lasts_as_long_as_the_calls_of_the_measurement() -> None:
    found = only("sim:perfect@latency=0.05,sigma=0.4", task=Drift(length=100), steps=100)
    assert found.latency is not None
    again = measured_from(Path("runs"), found.run_id)
    assert again == found
    strategy = Maker(k=1, speculate=False)
    simulation = simulate(simulated_rates(found, found.total), 50, strategy, 10)
    mean_s = found.latency.p50 * exp(found.latency.sigma**2 / 2)
    assert simulation.duration_s == pytest.approx(50 * mean_s, rel=0.1)
    assert only("sim:perfect", steps=10).latency is None


@pytest.mark.slow
def test_a_run_is_expected_as_measured_and_tells_how_it_lies_to_that() -> None:
    found, told = only(EASY), list[Forecast]()
    result = asyncio.run(run(TASK, models=EASY, k=3, measurement=found, on_forecast=told.append))
    promise = found.promise(3, 1_000)
    assert told[0].calls == promise.calls
    assert told[0].cost_usd == pytest.approx(promise.cost_usd)
    assert "as measured; chance that all steps of an input are right: " in str(told[0])
    assert str(told[0]).endswith(found.condition(1_000))
    assert result.account.promise == inspect_run(Path("runs"), result.run_id).account.promise == promise
    assert f"promised   {promise.calls:,.0f} calls, $" in str(result)
    assert "0 errors, as a chance of" in str(result)


@pytest.mark.slow
def test_a_run_with_more_errors_than_promised_says_so() -> None:
    worse = "sim:gpt-4.1-mini@error=0.2,alternatives=1"
    promised = structs.replace(only(EASY), model=worse)
    result = asyncio.run(run(TASK, models=worse, k=3, measurement=promised))
    assert result.account.errors
    assert f"{result.account.errors} errors, MORE than a chance of" in str(result)


@pytest.mark.slow
def test_a_comparison_is_expected_as_measured_with_a_chance_for_each_k() -> None:
    found, told = only(EASY), list[Forecast]()
    asyncio.run(compare(TASK, models=EASY, k=[2, 3], repeat=2, measurement=found, on_forecast=told.append))
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
def test_a_run_of_which_a_measurement_tells_nothing_is_refused(task: Any, options: Any, said: str) -> None:
    with pytest.raises(InvalidUsage, match=said):
        asyncio.run(run(task, measurement=made(model=EASY), runs_dir=None, **{"models": EASY, **options}))


@pytest.mark.slow
def test_only_a_measurement_of_the_same_task_makes_a_plan() -> None:
    own = only("sim:perfect", steps=20)
    assert measured_from(Path("runs"), own.run_id, Drift(length=5)) == own
    with pytest.raises(
        InvalidUsage, match="is a measurement of drift, not of hanoi; make one: microagents measure hanoi"
    ):
        measured_from(Path("runs"), own.run_id, Hanoi(disks=3))
    asyncio.run(run(Drift(length=3), models="sim:perfect", run_id="plain"))
    with pytest.raises(InvalidUsage, match="run 'plain' is not a measurement; make one: microagents measure drift"):
        measured_from(Path("runs"), "plain", TASK)
    measured(EASY, run_id="open", max_calls=50)
    with pytest.raises(InvalidUsage, match="has not ended"):
        measured_from(Path("runs"), "open", TASK)
    with pytest.raises(InvalidUsage, match="a wrong reply is the likeliest at most steps"):
        plan(TASK, [only(WRONG, steps=100)], steps=100, target=0.95)


@pytest.mark.slow
def test_a_run_with_measured_errors_draws_the_rate_of_each_step() -> None:
    """2 % of the steps err at .45, the others at .003: the mean rate of all promises a success that few runs have."""
    found = planted(lambda number: 0.003 if number % 50 else 0.45)
    at_3, true = found.chances(3), (1 - race_won(0.45, 3)) ** 6 * (1 - race_won(0.003, 3)) ** 294
    assert at_3.independent > 0.95
    assert at_3.measured.low <= true <= at_3.measured.high
    assert at_3.measured.share < 0.5
    done = simulate(simulated_rates(found, found.total), 300, Maker(k=3, speculate=False), 30)
    assert done.success.low <= at_3.measured.share <= done.success.high


@pytest.mark.slow
@pytest.mark.usefixtures("few_simulated_steps")
def test_few_samples_advise_no_k_and_say_how_many_more_would() -> None:
    planned = plan(TASK, [made(steps=3, drawn=2, calls=6, cost_usd=0.06)], steps=10)
    assert [each.k for each in planned.runs] == [3]
    assert planned.best is None
    assert (
        planned.needed == "6 samples advise no k, so the default stands; 24 more of `measure` would say more, for $0.24"
    )
    assert plan(TASK, [made(steps=3)], steps=10).needed is None


@pytest.mark.slow
def test_given_rates_are_planned_by_the_law_up_to_the_cap() -> None:
    planned = plan(None, Rates(p=0.99), steps=10**6)
    assert planned.best is not None
    assert (planned.best.k, planned.best.chance.share > 0.95) == (4, True)
    assert planned.best.calls == pytest.approx(4.0816e6, rel=1e-3)
    (one,) = plan(None, Rates(p=0.9), steps=100, k=2, options={"max_draws": 2}).runs
    assert one.chance.share == pytest.approx(0.81**100)
    (first,) = plan(None, Rates(p=0.9), steps=100, k=3, options={"rule": "first-to"}).runs
    best_of_5 = sum(comb(5, right) * 0.9**right * 0.1 ** (5 - right) for right in (3, 4, 5))
    assert first.chance.share == pytest.approx(best_of_5**100)
    (several,) = plan(None, Rates(p=0.96), steps=256, k=3, options={"steps": 8}).runs
    assert several.chance.share == pytest.approx(race_won(0.96**8, 3) ** 32, rel=1e-3)
    assert "raise it" in plan(None, Rates(p=0.7), steps=1_000).notes[()][1]
    assert len(plan(None, Rates(p=0.6), steps=1_000, options={"max_draws": 1_000}).runs) == 8  # the last ones


@pytest.mark.parametrize(
    ("task", "by", "options", "said"),
    [
        (None, Rates(p=0.5), {"steps": 10}, "p must be above 0.5"),
        (None, Rates(p=0.9), {}, "the number of steps is unknown"),
        (Multiplication(), Rates(p=0.9), {"target": float("nan")}, "target must be above 0 and below 1"),
        (None, Rates(p=0.9), {"steps": 10, "k": 101}, "k = 101 votes cannot come from max_draws = 100"),
        (None, [], {"steps": 10}, "nothing was measured"),
        (
            None,
            [made(), structs.replace(made(total=100), run_id="other")],
            {"steps": 10},
            "runs 'made' and 'other' measured the same model, made:made",
        ),
        (TASK, Rates(p=0.9), {"strategy": "lead"}, "are for simulated runs, --repeat N"),
    ],
)
def test_what_cannot_be_planned_is_refused(task: Any, by: Any, options: Any, said: str) -> None:
    with pytest.raises(InvalidUsage, match=said):
        plan(task, by, **options)
