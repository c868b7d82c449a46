"""Runs from Python: what a caller is told while they run, and what their results show."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from microagents import RecordedDecision, TaskFailed, run
from microagents.runs.inspection import inspect_run
from microagents.tasks.drift import Drift

MODELS = "sim:perfect@error=0.2,flag=0.1,alternatives=1"


@pytest.mark.parametrize("runtime", ["local", "linked", pytest.param("ray", marks=pytest.mark.slow)])
async def test_every_decision_is_told_in_its_order_and_equals_the_recorded_one(runtime: str, tmp_path: Path) -> None:
    told: list[RecordedDecision] = []
    result = await run(Drift(length=30), models=MODELS, k=2, on_decision=told.append, runtime=runtime, runs_dir=tmp_path)
    assert told == list(result.decisions())
    assert [each.path for each in told] == [f"0/step/{step}" for step in range(30)]
    assert sum(number for each in told for _, number in each.votes) == result.account.valid
    assert sum(number for each in told for number in each.flags.values()) == sum(result.account.flagged.values()) > 0
    path, value = told[0]
    assert (path, value) == ("0/step/0", {"number": 22})


async def test_an_async_callback_is_awaited_one_decision_after_the_other_and_to_the_last() -> None:
    told: list[str] = []

    async def tell(decision: RecordedDecision) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        told.append(decision.path)

    await run(Drift(length=10), models="sim:perfect", on_decision=tell, runs_dir=None)
    assert told == [f"0/step/{step}" for step in range(10)]


async def test_a_decision_tells_how_it_was_settled_and_a_resumed_run_tells_only_new_ones(tmp_path: Path) -> None:
    told: list[RecordedDecision] = []
    options: dict[str, Any] = {"models": "sim:perfect@error=0.5,alternatives=1", "k": 20, "run_id": "a", "runs_dir": tmp_path}
    stuck = await run(Drift(length=3), **options, on_decision=told.append)
    assert (stuck.outcome, told) == ("undecided", [])
    led = await run(Drift(length=3), **options, on_undecided="leader", on_decision=told.append)
    assert [each.settled_at for each in told] == ["leader"] * 3
    assert [*led.decisions()] == [*inspect_run(tmp_path, "a").decisions()] == told


@pytest.mark.parametrize("runs_dir", ["runs", None])
@pytest.mark.parametrize("length", [1, 500])
async def test_what_the_callback_raises_ends_the_run(length: int, runs_dir: str | None) -> None:
    def tell(decision: RecordedDecision) -> None:
        raise KeyError(decision.path)

    with pytest.raises(TaskFailed, match=r"on_decision\(\) raised KeyError\('0/step/0'\)"):
        await run(Drift(length=length), models="sim:perfect", on_decision=tell, runs_dir=runs_dir)
