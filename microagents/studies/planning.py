"""Plans of runs: the chance, the calls, the cost and the duration of each strategy that comes into question."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from itertools import product
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
from microagents.elections.race_tables import ERRORS, Array, equal_rates, race_table
from microagents.elections.races import race_end
from microagents.elections.rules import Certify, Tally
from microagents.elections.step_rates import HARD, MAX_K, Interval, StepRates
from microagents.models.model import ModelSpec
from microagents.models.rates import INPUT_TOKENS, OUTPUT_TOKENS, REQUESTS, TOKENS
from microagents.runs.doctor import announced_end
from microagents.runs.settings import validated
from microagents.runs.step_counts import longest_prompt, steps_of
from microagents.runs.strategies import strategy_of
from microagents.runs.words.money import money, prices_of
from microagents.studies.ceilings import WHAT_HELPS, Ceiling, ceiling_of, in_common
from microagents.studies.measure import Measurement
from microagents.studies.measured import (
    FEWEST_DRAWS,
    SURE,
    Chances,
    ModelMeasurement,
    proportion_of,
)
from microagents.studies.measuring import ALL, FIRST
from microagents.studies.pools import IN_TURN, groups_of, pooled
from microagents.studies.simulation import AHEAD, SimulatedChain, SimulatedRates, Simulation, simulate, simulated_rates
from microagents.studies.trials import AgentMeasurement
from microagents.systems.agents.agent import AgentTask
from microagents.systems.chains.lead import Lead
from microagents.systems.chains.maker import Maker
from microagents.systems.chains.stepwise import Stepwise
from microagents.systems.questions.problem import Problem
from microagents.task import ChainTask, Task

ROWS = 8
"""Largest number of ks that are shown of a model."""
LEAST_GAIN = 1e-3
"""Gain of the chance by larger ks below which these are not shown."""
TIMED_CALLS = 2_000
"""Approximate number of calls of the simulated steps that measure the pace of a run: guesses ahead pause by the last thousand."""
SAMPLED, AT_ONCE = 400, 100
"""Number of simulated steps that measure the calls of a strategy without a law, and the same for its chance at hard steps; in a run."""
HARD_SHARE = 0.1
"""Least share of hard steps among the steps that measure this chance: few enough that a rollout meets one at a time."""
Z_SQUARED = NormalDist().inv_cdf(0.975) ** 2
LEAST_P, MOST_P = 0.51, 0.9999
"""Bounds of the share of right votes that a ladder is given."""
Losses = Array | Sequence[Sequence[float]]
"""Chance that a step is lost, by its error rate."""


class Rates(Struct, frozen=True, kw_only=True):
    """A given rate, in place of a measurement: every step has the same, and no error depends on another."""

    p: float
    """Probability that a reply is right."""

    def simulated(self) -> SimulatedRates:
        """Return the rates of a model that answers at once."""
        return SimulatedRates(draw=lambda _, count: equal_rates(1 - self.p, count))


class PlannedRun(Struct, frozen=True, kw_only=True):
    """A strategy with its models, and its promise."""

    models: tuple[str, ...]
    """None with given rates."""
    strategy: str
    k: int | None
    """None for a strategy without a k."""
    options: dict[str, str] = {}
    """Other options of the strategy."""
    chance: Proportion
    """Chance that all steps are right, under the condition of its measurement."""
    independent: float | None = None
    """The same if every step had the mean error rate; None for a strategy without a law."""
    calls: float
    cost_usd: float | None = None
    """Cost of all calls, by the measured cost of a call; None if it is unknown."""
    duration_s: float | None = None
    """Expected duration; None if the latency is unknown."""
    limited_by: str | None = None
    """The limit of the provider that makes the duration, such as ``output tokens``; None if the latency does."""
    is_best: bool = False
    """Whether it is the cheapest that is enough for the target in budget and deadline; a ladder or lead only if no other is."""
    enough_if: str | None = None
    """Condition under which it is this, in words, and how to remove the condition: hard steps may be among those not sampled."""


class _Goals(Struct, frozen=True, kw_only=True):
    """Demands on a run."""

    total: int
    target: float
    k: int | None
    max_cost_usd: float | None
    max_time_s: float | None
    concurrency: int | None


class PlannedRuns(Struct, frozen=True, kw_only=True):
    """The runs that come into question for a task."""

    steps: int
    """Number of steps; 1 for an input that is one question, and for the trial of an agent."""
    unit: str
    """Unit of the chance: ``steps``, ``input`` or ``trial``."""
    target: float
    runs: tuple[PlannedRun, ...]
    notes: dict[tuple[str, ...], tuple[str, ...]] = {}
    """Sentences on runs, by the names of their models."""
    ceiling: Ceiling | None = None
    """Of measured models the limit of all that picks among their samples; None of others."""
    needed: str | None = None
    """Why no k is advised, if there are too few samples, and which draws would tell."""
    simulation: Simulation | None = None
    """Outcome of simulated runs of the marked or chosen row."""

    @property
    def best(self) -> PlannedRun | None:
        """The marked run; None if none reaches the target."""
        return next((run for run in self.runs if run.is_best), None)

    @property
    def assumed(self) -> PlannedRun | None:
        """The run that would be marked if no unsampled step erred more often than the worst sampled one; None without such a run."""
        return next((run for run in self.runs if run.enough_if is not None), None)


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
    wanted = _Goals(
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
    of_row = {each.model: each for each in models}
    if isinstance(by, Rates):
        rates = by.simulated()
    else:
        rates = simulated_rates(of_row[row.models[0]] if given is None else models[0], total)
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


def _by_rates(by: Rates, wanted: _Goals, strategy: Maker) -> PlannedRuns:
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


def _by_models(task: Task | None, models: Sequence[ModelMeasurement], wanted: _Goals) -> PlannedRuns:
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
    planned = [_Planned(each, wanted) for each in able]
    if few is None:
        planned += [_Planned(pool, wanted, group) for group in groups_of(able) if (pool := pooled(group)) is not None]
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
            each.models: tuple(_notes(each, task, [run for model, run in by_row if model is each])) for each in planned
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
    ceiling: Ceiling, wanted: _Goals, runs: Sequence[PlannedRun], models: Sequence[ModelMeasurement]
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


class _Planned:
    """A measured model, or a pool as one, and the demands on a run."""

    def __init__(self, found: ModelMeasurement, wanted: _Goals, pool: Sequence[ModelMeasurement] = ()) -> None:
        self.found = found
        self.models = tuple([each.model for each in pool]) or (found.model,)
        self.wanted, self.total, self.target = wanted, wanted.total, wanted.target
        self._is_of_input = found.of_inputs and self.total == 1

    def is_enough(self, run: PlannedRun) -> bool:
        """Return whether the interval of a row is above the target, within budget and deadline."""
        return self.is_allowed(run) and run.chance.low >= self.target

    def is_enough_if(self, run: PlannedRun) -> bool:
        """Return whether a lead of k votes is enough under `condition`, within budget and deadline."""
        if run.k is None or run.independent is None or not self.is_allowed(run):
            return False
        return self._low_if(run.k) >= self.target

    def _low(self, k: int) -> float:
        """Compute the low end of the chance of a lead of k votes."""
        return self._chance(self.rates, k).low

    def _low_if(self, k: int) -> float:
        """Compute the low end under `condition`, when one sampled step errs as often as its right draws leave open."""
        lost = 1 - race_won(1 - self.rates.hidden, k)
        return self._chance(self._rates_if, k).low * (1 - lost / (self.rates.total if self._is_of_input else 1))

    def _chance(self, rates: StepRates, k: int) -> Interval:
        return (rates.decided if self._is_of_input else rates.chance)(k)

    @cached_property
    def would_tell(self) -> bool:
        """Whether more draws of the sampled steps probably make a k enough under `condition`."""
        if not self.rates.unseen or self.rates.hidden < HARD:
            return False
        return any(self._chance(self._rates_if, k).mid >= self.target for k in range(1, MAX_K + 1))

    @cached_property
    def _rates_if(self) -> StepRates:
        """Rates under `condition`."""
        return self.rates.if_none_is_worse()

    def is_allowed(self, run: PlannedRun) -> bool:
        """Return whether a run is within budget and deadline."""
        bounds = ((run.cost_usd, self.wanted.max_cost_usd), (run.duration_s, self.wanted.max_time_s))
        return all(most is None or (amount is not None and amount <= most) for amount, most in bounds)

    def may_fail(self, run: PlannedRun) -> bool:
        """Return whether the hard steps that may be among those not sampled are enough to miss the target; of a run one is."""
        if self._is_of_input:
            return run.chance.low - self.rates.unseen_hard / self.rates.total < self.target
        return self.rates.unseen_hard > 0

    @property
    def rates(self) -> StepRates:
        """Rates of the planned run; of an input those of all inputs."""
        return self.found.rates(None if self._is_of_input else self.total)

    @property
    def condition(self) -> str:
        """Name the assumptions of a row that is enough, and the cost of the samples that would tell."""
        return (
            f"if none of the {self.rates.unseen:,} unsampled {self._unit}s errs more often than the worst sampled one (up to "
            f"{self.rates.unseen_hard:,} may be hard); {self._all_sampled}"
        )

    @property
    def asked(self) -> str:
        """Name the draws that leave less of the worst sampled step open than those so far, and their cost."""
        more = sum(max(0, ALL - each.drawn) for each in self.found.steps)
        return (
            f"no run reaches {self.target:g} for sure, and no k is advised: a sampled {self._unit} that errs in {self.rates.hidden:.2f} of "
            f"replies may have been right in all its draws; draw each {ALL} times, by measure --repeat {ALL}: {self._draws(more)}; or "
            f"{self._all_sampled}"
        )

    @property
    def _unit(self) -> str:
        return "input" if self._is_of_input else "step"

    @property
    def _all_sampled(self) -> str:
        return f"sample them all, by measure --steps {self.rates.total}: {self._draws(FIRST * self.rates.unseen)}"

    def _draws(self, count: int) -> str:
        """Write a number of draws with their cost."""
        cost = "" if self.found.call_usd is None else f", {money(count * self.found.call_usd)}"
        return f"{count:,} draws{cost}"

    @cached_property
    def tried(self) -> dict[int, Chances]:
        """Chances by the ks that are shown."""
        return {k: self.found.chances(k, self.total) for k in self._ks}

    @property
    def _ks(self) -> Sequence[int]:
        """The wanted k; else the last `ROWS` up to the first that is enough, or is under `condition`, or that no other betters."""
        if self.wanted.k is not None:
            return [self.wanted.k]
        ks = range(1, MAX_K + 1)
        tried = product((self._low, self._low_if), ks)
        last = next((k for low, k in tried if low(k) >= self.target), None)
        if last is None:  # from some k on the cap loses more than the lead gains
            shares = [self._chance(self.rates, k).mid for k in ks]
            least = max(shares) - LEAST_GAIN
            last = next(k for k, share in zip(ks, shares, strict=True) if share >= least)
        return ks[:last][-ROWS:]

    def planned(
        self,
        strategy: Stepwise,
        chance: Proportion,
        calls: float,
        *,
        independent: float | None = None,
        paid: float = 1.0,
    ) -> PlannedRun:
        """Build the row of a strategy.

        Args:
            strategy: the strategy.
            chance: its chance.
            calls: expected number of calls.
            independent: the chance by its law if every step had the mean error rate.
            paid: cost of a call in votes: more than 1 if some are rollouts.
        """
        waits_s = self._pace_s(strategy)
        least_s, limit = self._least_s(paid * calls)
        duration_s = None if waits_s is None else max(self.total * waits_s, least_s)
        changed = strategy.model_dump(exclude_defaults=True, exclude={"k"})
        return PlannedRun(
            models=self.models,
            strategy="maker" if isinstance(strategy, Maker) else "lead",
            k=strategy.deciding_votes,
            options={name: str(value) for name, value in changed.items()},
            chance=chance,
            independent=independent,
            calls=calls,
            cost_usd=None if self.found.call_usd is None else self.found.call_usd * paid * calls,
            duration_s=duration_s,
            limited_by=limit if limit and duration_s == least_s else None,
        )

    def _least_s(self, calls: float) -> tuple[float, str]:
        """Return the least duration of the calls under the provider's limits, and the limit that makes it; 0 for none."""
        of_all = max(1, self.found.calls)
        read, written = self.found.input_tokens / of_all, self.found.output_tokens / of_all
        of_call = {REQUESTS: 1.0, TOKENS: read + written, INPUT_TOKENS: read, OUTPUT_TOKENS: written}
        limits = self.found.limits.items()
        return max(
            [(60 * calls * of_call[name] / most, name) for name, most in limits if name in of_call], default=(0.0, "")
        )

    def _pace_s(self, strategy: Stepwise) -> float | None:
        """Simulate some steps with the measured latency and errors; returns the seconds of a step, None without a latency.

        If steps open on guesses, a step waits only for its first vote, and wrong guesses cost time: no law gives their number.
        """
        if self.found.latency is None:
            return None
        steps = min(self.total, TIMED_CALLS // Tally(strategy.default_rule).votes_needed)
        timed = simulate(
            simulated_rates(self.found, self.total), steps, strategy, 1, concurrency=self.wanted.concurrency
        )
        return timed.duration_s / max(1.0, timed.steps)


def _rank(run: PlannedRun) -> tuple[bool, bool, float, float]:
    """Order runs: first the runs that a law judges, then by price. A model of unknown price is the cheapest only if all are unknown."""
    cost_usd = run.cost_usd
    return run.independent is None, cost_usd is None, cost_usd or 0.0, run.calls


def _by_lead(model: _Planned, _: Task | None) -> Iterator[PlannedRun]:
    """Yield votes ahead by k, alone and with certificates by the model's probabilities, which elect the same replies for fewer calls."""
    number = model.found.total if model.found.of_inputs else model.total
    for k, each in model.tried.items():
        run = model.planned(Maker(k=k), each.measured, each.calls, independent=each.independent)
        yield run
        less = 1 - model.found.spared_of(k, number) * model.total / number / run.calls
        if less < 1:
            cost_usd = None if run.cost_usd is None else run.cost_usd * less
            yield structs.replace(run, options={"certain": "on"}, calls=run.calls * less, cost_usd=cost_usd)


def _by_test(model: _Planned, _: Task | None) -> Iterator[PlannedRun]:
    """Yield votes until a test says which reply is the likeliest."""
    if model.wanted.k is not None:
        return
    rule = Maker(rule="certify")
    each = model.found.chances(Certify(rule.level), model.total)
    yield model.planned(rule, each.measured, each.calls, independent=each.independent)


def _is_simulated(model: _Planned, task: Task | None) -> bool:
    """Return whether rungs and rollouts can be simulated: the simulated model can only continue from a state that a prompt shows."""
    return prices_of(model.models).is_billed or (
        isinstance(task, ChainTask) and type(task).state_in is not ChainTask.state_in
    )


def _by_ladder(model: _Planned, task: Task | None) -> Iterator[PlannedRun]:
    """Yield a ladder above the last k that was tried."""
    last = max(model.tried)
    ladder = "lookahead,judge" if _is_simulated(model, task) else "judge"
    p = round(min(MOST_P, max(LEAST_P, model.rates.p_ordinary)), 4)
    yield _by_simulation(model, Maker(k=last, ladder=ladder, p=p, horizon=_horizon(model)), race_table(last).loss)


def _by_lookahead(model: _Planned, task: Task | None) -> Iterator[PlannedRun]:
    """Yield lead."""
    if not _is_simulated(model, task):
        return
    lead = Lead(horizon=_horizon(model))
    lost = [[_lead_lost(float(error), lead)] for error in ERRORS]
    yield _by_simulation(model, lead, lost)


def _horizon(model: _Planned) -> int:
    """Return the number of steps of the measured rollouts, if these tell of hard steps, else the default."""
    if not model.found.ahead:
        return Lead().horizon
    return model.found.horizon


Alternative = Callable[[_Planned, Task | None], Iterator[PlannedRun]]
BY_LAW: tuple[Alternative, ...] = (_by_lead, _by_test)
"""Ways to decide steps that a plan chooses from, for each model and each pool."""
BY_SIMULATION: tuple[Alternative, ...] = (_by_ladder, _by_lookahead)
"""The same whose chance at hard steps is simulated; they are tried where no other is enough, for the steps of a chain by one model."""


def _lead_lost(rate: float, lead: Lead) -> float:
    """Compute the chance that lead loses a step whose rollouts err as often as its samples, against one rival."""
    wrong, right = rate**lead.samples, (1 - rate) ** lead.samples
    return wrong + (1 - wrong - right) * race_won(rate, lead.margin)


def _by_simulation(model: _Planned, strategy: Stepwise, loss: Losses) -> PlannedRun:
    """Plan a strategy that climbs. A law bounds its losses at ordinary steps; at hard ones, and for its calls, the engine is run."""
    found, total, rates = model.found, model.total, model.rates
    steps = min(AT_ONCE, total)
    runs, at_once_all = ceil(SAMPLED / steps), strategy.model_copy(update={"known_inputs": True})
    as_measured = simulate(simulated_rates(found, total, timed=False), steps, at_once_all, runs)
    failed, of_hard = 0, 0
    if rates.hard_found:
        # Where all steps were sampled, the hard ones stand where they were found: rollouts may meet several, or one at a time.
        share = HARD_SHARE if rates.unseen else 0.0
        tries = runs if share else 2 * runs
        tried = simulate(simulated_rates(found, total, hard=share, timed=False), steps, at_once_all, tries)
        failed, of_hard = min(tried.lost, tried.hard), tried.hard
    calls = total * as_measured.calls / steps
    chance = proportion_of(rates.chance_by(loss, failed=failed, of_hard=of_hard))
    paid = 1 + (strategy.horizon - 1) * as_measured.rollouts / as_measured.calls
    return model.planned(strategy, chance, calls, paid=paid)


def _notes(model: _Planned, task: Task | None, runs: Sequence[PlannedRun]) -> Iterator[str]:
    found = model.found
    yield found.condition(model.total)
    if len(model.models) > 1:
        yield IN_TURN
        return
    longer = found.longer(longest_prompt(task)) if isinstance(task, ChainTask) else None
    if longer is not None:
        yield longer
    if any(run.independent is None for run in runs):
        errors = ", ".join(f"{each:.2f}" for each in found.ahead or AHEAD)
        known = "as measured" if found.ahead else "as in LEAD; `microagents measure TASK --rollouts N` measures it"
        yield (
            f"lead and ladders: calls and hard steps are of {SAMPLED} simulated steps; there a rollout from 1, 2, ... steps before errs in "
            f"{errors}, {known}"
        )
    if found.hard:
        yield f"{len(found.hard):,} of {len(found.steps):,} steps are hard; votes decide them wrong, take a ladder"
    yield from (each.sentence for each in found.thresholds if each.wrong is not None)
    limit = next((run.limited_by for run in runs if run.limited_by), None)
    if limit is not None:
        yield f"the limit of {found.limits[limit]:,} {limit} a minute makes a run last longer than its waiting"
    spec = ModelSpec.parse(found.model)
    end = announced_end(spec, datetime.now(UTC).date())
    if end is not None and prices_of([found.model]).is_billed and "base_url" not in spec.options:
        yield f"the model {end}"
