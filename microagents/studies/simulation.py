"""Simulations of runs: the engine itself in virtual time, with a simulated model, over many seeds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from statistics import fmean

from msgspec import Struct

from microagents.actors.role import Strategy
from microagents.base.errors import InvalidUsage
from microagents.elections.error_rates import exact_interval
from microagents.runs.driver.begin import run
from microagents.runs.result import Result
from microagents.runs.words.money import are_simulated
from microagents.runtimes.virtual import run_virtual
from microagents.studies.analysis import Proportion
from microagents.task import Task


class Simulation(Struct, frozen=True, kw_only=True):
    """What simulated runs came to."""

    model: str
    runs: int
    success: Proportion
    """Share of the runs that were completed without a wrong decision."""
    undecided: int
    """Number of runs that ended undecided."""
    steps: float
    """Mean number of steps that a run has done."""
    lost: int
    """Number of wrong and of undecided decisions in all runs."""
    calls: float
    """Mean number of calls of a run."""
    rollouts: float
    """Mean number of samples of a run that are no votes, such as rollouts."""
    cost_usd: float | None
    """Mean cost of a run."""
    duration_s: float
    """Mean duration of a run in virtual time."""
    most_errors: int
    """Largest number of wrong decisions of one run."""


def simulate(
    task: Task, *, model: str | Sequence[str], strategy: Strategy, runs: int, concurrency: int | None = None
) -> Simulation:
    """Do a task ``runs`` times in virtual time, each time with another seed; nothing is recorded.

    Raises:
        InvalidUsage: the model is not simulated, or an argument is out of range.
    """
    models = [model] if isinstance(model, str) else list(model)
    if not are_simulated(models):
        raise InvalidUsage(
            f"{model!r} is not a simulated model, and a simulation calls no other; give sim:PROFILE, or a calibration: --from RUN"
        )
    if runs < 1:
        raise InvalidUsage(f"the number of runs must be at least 1, not {runs!r}")

    async def one(seed: int) -> tuple[Result, float]:
        result = await run(task, models=models, strategy=strategy, seed=seed, runs_dir=None, concurrency=concurrency)
        return result, asyncio.get_running_loop().time()  # it began at 0

    timed = [run_virtual(one(seed)) for seed in range(runs)]
    results = [result for result, _ in timed]
    won = sum(each.outcome == "completed" and each.account.errors == 0 for each in results)
    low, high = exact_interval(won, runs)
    costs = [each.cost_usd for each in results if each.cost_usd is not None]
    return Simulation(
        model=" + ".join(models),
        runs=runs,
        success=Proportion(share=won / runs, low=low, high=high),
        undecided=sum(each.outcome == "undecided" for each in results),
        steps=fmean(each.account.steps for each in results),
        lost=sum((each.account.errors or 0) + len(each.account.undecided_at) for each in results),
        calls=fmean(each.calls for each in results),
        rollouts=fmean(each.account.samples for each in results),
        cost_usd=fmean(costs) if len(costs) == runs else None,
        duration_s=fmean(ended_s for _, ended_s in timed),
        most_errors=max(each.account.errors or 0 for each in results),
    )
