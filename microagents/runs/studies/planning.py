"""Plans of runs: the chance, the cost and the duration of each model and k, from calibrations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime

from msgspec import Struct, structs

from microagents.actors import Strategy
from microagents.elections.laws import check_target, check_whole
from microagents.errors import InvalidUsage
from microagents.runs.studies.analysis import Proportion
from microagents.runs.studies.bills import Bill, Terms
from microagents.runs.studies.calibration import MAX_K, MOSTLY, ModelCalibration
from microagents.runs.studies.simulation import simulate
from microagents.strategies.maker import Maker
from microagents.task import Task
from microagents.tasks.drift import Drift

LEAST_GAIN = 1e-3
"""Gain of the chance by the next k below which a larger k is not tried."""
TIMED_CALLS = 2_000
"""Calls of the simulated steps that tell the pace of a run, about: guesses ahead pause by the last thousand."""


class PlannedRun(Struct, frozen=True, kw_only=True):
    """A model and a k, with what they promise."""

    model: str
    k: int
    chance: Proportion
    """Chance that all steps are right, under the condition of its calibration."""
    calls: float
    cost_usd: Bill
    """Cost of all calls: as measured, and between which bounds it may be."""
    duration_s: float | None
    """Expected duration; None where the latency is unknown."""
    limited_by: str | None = None
    """The limit of the provider that makes the duration, such as ``output tokens``; None where the latency does."""
    is_best: bool = False
    """Whether it is the cheapest whose lower bound reaches the target within the budget and the deadline."""


class Plan(Struct, frozen=True, kw_only=True):
    """The runs that come into question for a task."""

    steps: int
    target: float
    runs: tuple[PlannedRun, ...]
    notes: dict[str, tuple[str, ...]]
    """By model the sentences about what bears on its runs."""

    @property
    def best(self) -> PlannedRun | None:
        """The marked run; None where none reaches the target."""
        return next((run for run in self.runs if run.is_best), None)


def plan_runs(
    task: Task,
    calibrations: Sequence[ModelCalibration],
    total: int,
    target: float,
    *,
    budget_usd: float | None = None,
    deadline_s: float | None = None,
    concurrency: int | None = None,
) -> Plan:
    """List the runs that come into question, by model and k. Each model has its ks up to the first that is enough, or that gains nothing.

    Args:
        task: the task, for the length of its prompts.
        calibrations: one for each model.
        total: number of steps.
        target: wanted chance that all are right.
        budget_usd: cost that a run may be expected to have.
        deadline_s: duration that a run may be expected to have.
        concurrency: maximum number of calls in flight.

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
    terms = {each.model: Terms(each, task) for each in able}
    found = [run for each in able for run in _runs(each, terms[each.model], total, target, concurrency)]
    enough = [run for run in found if run.chance.low >= target and _is_within(run, budget_usd, deadline_s)]
    # A model of unknown price is the cheapest only where all prices are unknown.
    best = min(enough, key=lambda run: (run.cost_usd.mid is None, run.cost_usd.mid or 0.0, run.calls), default=None)
    today = datetime.now(UTC).date()
    return Plan(
        steps=total,
        target=target,
        runs=tuple(structs.replace(run, is_best=True) if run is best else run for run in found),
        notes={
            each.model: tuple(
                _notes(each, [run for run in found if run.model == each.model], terms[each.model], total, today)
            )
            for each in able
        },
    )


def _is_within(run: PlannedRun, budget_usd: float | None, deadline_s: float | None) -> bool:
    cost_usd, duration_s = run.cost_usd.mid, run.duration_s
    return (budget_usd is None or (cost_usd is not None and cost_usd <= budget_usd)) and (
        deadline_s is None or (duration_s is not None and duration_s <= deadline_s)
    )


def _runs(
    found: ModelCalibration, terms: Terms, total: int, target: float, concurrency: int | None
) -> Iterator[PlannedRun]:
    before: PlannedRun | None = None
    for k in range(1, MAX_K + 1):
        chances = found.chances(k, total)
        waits_s = _pace_s(found, Maker(k=k), min(total, TIMED_CALLS // k), concurrency)
        least_s, limit = terms.least_s(chances.calls)
        duration_s = None if waits_s is None else max(total * waits_s, least_s)
        of_vote = terms.bill(k)
        run = PlannedRun(
            model=found.model,
            k=k,
            chance=chances.measured,
            calls=chances.calls,
            cost_usd=Bill(
                low=_times(of_vote.low, chances.calls),
                mid=_times(of_vote.mid, chances.calls),
                high=_times(of_vote.high, chances.calls_high),
            ),
            duration_s=duration_s,
            limited_by=limit if duration_s == least_s and limit else None,
        )
        yield run
        gains = before is None or chances.measured.low - before.chance.low >= LEAST_GAIN or chances.independent < target
        if chances.measured.low >= target or not gains:
            return
        before = run


def _times(usd: float | None, calls: float) -> float | None:
    return None if usd is None else usd * calls


def _pace_s(found: ModelCalibration, strategy: Strategy, steps: int, concurrency: int | None) -> float | None:
    """Simulate some steps with the measured latency and errors; returns the seconds of a step, None without a latency.

    Where steps open on guesses, a step waits for its first vote alone, and wrong guesses cost time: no law gives their number.
    """
    if found.latency is None:
        return None
    timed = simulate(Drift(length=steps), model=found.simulated, strategy=strategy, runs=1, concurrency=concurrency)
    return timed.duration_s / max(1.0, timed.steps)


def _notes(found: ModelCalibration, runs: Sequence[PlannedRun], terms: Terms, total: int, today: date) -> Iterator[str]:
    yield found.condition(total)
    if found.hard:
        yield (f"{len(found.hard):,} of {len(found.steps):,} steps are hard; votes decide them wrong, take a ladder")
    if (limit := next((run.limited_by for run in runs if run.limited_by), None)) is not None:
        yield f"the limit of {found.limits[limit]:,} {limit} a minute makes a run last longer than its waiting"
    yield from terms.notes(today)
