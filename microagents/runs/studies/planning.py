"""Plans of runs: the chance and the cost of each model and k, from calibrations."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, structs

from microagents.elections.laws import check_target, check_whole
from microagents.errors import InvalidUsage
from microagents.runs.studies.analysis import Proportion
from microagents.runs.studies.calibration import MAX_K, MOSTLY, ModelCalibration

LEAST_GAIN = 1e-3
"""Gain of the chance by the next k below which a larger k is not tried."""


class PlannedRun(Struct, frozen=True, kw_only=True):
    """A model and a k, with what they promise."""

    model: str
    k: int
    chance: Proportion
    """Chance that all steps are right, under the condition of its calibration."""
    calls: float
    cost_usd: float | None
    """None where a price is unknown."""
    is_best: bool = False
    """Whether it is the cheapest whose lower bound reaches the target within the budget."""


def plan_runs(
    calibrations: Sequence[ModelCalibration], total: int, target: float, *, budget_usd: float | None = None
) -> list[PlannedRun]:
    """List the runs that come into question, by model and k. Each model has its ks up to the first that is enough, or that gains nothing.

    Raises:
        InvalidUsage: the target is no chance, there are no steps, or every model is wrong more often than right.
    """
    check_target(target)
    check_whole("steps", total)
    able = [each for each in calibrations if each.p.share > MOSTLY]
    if not able:
        names = ", ".join(each.model for each in calibrations)
        raise InvalidUsage(
            f"{names}: wrong more often than right, so no k reaches a target; take a stronger model or smaller steps"
        )
    found = [run for each in able for run in _runs(each, total, target)]
    enough = [
        run
        for run in found
        if run.chance.low >= target
        and (budget_usd is None or (run.cost_usd is not None and run.cost_usd <= budget_usd))
    ]
    # A model of unknown price is the cheapest only where all prices are unknown.
    best = min(enough, key=lambda run: (run.cost_usd is None, run.cost_usd or 0.0, run.calls), default=None)
    return [structs.replace(run, is_best=True) if run is best else run for run in found]


def _runs(found: ModelCalibration, total: int, target: float) -> list[PlannedRun]:
    runs: list[PlannedRun] = []
    for k in range(1, MAX_K + 1):
        chances = found.chances(k, total)
        cost_usd = None if found.call_usd is None else found.call_usd * chances.calls
        runs.append(PlannedRun(model=found.model, k=k, chance=chances.measured, calls=chances.calls, cost_usd=cost_usd))
        gains = (
            len(runs) == 1 or chances.measured.low - runs[-2].chance.low >= LEAST_GAIN or chances.independent < target
        )
        if chances.measured.low >= target or not gains:
            break
    return runs
