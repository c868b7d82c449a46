"""Plans: the runs that come into question by given rates, by trials of agents or by measured models, and the cheapest that is enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from statistics import NormalDist
from typing import Any

from msgspec import Struct, structs

from microagents.actors.role import Strategy
from microagents.base.errors import InvalidUsage
from microagents.elections.laws import (
    Proportion,
    chance_of,
    check_chance,
    check_majority,
    check_target,
    check_whole,
    race_won,
)
from microagents.elections.race_tables import equal_rates
from microagents.elections.races import race_end
from microagents.elections.step_rates import MAX_K
from microagents.runs.settings import validated
from microagents.runs.step_counts import steps_of
from microagents.runs.strategies import strategy_of
from microagents.runs.words.money import money
from microagents.studies.ceilings import WHAT_HELPS, Ceiling, ceiling_of, in_common
from microagents.studies.measure import Measurement
from microagents.studies.measured import FEWEST_DRAWS, SURE, ModelMeasurement
from microagents.studies.planned_models import BY_LAW, BY_SIMULATION, ROWS, PlannedModel, notes_of
from microagents.studies.planned_runs import Goals, PlannedRun, PlannedRuns
from microagents.studies.pools import groups_of, pooled
from microagents.studies.simulation import SimulatedChain, SimulatedRates, simulate, simulated_rates
from microagents.studies.trials import AgentMeasurement
from microagents.systems.agents.agent import AgentTask
from microagents.systems.chains.lead import Lead
from microagents.systems.chains.maker import Maker
from microagents.systems.questions.problem import Problem
from microagents.task import ChainTask, Task

Z_SQUARED = NormalDist().inv_cdf(0.975) ** 2


class Rates(Struct, frozen=True, kw_only=True):
    """A given rate, in place of a measurement: every step has the same, and no error depends on another."""

    p: float
    """Probability that a reply is right."""

    def simulated(self) -> SimulatedRates:
        """Return the rates of a model that answers at once."""
        return SimulatedRates(draw=lambda _, count: equal_rates(1 - self.p, count))


def plan(
    task: Task | None,
    by: Measurement | Rates | Sequence[ModelMeasurement | AgentMeasurement],
    *,
    target: float = 0.95,
    steps: int | None = None,
    k: int | None = None,
    strategy: str | Strategy | None = None,
    options: Mapping[str, Any] | None = None,
    max_cost_usd: float | None = None,
    max_time_s: float | None = None,
    concurrency: int | None = None,
    repeat: int = 0,
) -> PlannedRuns:
    """List the runs that come into question, with the cheapest that reaches a target marked.

    Of measured models, and of pools of them: `BY_LAW`, each k up to the first that is enough or that gains nothing; and `BY_SIMULATION`
    where none is enough.

    Args:
        task: the task, for its number of steps and the length of its prompts; None if the number of steps is given.
        by: the measurement of each model, or given rates.
        target: wanted chance that all steps are right.
        steps: number of steps; by default the task's.
        k: plan only this k.
        strategy: the strategy that is simulated or estimated; by default `maker`, of an agent `act`.
        options: its options.
        max_cost_usd: cost that a run may be expected to have.
        max_time_s: duration that a run may be expected to have, in seconds.
        concurrency: maximum number of calls in flight.
        repeat: number of runs to simulate with the measured error rates, of the marked row, of ``k``, or of ``strategy``.

    Raises:
        InvalidUsage: the target is not a chance or is above the ceiling, there are no steps, nothing was measured, or every model is wrong
            more often than right.
    """
    check_target(target)
    chosen = {**(options or {}), **({} if k is None else {"k": k})}
    measured = [] if isinstance(by, Rates) else [*by.models, *by.agents] if isinstance(by, Measurement) else [*by]
    if agents := [each for each in measured if isinstance(each, AgentMeasurement)]:
        return _agents(agents, target, chosen)
    models = [each for each in measured if isinstance(each, ModelMeasurement)]
    _check_apart(models)
    total = 1 if steps is None and any(each.of_inputs for each in models) else _steps(task, steps)
    given = None
    if strategy is not None or set(chosen) - {"k"}:
        given = strategy_of(strategy or "maker", SimulatedChain(), chosen)
        if not repeat and not (isinstance(by, Rates) and isinstance(given, Maker)):
            raise InvalidUsage(
                "a strategy and its options are for simulated runs, --repeat N; or for votes by given rates, --p P"
            )
    wanted = Goals(
        total=total, target=target, k=k, max_cost_usd=max_cost_usd, max_time_s=max_time_s, concurrency=concurrency
    )
    if isinstance(by, Rates):
        found = _by_rates(by, wanted, given if isinstance(given, Maker) else Maker())
    else:
        found = _by_models(task, models, wanted)
    if not repeat:
        return found
    votes = [run for run in found.runs if run.k is not None and run.independent is not None]
    row = next((run for run in votes if run.k == k), None) or found.best or votes[-1]
    if isinstance(by, Rates):
        rates = by.simulated()
    elif given is not None:
        rates = simulated_rates(models[0], total)
    else:
        asked = [each for each in models if each.model in row.models]
        joined = pooled(asked) if len(asked) > 1 else None
        rates = simulated_rates(joined or asked[0], total)
    walked: Strategy = Lead()
    if given is not None:
        walked = given
    elif row.strategy == "maker":
        walked = validated(Maker, "the plan", {"k": row.k or Maker().k, **row.options})
    simulated = simulate(rates, total, walked, repeat, concurrency=concurrency)
    return structs.replace(found, simulation=simulated)


def _check_apart(models: Sequence[ModelMeasurement]) -> None:
    """Refuse two measurements of one model: a pool of them would count as two models.

    Raises:
        InvalidUsage: there are two.
    """
    runs = dict[str, str]()
    for each in models:
        if each.model in runs:
            raise InvalidUsage(
                f"runs {runs[each.model]!r} and {each.run_id!r} measured the same model, {each.model}, and a plan takes one measurement of "
                "each model; plan by each of them on its own"
            )
        runs[each.model] = each.run_id


def _steps(task: Task | None, steps: int | None) -> int:
    if steps is not None:
        check_whole("steps", steps)
        return steps
    if isinstance(task, Problem):
        return 1
    if isinstance(task, ChainTask) and not isinstance(task, AgentTask):
        total = steps_of(task)
    else:
        total = None
    if total is None:
        name = "without a task" if task is None else f"{type(task).__name__} does not know it"
        raise InvalidUsage(
            f"the number of steps is unknown ({name}); give it: --steps N; of an agent measure trials: microagents measure TASK"
        )
    check_whole("steps", total)
    return total


# -- given rates -------------------------------------------------------------------------------------------------------


def _by_rates(by: Rates, wanted: Goals, strategy: Maker) -> PlannedRuns:
    """Plan by the law of equal and independent errors against one rival (MAKER, equations 9 to 19), up to the cap of draws.

    With several steps a call, a reply is right if all of them are, and all wrong replies are one: the worst case.
    """
    check_chance(by.p)
    right, elections = by.p**strategy.steps, ceil(wanted.total / strategy.steps)
    check_majority(right)
    runs = list[PlannedRun]()
    for k in [wanted.k] if wanted.k is not None else range(1, min(MAX_K, strategy.max_draws) + 1):
        at_k = validated(Maker, "strategy 'maker'", {**strategy.model_dump(), "k": k}, flag="-s")
        ending = race_end(1 - right, at_k.default_rule, strategy.max_draws)
        share = chance_of(ending.lost, elections)
        if runs and share < runs[-1].chance.share:
            break  # the cap loses more than the margin gains
        options = at_k.model_dump(exclude_defaults=True, exclude={"k"})
        runs.append(
            PlannedRun(
                models=(),
                strategy="maker",
                k=k,
                options={name: str(value) for name, value in options.items()},
                chance=Proportion(share=share, low=share, high=share),
                independent=share,
                calls=ending.draws * elections,
                is_best=share >= wanted.target,
            )
        )
        if share >= wanted.target:
            break
    notes = [
        f"every step errs alike, all wrong replies are one, and an election has at most {strategy.max_draws:,} draws"
    ]
    if not runs[-1].is_best and chance_of(race_won(1 - right, MAX_K), elections) >= wanted.target:
        notes.append("without the cap a k would be enough: raise it, as in -s max_draws=1000")
    return PlannedRuns(
        steps=wanted.total, unit="steps", target=wanted.target, runs=tuple(runs[-ROWS:]), notes={(): tuple(notes)}
    )


# -- agents ------------------------------------------------------------------------------------------------------------


def _agents(agents: Sequence[AgentMeasurement], target: float, options: Mapping[str, Any]) -> PlannedRuns:
    """Plan as the trials were held: by their margins, with their share of successes."""
    if options:
        raise InvalidUsage(
            f"the margins of an agent are those of its trials, so {', '.join(options)} cannot be planned; measure with others: "
            "microagents measure TASK -s k_write=3"
        )
    runs, notes = list[PlannedRun](), dict[tuple[str, ...], tuple[str, ...]]()
    for found in agents:
        run = PlannedRun(
            models=found.models,
            strategy="act",
            k=None,
            options={f"k_{kind}": str(k) for kind, k in found.margins.items()},
            chance=found.success,
            calls=found.calls / found.trials,
            cost_usd=None if found.cost_usd is None else found.cost_usd / found.trials,
        )
        runs.append(run)
        said = [
            f"{found.succeeded:,} of {found.trials:,} trials succeeded; in {found.unseen:,} of the others no vote dissented"
        ]
        # With so many successes alone Wilson's interval begins at the target.
        needed = ceil(Z_SQUARED * target / (1 - target))
        if found.trials < needed:
            said.append(
                f"only {needed:,} trials or more can tell {target:g}: microagents measure TASK --steps {needed}"
            )
        notes[found.models] = (*notes.get(found.models, ()), *said)
    enough = [run for run in runs if run.chance.low >= target]
    best = min(enough, key=_rank, default=None)
    return PlannedRuns(
        steps=1,
        unit="trial",
        target=target,
        runs=tuple([structs.replace(run, is_best=run is best) for run in runs]),
        notes=notes,
    )


# -- measured models ---------------------------------------------------------------------------------------------------


def _by_models(task: Task | None, models: Sequence[ModelMeasurement], wanted: Goals) -> PlannedRuns:
    total, target = wanted.total, wanted.target
    if not models:
        raise InvalidUsage("nothing was measured, so nothing can be planned")
    able = [each for each in models if each.rates().mostly_hard < SURE]
    if not able:
        names = ", ".join(each.model for each in models)
        raise InvalidUsage(
            f"{names}: a wrong reply is the likeliest at most steps, so no k reaches a target; take a stronger model or smaller steps"
        )
    few = next((each for each in able if each.draws < FEWEST_DRAWS), None)
    needed = None
    if few is not None:
        wanted = structs.replace(wanted, k=wanted.k or Maker().k)  # the default stands: too little is known for another
        more = FEWEST_DRAWS - few.draws
        price = "" if few.call_usd is None else f", for {money(more * few.call_usd)}"
        needed = f"{few.draws:,} samples advise no k, so the default stands; {more:,} more of `measure` would say more{price}"
    planned = [PlannedModel(each, wanted) for each in able]
    if few is None:
        planned += [
            PlannedModel(pool, wanted, group) for group in groups_of(able) if (pool := pooled(group)) is not None
        ]
    rows = [(each, run) for each in planned for alternative in BY_LAW for run in alternative(each, task)]
    ceiling = _ceiling_of(models)
    if not any(each.ahead for each in models):
        _refuse_above(ceiling, wanted, [run for _, run in rows], models)
    if not few and not any(model.is_enough(run) for model, run in rows):
        chains = [each for each in planned if not each.found.of_inputs and len(each.models) == 1]
        rows += [(each, run) for each in chains for alternative in BY_SIMULATION for run in alternative(each, task)]
    by_row = sorted(rows, key=lambda each: planned.index(each[0]))
    sure = [(model, run) for model, run in by_row if not few and model.is_enough(run) and not model.may_fail(run)]
    enough = sure or [(model, run) for model, run in by_row if not few and model.is_enough_if(run)]
    best = marked = None
    if not enough and not few:
        needed = next((model.asked for model, run in by_row if model.is_allowed(run) and model.would_tell), None)
    if enough:
        model, best = min(enough, key=lambda each: _rank(each[1]))
        marked = structs.replace(best, is_best=bool(sure), enough_if=None if sure else model.condition)
    return PlannedRuns(
        steps=total,
        unit="input" if any(each.of_inputs for each in models) else "steps",
        target=target,
        runs=tuple([marked if run is best and marked is not None else run for _, run in by_row]),
        notes={
            each.models: tuple(notes_of(each, task, [run for model, run in by_row if model is each]))
            for each in planned
        },
        ceiling=ceiling,
        needed=needed,
    )


def _ceiling_of(models: Sequence[ModelMeasurement]) -> Ceiling:
    """Return the ceiling of all models, or the highest of them if they were measured on different steps."""
    steps = [each.steps for each in models]
    if in_common(steps):
        return ceiling_of([each.model for each in models], steps)
    return max([each.ceiling for each in models], key=lambda each: each.most)


def _refuse_above(
    ceiling: Ceiling, wanted: Goals, runs: Sequence[PlannedRun], models: Sequence[ModelMeasurement]
) -> None:
    """Refuse a target above the ceiling, unless votes that draw more often than was measured may reach it.

    Raises:
        InvalidUsage: it is above.
    """
    by_law = [run.chance.high for run in runs if run.independent is not None]
    if wanted.target <= ceiling.most**wanted.total or wanted.target <= max(by_law):
        return
    said = (
        f"a target of {wanted.target:g} is above the ceiling: {ceiling.sentence(wanted.total)}; more draws were not measured "
        f"(measure --repeat N); there can help {WHAT_HELPS}"
    )
    fitted = {each.target: each for model in models for each in model.thresholds if each.wrong is not None}
    if fitted:
        said += f"; or a person where the model is not sure: {fitted[min(fitted)].sentence}"
    raise InvalidUsage(said)


def _rank(run: PlannedRun) -> tuple[bool, bool, float, float]:
    """Order runs: first the runs that a law judges, then by price. A model of unknown price is the cheapest only if all are unknown."""
    cost_usd = run.cost_usd
    return run.independent is None, cost_usd is None, cost_usd or 0.0, run.calls
