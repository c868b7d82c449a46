"""The planned runs of one measured model, or of a pool: votes by law; ladders and lookahead by simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from itertools import product
from math import ceil

from msgspec import structs

from microagents.elections.laws import Proportion, race_won
from microagents.elections.race_tables import ERRORS, Array, race_table
from microagents.elections.rules import Certify, Tally
from microagents.elections.step_rates import HARD, MAX_K, Interval, StepRates
from microagents.models.model import ModelSpec
from microagents.models.rates import INPUT_TOKENS, OUTPUT_TOKENS, REQUESTS, TOKENS
from microagents.runs.doctor import announced_end
from microagents.runs.step_counts import longest_prompt
from microagents.runs.words.money import money, prices_of
from microagents.studies.measured import Chances, ModelMeasurement, proportion_of
from microagents.studies.measuring import ALL, FIRST
from microagents.studies.planned_runs import Goals, PlannedRun
from microagents.studies.pools import IN_TURN
from microagents.studies.simulation import AHEAD, simulate, simulated_rates
from microagents.systems.chains.lead import Lead
from microagents.systems.chains.maker import Maker
from microagents.systems.chains.stepwise import Stepwise
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
LEAST_P, MOST_P = 0.51, 0.9999
"""Bounds of the share of right votes that a ladder is given."""
Losses = Array | Sequence[Sequence[float]]
"""Chance that a step is lost, by its error rate."""


class PlannedModel:
    """A measured model, or a pool as one, and the demands on a run."""

    def __init__(self, found: ModelMeasurement, wanted: Goals, pool: Sequence[ModelMeasurement] = ()) -> None:
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


def _by_lead(model: PlannedModel, _: Task | None) -> Iterator[PlannedRun]:
    """Yield votes ahead by k, alone and with certificates by the model's probabilities, which elect the same replies for fewer calls."""
    number = model.found.total if model.found.of_inputs else model.total
    for k, each in model.tried.items():
        run = model.planned(Maker(k=k), each.measured, each.calls, independent=each.independent)
        yield run
        less = 1 - model.found.spared_of(k, number) * model.total / number / run.calls
        if less < 1:
            cost_usd = None if run.cost_usd is None else run.cost_usd * less
            yield structs.replace(run, options={"certain": "on"}, calls=run.calls * less, cost_usd=cost_usd)


def _by_test(model: PlannedModel, _: Task | None) -> Iterator[PlannedRun]:
    """Yield votes until a test says which reply is the likeliest."""
    if model.wanted.k is not None:
        return
    rule = Maker(rule="certify")
    each = model.found.chances(Certify(rule.level), model.total)
    yield model.planned(rule, each.measured, each.calls, independent=each.independent)


def _is_simulated(model: PlannedModel, task: Task | None) -> bool:
    """Return whether rungs and rollouts can be simulated: the simulated model can only continue from a state that a prompt shows."""
    return prices_of(model.models).is_billed or (
        isinstance(task, ChainTask) and type(task).state_in is not ChainTask.state_in
    )


def _by_ladder(model: PlannedModel, task: Task | None) -> Iterator[PlannedRun]:
    """Yield a ladder above the last k that was tried."""
    last = max(model.tried)
    ladder = "lookahead,judge" if _is_simulated(model, task) else "judge"
    p = round(min(MOST_P, max(LEAST_P, model.rates.p_ordinary)), 4)
    yield _by_simulation(model, Maker(k=last, ladder=ladder, p=p, horizon=_horizon(model)), race_table(last).loss)


def _by_lookahead(model: PlannedModel, task: Task | None) -> Iterator[PlannedRun]:
    """Yield lead."""
    if not _is_simulated(model, task):
        return
    lead = Lead(horizon=_horizon(model))
    lost = [[_lead_lost(float(error), lead)] for error in ERRORS]
    yield _by_simulation(model, lead, lost)


def _horizon(model: PlannedModel) -> int:
    """Return the number of steps of the measured rollouts, if these tell of hard steps, else the default."""
    if not model.found.ahead:
        return Lead().horizon
    return model.found.horizon


Alternative = Callable[[PlannedModel, Task | None], Iterator[PlannedRun]]
BY_LAW: tuple[Alternative, ...] = (_by_lead, _by_test)
"""Ways to decide steps that a plan chooses from, for each model and each pool."""
BY_SIMULATION: tuple[Alternative, ...] = (_by_ladder, _by_lookahead)
"""The same whose chance at hard steps is simulated; they are tried where no other is enough, for the steps of a chain by one model."""


def _lead_lost(rate: float, lead: Lead) -> float:
    """Compute the chance that lead loses a step whose rollouts err as often as its samples, against one rival."""
    wrong, right = rate**lead.samples, (1 - rate) ** lead.samples
    return wrong + (1 - wrong - right) * race_won(rate, lead.margin)


def _by_simulation(model: PlannedModel, strategy: Stepwise, loss: Losses) -> PlannedRun:
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


def notes_of(model: PlannedModel, task: Task | None, runs: Sequence[PlannedRun]) -> Iterator[str]:
    """Yield sentences on the planned runs of a model: their conditions, assumptions and limits."""
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
