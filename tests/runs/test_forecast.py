"""The expected cost of a run: what it is made of, and when it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from microagents import ChainTask, Prompt, Reply, RowTask, measure, run
from microagents.elections.laws import expected_votes
from microagents.runs.driver.forecast import CHARS_PER_TOKEN, OUTPUT_TOKENS, Forecast, forecast_of, total_of
from microagents.runs.plan import RunPlan
from microagents.runs.settings import Settings, validated
from microagents.runs.strategies import model_pools, strategy_of
from microagents.studies.compare import compare
from microagents.task import Task
from microagents.tasks.drift import Drift
from microagents.tasks.multiplication import Multiplication

UNREACHABLE = "base_url=http://127.0.0.1:9/v1"
"""No server answers there, and none needs a key."""
PRICED = f"openai:m@{UNREACHABLE},price_in=1000,price_out=2000"
DRIFT = Drift(length=100)


def plan(
    task: Task = DRIFT, models: Any = PRICED, strategy: str | None = None, inputs: int | None = None, **options: Any
) -> RunPlan:
    settings: dict[str, Any] = {
        name: options.pop(name) for name in ("prices", "max_output_tokens", "batch") if name in options
    }
    chosen = strategy_of(strategy, task, options)
    pools = model_pools(models, [chosen]).pools
    return RunPlan(
        tasks=[task] * (inputs or 1),
        listed=inputs is not None,
        strategy=chosen,
        settings=validated(Settings, "the run", {"models": pools, "run_id": "r", **settings}),
    )


def forecast(*args: Any, **options: Any) -> Forecast:
    found = forecast_of(plan(*args, **options), None)
    assert found is not None
    return found


def test_the_expected_cost_is_that_of_the_votes_by_the_laws_and_of_the_prompts_length() -> None:
    found, calls = forecast(k=4), 100 * expected_votes(0.99, 4)
    assert found.calls == pytest.approx(calls)
    assert found.output_tokens == OUTPUT_TOKENS
    assert found.cost_usd == pytest.approx(calls * (found.input_tokens * 1000 + OUTPUT_TOKENS * 2000) / 1e6)
    longer = forecast(LongDrift(length=100), k=4)
    assert longer.input_tokens == found.input_tokens + 4000 // CHARS_PER_TOKEN


class LongDrift(Drift):
    """Drift with a longer prompt."""

    def prompt(self, state: Any) -> Any:
        asked = super().prompt(state)
        return type(asked)(system=asked.system, user=asked.user + " " * 4000)


@pytest.mark.parametrize(
    ("strategy", "options", "task", "calls"),
    [
        ("single-shot", {}, DRIFT, 1),
        ("self-consistency", {"samples": 20}, DRIFT, 100 * expected_votes(0.99, 20)),
        ("maker", {"k": 3, "rule": "first-to"}, DRIFT, 100 * expected_votes(0.99, 3)),
        ("recursive", {}, Multiplication(), None),
    ],
)
def test_strategies_tell_the_calls_that_they_expect(
    strategy: str, options: dict[str, Any], task: Task, calls: float | None
) -> None:
    assert forecast(task, strategy=strategy, **options).calls == (None if calls is None else pytest.approx(calls))


@pytest.mark.parametrize(("several", "k", "calls_a_step"), [("1", 3, 3), ("auto", 3, 2), ("2", 6, 4)])
def test_votes_that_go_in_one_request_are_one_call_whose_prompt_is_paid_once(
    several: str, k: int, calls_a_step: int
) -> None:
    single, joined = forecast(k=k), forecast(k=k, models=f"{PRICED},votes_per_request={several}")
    assert single.calls is not None
    assert joined.calls == pytest.approx(single.calls * calls_a_step / k)
    written = single.calls * OUTPUT_TOKENS * 2000 / 1e6
    assert joined.cost_usd == pytest.approx(((single.cost_usd or 0) - written) * calls_a_step / k + written)


def test_a_chain_of_unknown_length_has_a_price_for_a_thousand_calls() -> None:
    class Endless(Drift):
        def steps(self) -> Any:
            return None

    assert issubclass(Endless, ChainTask)
    found = forecast(Endless(length=3), models=f"openai:m@{UNREACHABLE},price_in=0,price_out=2")
    assert found.cost_usd is None
    assert str(found).startswith("expected cost: not known beforehand; $0.60 for each 1,000 calls to openai:m, about ")


@pytest.mark.parametrize("models", ["sim:gpt-4.1-mini", f"openai:m@{UNREACHABLE}"])
def test_simulated_models_and_unknown_prices_have_no_forecast(models: str) -> None:
    assert forecast_of(plan(models=models), None) is None


def test_prices_of_the_users_file_count_in_their_service_tier() -> None:
    prices = {"openai:m": {"input": 1000, "output": 2000}}
    assert forecast(models=f"openai:m@{UNREACHABLE}", prices=prices).cost_usd == pytest.approx(forecast().cost_usd)


def test_calls_in_files_are_expected_at_the_price_of_batches_and_those_in_windows_at_the_full_price() -> None:
    at_once = forecast().cost_usd
    assert at_once
    assert forecast(batch="file").cost_usd == pytest.approx(at_once / 2)
    assert forecast(models=f"{PRICED},batch=file").cost_usd == pytest.approx(at_once / 2)
    window = forecast(models=PRICED.replace("openai:", "openai-responses:"), batch="window")
    assert window.cost_usd == pytest.approx(at_once)


async def test_the_rest_of_a_run_is_expected_by_what_it_took_so_far(tmp_path: Path) -> None:
    begun = await run(DRIFT, models="sim:gpt-4.1-mini", max_calls=60, runs_dir=tmp_path, run_id="r")
    found = forecast_of(plan(), begun.journal)
    assert found is not None
    account = begun.account
    assert account.cost_usd
    assert found.is_measured
    assert found.calls == pytest.approx(account.calls / account.steps * (100 - account.steps))
    assert found.call_usd == pytest.approx(account.cost_usd / account.calls)


class Declined(Exception):
    """Nobody wants to pay that."""


@pytest.mark.parametrize("start", [run, compare, measure], ids=lambda start: start.__name__)
async def test_who_is_told_the_expected_cost_can_refuse_it_and_nothing_is_left_behind(
    start: Any, tmp_path: Path
) -> None:
    told: list[Forecast] = []
    runs_dir = tmp_path / "runs"

    def refuse(forecast: Forecast) -> None:
        told.append(forecast)
        raise Declined

    with pytest.raises(Declined):
        await start(DRIFT, models=PRICED, on_forecast=refuse, runs_dir=runs_dir)
    assert [forecast.models for forecast in told] == [(PRICED,)]
    assert not runs_dir.exists()


async def test_the_expected_cost_stands_beside_the_actual_one(tmp_path: Path) -> None:
    told: list[Forecast] = []
    model = f"openai:m@{UNREACHABLE},price_in=0.1,price_out=0.5"
    result = await run(DRIFT, models=model, on_forecast=told.append, runs_dir=tmp_path, max_outage_s=0)
    assert result.account.expected_usd == result.as_json()["expected_usd"] == told[0].cost_usd
    assert f"$0.00 (expected: ${told[0].cost_usd:,.4f})" in str(result)


def test_several_forecasts_are_one() -> None:
    one = forecast()
    both = total_of([one, None, forecast(k=6)])
    assert both is not None
    assert both.cost_usd == pytest.approx((one.cost_usd or 0) + (forecast(k=6).cost_usd or 0))
    assert total_of([None]) is None


class Double(Reply, frozen=True):
    y: int


class Rows(RowTask[Double]):
    def prompt(self, row: dict[str, Any]) -> Prompt:
        return Prompt(user=str(row["x"]))


@pytest.mark.parametrize(
    ("cheap_from", "calls", "strong_calls"), [(0.9, 3 + 0.2 * 5, 0.2 * 5), (1.5, 8, 5), (2.0, 5, 5)]
)
def test_of_a_cascade_the_strong_models_votes_cost_its_own_price(
    cheap_from: float, calls: float, strong_calls: float
) -> None:
    strong = f"openai:strong@{UNREACHABLE},price_in=0,price_out=20000"
    cascade = {
        "strong": strong,
        "k_strong": 5,
        "strong_share": 0.2,
        "cheap_from": cheap_from,
        "rule": "first-to",
        "k": 3,
    }
    cheap = f"openai:m@{UNREACHABLE},price_in=0,price_out=2000"
    found = forecast(Rows(row={"x": 1}), models=cheap, strategy="cascade", inputs=10, **cascade)
    of_each = expected_votes(0.99, 3) / 3, expected_votes(0.99, 5) / 5
    strong_votes, cheap_votes = strong_calls * of_each[1], (calls - strong_calls) * of_each[0]
    assert found.calls == pytest.approx(10 * (cheap_votes + strong_votes))
    usd = OUTPUT_TOKENS * (cheap_votes * 2000 + strong_votes * 20000) / 1e6
    assert found.cost_usd == pytest.approx(10 * usd)
    assert found.models == (cheap, strong)
