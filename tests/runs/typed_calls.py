"""Calls that type checkers accept, and calls that they refuse: mypy checks this file, with the ignores that it needs and no other."""

from __future__ import annotations

from typing import Any, assert_type

from microagents import (
    ChainTask,
    Measurement,
    Rates,
    Reply,
    Result,
    RowTask,
    compare,
    measure,
    plan,
    resume,
    run,
    run_sync,
)
from microagents.runs.result import Results
from microagents.studies.comparison import Comparison
from microagents.studies.planned_runs import PlannedRuns
from microagents.tasks.drift import Drift, Place
from microagents.tasks.hanoi import Hanoi, HanoiResult

MODEL = "sim:perfect"


class Sum(Reply, frozen=True):
    total: int


class Sums(ChainTask[list[int], Sum]):
    """A chain that names no result: it is the last state, which JSON keeps as it is."""


class Named(ChainTask[list[int], Sum, dict[str, int]]):
    """A chain that names its result."""


class Staged(ChainTask[Sum, Sum]):
    """A chain whose last state is a struct."""


class Rowed(RowTask[Sum]):
    """A row of a table."""


async def accepted() -> None:
    assert_type(run_sync(Hanoi(disks=3), models=MODEL), Result[HanoiResult])
    assert_type(await run(Hanoi(disks=3), models=MODEL, k=3, lanes=2, fallback=["sim:o3-mini"]), Result[HanoiResult])
    assert_type(run_sync([Hanoi(disks=3), Hanoi(disks=4)], models=MODEL), Result[Results[HanoiResult]])
    assert_type(run_sync([Hanoi()], models=MODEL).value[0]["pegs"], list[list[int]])
    assert_type(await run(Sums(), models=MODEL), Result[list[int]])
    assert_type(run_sync([Sums()], models=MODEL).value, Results[list[int]])
    assert_type(await run(Named(), models=MODEL), Result[dict[str, int]])
    assert_type(await run(Staged(), models=MODEL), Result[Sum])
    assert_type(run_sync(Rowed(row={"a": 1}), models=MODEL), Result[dict[str, Any]])
    assert_type(run_sync(Drift(), models=MODEL, max_calls=3, on_decision=print), Result[Place])
    assert_type(await resume("a", k=4, options={"max_draws": 9}, on_undecided="leader"), Result[Any])
    assert_type(await compare(Hanoi(), models=MODEL, k=[1, 2], max_cost_usd=1, on_forecast=print), Comparison)
    measurement = await measure(Hanoi(), MODEL, seed=3, on_progress=print)
    assert_type(measurement, Measurement)
    assert_type(plan(Hanoi(), measurement), PlannedRuns)
    assert_type(plan(None, Rates(p=0.9), steps=100), PlannedRuns)


async def refused() -> None:
    run_sync(Hanoi(), models=MODEL, max_cals=3)  # type: ignore[call-overload]
    run_sync(Hanoi(), models=MODEL, k="three")  # type: ignore[call-overload]
    run_sync(Hanoi(), models=MODEL, durability="some")  # type: ignore[call-overload]
    run_sync(Hanoi())  # type: ignore[call-overload]
    run_sync(Hanoi(), models=MODEL).value["solvd"]  # type: ignore[typeddict-item]
    await run(Hanoi(), models=MODEL, on_decision=3)  # type: ignore[call-overload]
    await resume("a", max_cals=3)  # type: ignore[call-arg]
    await resume("a", max_calls="three")  # type: ignore[arg-type]
    await compare(Hanoi(), models=MODEL, max_cals=3)  # type: ignore[call-arg]
    await measure(Hanoi(), MODEL, seed="one")  # type: ignore[arg-type]
