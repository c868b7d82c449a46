"""Plans of runs: the chance, the cost and the duration of each strategy that comes into question, from calibrations of models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from itertools import combinations
from statistics import fmean

from msgspec import Struct, structs

from microagents.base.errors import InvalidUsage
from microagents.elections.error_rates import HARD, Loss, exact_interval
from microagents.elections.laws import check_target, check_whole, race_won
from microagents.runs.words.money import are_simulated
from microagents.studies.analysis import Proportion
from microagents.studies.bills import Bill, Terms
from microagents.studies.measured import MAX_K, MOSTLY, ModelCalibration, PooledCalibration, pooled
from microagents.studies.simulation import Simulation, simulate
from microagents.systems.chains.lead import Lead
from microagents.systems.chains.maker import Maker
from microagents.systems.chains.stepwise import Stepwise
from microagents.task import ChainTask, Task
from microagents.tasks.drift import Drift

LEAST_GAIN = 1e-3
"""Gain of the chance by the next k below which a larger k is not tried."""
TIMED_CALLS = 2_000
"""Approximate number of calls of the simulated steps that measure the pace of a run: guesses ahead pause by the last thousand."""
SAMPLED = 400
"""Number of simulated steps that measure the calls of a strategy without a law, and the same for its chance at hard steps."""
HARD_SHARE = 0.1
"""Least share of hard steps among the steps that measure this chance: few enough that a rollout meets one at a time."""
LEAST_P, MOST_P = 0.51, 0.9999
"""Bounds of the share of right votes that a ladder is given."""


EXTRAPOLATED = (
    f"lead and ladders: the calls, and the chance at hard steps, are those of {SAMPLED} simulated steps with the measured "
    "errors, as a share of all steps; a rollout errs at a hard step in .1, as in LEAD (`microagents study TASK "
    "lookahead` measures it), and is paid as so many calls as it has steps"
)
"""How the rows of strategies without a law were made."""


class PlannedRun(Struct, frozen=True, kw_only=True):
    """A strategy with its models, and what it promises."""

    models: tuple[str, ...]
    strategy: str
    k: int | None
    """None for a strategy without a k."""
    options: dict[str, str] = {}
    """Other options of the strategy."""
    chance: Proportion
    """Chance that all steps are right, under the condition of its calibration."""
    calls: float
    cost_usd: Bill
    """Cost of all calls: as measured, and between which bounds it may be."""
    duration_s: float | None
    """Expected duration; None if the latency is unknown."""
    limited_by: str | None = None
    """The limit of the provider that makes the duration, such as ``output tokens``; None if the latency does."""
    is_best: bool = False
    """Whether it is the cheapest whose lower bound reaches the target in budget and deadline; a ladder or lead only if no other does."""


class PlannedRuns(Struct, frozen=True, kw_only=True):
    """The runs that come into question for a task."""

    steps: int
    target: float
    runs: tuple[PlannedRun, ...]
    notes: dict[tuple[str, ...], tuple[str, ...]]
    """By models the sentences about what bears on its runs."""

    @property
    def best(self) -> PlannedRun | None:
        """The marked run; None if none reaches the target."""
        return next((run for run in self.runs if run.is_best), None)


class _Pool:
    """One model, or two whose samples take turns, on the terms of their providers."""

    def __init__(self, found: ModelCalibration, task: Task, *, total: int, concurrency: int | None) -> None:
        self.found = found
        self.members = found.both if isinstance(found, PooledCalibration) else (found,)
        self.models = tuple(each.model for each in self.members)
        self.terms = [Terms(each, task) for each in self.members]
        self.total = total
        self._concurrency = concurrency

    def planned(
        self,
        strategy: Stepwise,
        chance: Proportion,
        *,
        at_once: int,
        calls: float,
        calls_high: float,
        paid: float = 1.0,
    ) -> PlannedRun:
        """Build the row of a strategy.

        Args:
            strategy: the strategy.
            chance: its chance.
            at_once: number of votes that a step asks for at once.
            calls: expected number of calls.
            calls_high: its upper end.
            paid: what a call costs, in votes: more than 1 if some are rollouts.
        """
        bills = [each.bill(at_once) for each in self.terms]
        low, mid, high = [_mean([getattr(bill, end) for bill in bills]) for end in ("low", "mid", "high")]
        waits_s = self._pace_s(strategy, at_once)
        least_s, limit = max(each.least_s(paid * calls / len(self.terms)) for each in self.terms)
        duration_s = None if waits_s is None else max(self.total * waits_s, least_s)
        k = strategy.k if isinstance(strategy, Maker) else None
        changed = strategy.model_dump(exclude_defaults=True, exclude={"k"})
        return PlannedRun(
            models=self.models,
            strategy="maker" if isinstance(strategy, Maker) else "lead",
            k=k,
            options={name: str(value) for name, value in changed.items()},
            chance=chance,
            calls=calls,
            cost_usd=Bill(
                low=None if low is None else low * calls,
                mid=None if mid is None else mid * paid * calls,
                high=None if high is None else high * paid * calls_high,
            ),
            duration_s=duration_s,
            limited_by=limit if limit and duration_s == least_s else None,
        )

    def _pace_s(self, strategy: Stepwise, at_once: int) -> float | None:
        """Simulate some steps with the measured latency and errors; returns the seconds of a step, None without a latency.

        If steps open on guesses, a step waits only for its first vote, and wrong guesses cost time: no law gives their number.
        """
        if any(each.latency is None for each in self.members):
            return None
        timed = simulate(
            Drift(length=min(self.total, TIMED_CALLS // at_once)),
            model=[each.simulated for each in self.members],
            strategy=strategy,
            runs=1,
            concurrency=self._concurrency,
        )
        return timed.duration_s / max(1.0, timed.steps)


def plan_runs(
    task: Task,
    calibrations: Sequence[ModelCalibration],
    total: int,
    target: float,
    *,
    budget_usd: float | None = None,
    deadline_s: float | None = None,
    concurrency: int | None = None,
) -> PlannedRuns:
    """List the runs that come into question: each model, and each pool of two, by k, and each model with a ladder and with `lead`.

    The ks go up to the first that is enough, or that gains nothing.

    Args:
        task: the task, for the length of its prompts.
        calibrations: one for each model.
        total: number of steps.
        target: wanted chance that all are right.
        budget_usd: cost that a run may be expected to have.
        deadline_s: duration that a run may be expected to have.
        concurrency: maximum number of calls in flight.

    Raises:
        InvalidUsage: the target is not a chance, there are no steps, or every model is wrong more often than right.
    """
    check_target(target)
    check_whole("steps", total)
    able = [each for each in calibrations if each.p.share > MOSTLY]
    if not able:
        names = ", ".join(each.model for each in calibrations)
        raise InvalidUsage(
            f"{names}: wrong more often than right, so no k reaches a target; take a stronger model or smaller steps"
        )
    pairs = [both for pair in combinations(able, 2) if (both := pooled(*pair)) is not None]
    pools = [_Pool(each, task, total=total, concurrency=concurrency) for each in (*able, *pairs)]
    by_pool = [(pool, list(_runs(pool, task, target))) for pool in pools]
    found = [run for _, runs in by_pool for run in runs]
    enough = [run for run in found if run.chance.low >= target and _is_within(run, budget_usd, deadline_s)]
    best = min(enough, key=_rank, default=None)
    today = datetime.now(UTC).date()
    return PlannedRuns(
        steps=total,
        target=target,
        runs=tuple(structs.replace(run, is_best=True) if run is best else run for run in found),
        notes={pool.models: tuple(_notes(pool, runs, today)) for pool, runs in by_pool},
    )


def _rank(run: PlannedRun) -> tuple[bool, bool, float, float]:
    """Order runs: first the runs that a law judges, then by price. A model of unknown price is the cheapest only if all are unknown."""
    cost_usd = run.cost_usd.mid
    return bool(run.options) or run.k is None, cost_usd is None, cost_usd or 0.0, run.calls


def _is_within(run: PlannedRun, budget_usd: float | None, deadline_s: float | None) -> bool:
    cost_usd, duration_s = run.cost_usd.mid, run.duration_s
    return (budget_usd is None or (cost_usd is not None and cost_usd <= budget_usd)) and (
        deadline_s is None or (duration_s is not None and duration_s <= deadline_s)
    )


def _runs(pool: _Pool, task: Task, target: float) -> Iterator[PlannedRun]:
    k = 1
    for run in _by_k(pool, target):
        k = run.k or k
        yield run
    if isinstance(pool.found, PooledCalibration):
        return
    is_able = not are_simulated(pool.models) or _rolls_out(task)
    p = min(MOST_P, max(LEAST_P, 1 - pool.found.rates.mean_at(hard=False)))
    ladder = "lookahead,judge" if is_able else "judge"
    yield _by_simulation(pool, Maker(k=k, ladder=ladder, p=round(p, 4)), k, lambda rate: race_won(rate, k))
    if is_able:
        lead = Lead()
        yield _by_simulation(pool, lead, lead.samples, lambda rate: _lead_lost(rate, lead))


def _rolls_out(task: Task) -> bool:
    """Return whether the simulated model can continue from the state that a prompt of a task shows."""
    return isinstance(task, ChainTask) and type(task).state_in is not ChainTask.state_in


def _by_k(pool: _Pool, target: float) -> Iterator[PlannedRun]:
    before: PlannedRun | None = None
    for k in range(1, MAX_K + 1):
        chances = pool.found.chances(k, pool.total)
        run = pool.planned(Maker(k=k), chances.measured, at_once=k, calls=chances.calls, calls_high=chances.calls_high)
        yield run
        gains = before is None or run.chance.low - before.chance.low >= LEAST_GAIN or chances.independent < target
        if run.chance.low >= target or not gains:
            return
        before = run


def _lead_lost(rate: float, lead: Lead) -> float:
    """Compute the chance that lead loses a step whose rollouts err as often as its samples, against one rival."""
    wrong, right = rate**lead.samples, (1 - rate) ** lead.samples
    return wrong + (1 - wrong - right) * race_won(rate, lead.margin)


def _by_simulation(pool: _Pool, strategy: Stepwise, at_once: int, lost: Loss) -> PlannedRun:
    """Plan a strategy that climbs. A law bounds what it loses at ordinary steps; at hard ones, and for its calls, the engine is run."""
    found, total = pool.found, pool.total
    as_measured = _side_by_side(found, strategy, found.rates.hard)
    low, share, high = 0.0, 0.0, 0.0
    if found.rates.hard:
        hard = max(HARD_SHARE, found.rates.hard)
        of_hard = round(hard * SAMPLED)
        failed = min(_side_by_side(found, strategy, hard).lost, of_hard)
        share, (low, high) = failed / of_hard, exact_interval(failed, of_hard)

    def at(of_hard: float) -> Loss:
        return lambda rate: lost(rate) if rate < HARD else of_hard

    calls = total * as_measured.calls / SAMPLED
    by_law = found.chances(at_once, total)
    rollouts = as_measured.rollouts / as_measured.calls
    return pool.planned(
        strategy,
        found.chance(total, at(share), at(low), at(high)),
        at_once=at_once,
        calls=calls,
        calls_high=calls * by_law.calls_high / by_law.calls,
        paid=1 + (strategy.horizon - 1) * rollouts,
    )


def _side_by_side(found: ModelCalibration, strategy: Stepwise, hard: float) -> Simulation:
    at_once = strategy.model_copy(update={"known_inputs": True})
    return simulate(Drift(length=SAMPLED), model=found.spec_with(hard, timed=False), strategy=at_once, runs=1)


def _mean(costs: Sequence[float | None]) -> float | None:
    known = [each for each in costs if each is not None]
    return fmean(known) if len(known) == len(costs) else None


def _notes(pool: _Pool, runs: Sequence[PlannedRun], today: date) -> Iterator[str]:
    found = pool.found
    yield found.condition(pool.total)
    if found.hard:
        yield f"{len(found.hard):,} of {len(found.steps):,} steps are hard; votes decide them wrong, take a ladder"
    if isinstance(found, PooledCalibration):
        return
    limit = next((run.limited_by for run in runs if run.limited_by), None)
    if limit is not None:
        yield f"the limit of {found.limits[limit]:,} {limit} a minute makes a run last longer than its waiting"
    yield from pool.terms[0].notes(today)
