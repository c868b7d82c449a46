"""What was measured of one model: error rates of its votes, the chances they give, and the advice that follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from math import inf, log, sqrt
from statistics import NormalDist, fmean
from typing import Any, Literal

from msgspec import Struct

from microagents.base.errors import InvalidUsage
from microagents.elections.error_rates import (
    ErrorRates,
    Loss,
    PooledRates,
    Seen,
    chance_of,
    error_rates,
    exact_interval,
    pooled_rates,
    smooth_rates,
    upper_share,
)
from microagents.elections.laws import expected_votes, race_by_turns, race_won
from microagents.journal.messages import Promise
from microagents.studies.measuring import FIRST, MeasuredStep

MAX_DRAWS = 100
"""The cap of an election by default."""
MOSTLY = 0.5
FEWEST = 59
"""Number of ordinary steps, none hard, that excludes at 95 % that more than 5 % of all are hard."""
FEWEST_DRAWS = 30
"""With fewer samples no k is advised."""
BOUNDS = 0.025
"""Share of the resamplings below the lower bound of a chance, and above the upper one."""

Verdict = Literal["votes-help", "hard-steps", "voting-hurts", "too-few", "too-many-answers"]
"""What a measurement advises. docs/planning.md explains each."""
VERDICTS: dict[Verdict, str] = {
    "votes-help": "votes help: `microagents plan` says how many",
    "hard-steps": "hard steps: {hard} of {steps:,} are wrong in most samples, and votes decide such a step wrong; take a ladder",
    "voting-hurts": "wrong more often than right: voting hurts; take a stronger model or smaller steps",
    "too-few": "too few samples for a promise: {needed:,} more are needed, by --steps or --draws",
    "too-many-answers": "answers too many for exact votes: right replies differ from each other; use votes by meaning",
}
_NORMAL_P95 = NormalDist().inv_cdf(0.95)


class Proportion(Struct, frozen=True, kw_only=True):
    """A share with its 95 % interval."""

    share: float
    low: float
    high: float


def proportion(found: float, steps: int) -> Proportion:
    """Return a share over steps with its exact interval (Clopper and Pearson 1934)."""
    low, high = exact_interval(found, steps)
    return Proportion(share=found / steps, low=low, high=high)


class Chances(Struct, frozen=True, kw_only=True):
    """Chances that all steps of a task are decided right at one k."""

    k: int
    independent: float
    """If all steps had the mean error rate."""
    measured: Proportion
    """By the error rates as they differ from step to step, if no step is harder than those seen."""
    calls: float
    """Expected number of calls, at most `MAX_DRAWS` a step."""
    calls_high: float
    """The same at the upper ends of the error rates and of the red flags."""


class Latency(Struct, frozen=True, kw_only=True):
    """Quantiles of the durations of calls in seconds, from the sending of a call to its reply; waiting for leave to send is left out."""

    p50: float
    p95: float
    p99: float

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm, of the lognormal distribution with these quantiles at .5 and .95."""
        return log(self.p95 / self.p50) / _NORMAL_P95


class ModelMeasurement(Struct, frozen=True, kw_only=True, dict=True):
    """What was measured of one model."""

    model: str
    run_id: str
    total: int
    """Number of steps of the task, or of inputs."""
    steps: tuple[MeasuredStep, ...]
    of_inputs: bool = False
    """Whether a step is the only question of an input."""
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    """None if a price is unknown."""
    cached_tokens: int = 0
    """Input tokens that the provider read from its cache."""
    prices: Mapping[str, Any] = {}
    """The user's prices by ``provider:model``."""
    limits: Mapping[str, int] = {}
    """Limits a minute that the provider stated, by what they limit: ``requests``, ``tokens``, ``input tokens`` or ``output tokens``."""
    latency: Latency | None = None
    """None if it was not measured: of a model that answers at once."""

    @property
    def judged(self) -> bool:
        """Whether an oracle judged the samples."""
        return all(each.right is not None for each in self.steps)

    @property
    def draws(self) -> int:
        """Number of samples."""
        return sum(each.drawn for each in self.steps)

    @property
    def call_usd(self) -> float | None:
        """Mean cost of a call."""
        return None if self.cost_usd is None or not self.calls else self.cost_usd / self.calls

    @cached_property
    def p(self) -> Proportion:
        """Share of the valid replies that are right, over steps: only by the first samples, as many for every step.

        Raises:
            InvalidUsage: no reply is valid, or nothing judges them.
        """
        if not self.judged:
            raise InvalidUsage(f"run {self.run_id!r} had no oracle, and agreement by itself promises nothing")
        wrongs = [sum(each.errors[: each.first_valid]) / each.first_valid for each in self.steps if each.first_valid]
        if not wrongs:
            raise InvalidUsage(
                f"{self.model} gave no valid reply to {len(self.steps):,} steps, so nothing is known of its errors"
            )
        low, high = exact_interval(sum(wrongs), len(wrongs))
        return Proportion(share=1 - sum(wrongs) / len(wrongs), low=1 - high, high=1 - low)

    @cached_property
    def valid(self) -> Proportion:
        """Share of the replies without a red flag, over steps, in the same way."""
        return proportion(sum(each.first_valid for each in self.steps) / FIRST, len(self.steps))

    @property
    def has_pairs(self) -> bool:
        """Whether the first two samples of a step are valid."""
        return any(each.first_valid == FIRST for each in self.steps)

    @cached_property
    def agreement(self) -> Proportion:
        """Share of the steps at which the first two samples give the same vote, among steps where both are valid.

        Raises:
            InvalidUsage: there are none.
        """
        pairs = [each.votes[0] == each.votes[1] for each in self.steps if each.first_valid == FIRST]
        if not pairs:
            raise InvalidUsage(f"{self.model} gave no two valid replies to any of {len(self.steps):,} steps")
        return proportion(sum(pairs), len(pairs))

    @property
    def p_high(self) -> float:
        """Upper bound of the share of right replies, whatever is right: of a right share p, two samples agree in at least its square.

        Its lower bound is that of the agreement, if each step's most frequent reply is right: two samples of a step agree with the chance
        of the sum of squares of the shares of its replies, which is at most the largest share.
        """
        return sqrt(self.agreement.high)

    @cached_property
    def as_decided(self) -> Proportion | None:
        """Share of the valid replies that an earlier run decided, over steps; None without such a run."""
        shares = [each.decided / each.valid for each in self.steps if each.decided is not None and each.valid]
        return proportion(sum(shares), len(shares)) if shares else None

    @property
    def differing(self) -> list[int]:
        """Numbers of the steps at which the first two samples differ."""
        return [each.number for each in self.steps if each.first_valid == FIRST and each.votes[0] != each.votes[1]]

    @cached_property
    def rates(self) -> ErrorRates:
        """Error rates as they differ from step to step."""
        return error_rates((each.wrong, each.valid) for each in self.steps if each.valid)

    @property
    def joint_rates(self) -> tuple[tuple[tuple[float, ...], float], ...]:
        """The error rate of each model of the pool, and the share of the steps that have them."""
        return tuple([((rate,), share) for rate, share in self.rates.shares])

    @cached_property
    def hard(self) -> list[int]:
        """Numbers of the steps that are called hard."""
        return self.rates.hard_among({each.number: (each.wrong, each.valid) for each in self.steps if each.valid})

    @property
    def p_ordinary(self) -> float:
        """Share of right replies at the steps that are not hard: the ``p`` of a ladder."""
        return 1 - self.rates.mean_at(hard=False)

    @cached_property
    def most_hard(self) -> float:
        """Bound the share of hard steps from above."""
        return upper_share(len(self.hard), len(self.steps), 0.95)

    @property
    def mistakes(self) -> dict[str, int]:
        """Number of wrong samples by the first field that is wrong."""
        counted: Counter[str] = Counter()
        for each in self.steps:
            counted.update(each.mistakes)
        return dict(counted.most_common())

    @property
    def alike(self) -> float:
        """Share of the right samples of a step that give the most frequent right reply."""
        counts = [
            Counter(vote for vote in each.votes if each.right is not None and each.right[vote]) for each in self.steps
        ]
        right = sum(map(Counter.total, counts))
        return sum(max(each.values(), default=0) for each in counts) / right if right else 1.0

    @cached_property
    def _resampled(self) -> list[ErrorRates]:
        return self.rates.resampled()

    @cached_property
    def _smooth(self) -> list[ErrorRates]:
        return smooth_rates((each.wrong, each.valid) for each in self.steps if each.valid)

    def lost(self, rate: Any, k: int) -> float:
        """Compute the chance that votes ahead by k do not decide a step right, at an error rate."""
        return race_won(rate, k)

    def votes(self, rate: Any, k: int) -> float:
        """Estimate the votes until then."""
        return expected_votes(rate, k)

    def chances(self, k: int, total: int | None = None) -> Chances:
        """Compute the chances at a k, over the steps of the task or another number of them."""
        steps = self.total if total is None else total

        def lost(rate: Any) -> float:
            return self.lost(rate, k)

        def votes(rates: ErrorRates, valid: float) -> float:
            held = rates.loss(lambda rate: min(self.votes(rate, k), float(MAX_DRAWS)))
            return steps * min(held / valid, float(MAX_DRAWS)) if valid else inf

        return Chances(
            k=k,
            independent=chance_of(self.lost(1 - self.p.share, k), steps),
            measured=self.chance(steps, lost),
            calls=votes(self.rates, self.valid.share),
            calls_high=_bounds([votes(each, self.valid.low) for each in self._resampled])[1],
        )

    def chance(self, steps: int, lost: Loss, least: Loss | None = None, most: Loss | None = None) -> Proportion:
        """Compute the chance that none of the steps is lost.

        Args:
            steps: number of steps.
            lost: chance that a step of an error rate is lost.
            least: its lower bound, if it is itself an estimate.
            most: its upper bound.
        """
        high, low = least or lost, most or lost
        greatest = _bounds([each.loss(low) for each in self._resampled])[1]
        tails = [each.loss(low) for each in self._smooth]
        return Proportion(
            share=chance_of(self.rates.loss(lost), steps),
            # A resampling of clean steps is clean, but their interval is not: what was not seen may yet happen at every step.
            low=chance_of(max(greatest, low(1 - self.p.low), *tails), steps),
            high=chance_of(_bounds([each.loss(high) for each in self._resampled])[0], steps),
        )

    def verdict(self) -> tuple[Verdict, str]:
        """Give the advice, and its sentence."""
        sampled, hard = len(self.steps), len(self.hard)
        needed = max(FIRST * (min(FEWEST, self.total) - sampled), FEWEST_DRAWS - self.draws)
        if self.p.high < MOSTLY or (self.p.share <= MOSTLY and needed <= 0):
            kind: Verdict = "voting-hurts"
        elif hard:
            kind = "hard-steps"
        elif self.alike < MOSTLY:
            kind = "too-many-answers"
        else:
            kind = "too-few" if needed > 0 else "votes-help"
        return kind, VERDICTS[kind].format(hard=hard, steps=sampled, needed=needed)

    def promise(self, k: int, steps: int) -> Promise:
        """Say what votes ahead by k promise for this number of steps."""
        chances = self.chances(k, steps)
        return Promise(
            measurement=self.run_id,
            model=self.model,
            k=k,
            calls=chances.calls,
            cost_usd=None if self.call_usd is None else self.call_usd * chances.calls,
            chance=chances.measured.share,
            low=chances.measured.low,
            high=chances.measured.high,
            condition=self.condition(steps),
        )

    def condition(self, total: int) -> str:
        """Say what the measured chances depend on."""
        if self.of_inputs:
            return f"of an input like the {self.total:,} that were given"
        if len(self.steps) == self.total == total:
            return "all steps of the task were sampled"
        left = self.most_hard * total
        found = f"{len(self.steps):,} steps with {len(self.hard):,} hard ones"
        return f"if no step is harder than those seen: {found} leave up to {left:,.0f} hard ones in {total:,} (95 %)"


class PooledMeasurement(ModelMeasurement, frozen=True, kw_only=True, dict=True):
    """What the measurements of two models say of a pool of both, from the steps that both were asked."""

    both: tuple[ModelMeasurement, ModelMeasurement]

    @cached_property
    def valid(self) -> Proportion:
        """Mean of both models."""
        return Proportion(
            **{name: fmean(getattr(each.valid, name) for each in self.both) for name in ("share", "low", "high")}
        )

    @cached_property
    def rates(self) -> PooledRates:
        """Error rates of the votes, as they differ from step to step and go together."""
        return pooled_rates(self._seen.values())

    @property
    def joint_rates(self) -> tuple[tuple[tuple[float, ...], float], ...]:
        """The error rates of both models, and the share of the steps that have them."""
        return self.rates.pairs

    @cached_property
    def hard(self) -> list[int]:
        """Numbers of the steps that are hard for the pool."""
        return self.rates.hard_among(self._seen)

    @cached_property
    def _seen(self) -> dict[int, tuple[Seen, Seen]]:
        one, other = [{each.number: (each.wrong, each.valid) for each in of.steps if each.valid} for of in self.both]
        return {number: (seen, other[number]) for number, seen in one.items() if number in other}

    def lost(self, rate: Any, k: int) -> float:
        """Compute the chance that votes by turns do not decide a step right, at the error rates of both, or at one that both have."""
        return race_by_turns(*_both_right(rate), k).lost

    def votes(self, rate: Any, k: int) -> float:
        """Estimate the votes until then."""
        return race_by_turns(*_both_right(rate), k).votes


def pooled(one: ModelMeasurement, other: ModelMeasurement) -> PooledMeasurement | None:
    """Join the measurements of two models by the numbers of their steps; None if no step was asked of both."""
    others = {each.number: each for each in other.steps if each.valid}
    steps = tuple([_joined(each, others[each.number]) for each in one.steps if each.valid and each.number in others])
    if not steps:
        return None
    costs = [each.cost_usd for each in (one, other)]
    return PooledMeasurement(
        model=f"{one.model} + {other.model}",
        run_id=f"{one.run_id} + {other.run_id}",
        total=one.total,
        of_inputs=one.of_inputs,
        steps=steps,
        calls=one.calls + other.calls,
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cost_usd=None if None in costs else sum(cost or 0 for cost in costs),
        both=(one, other),
    )


def _joined(one: MeasuredStep, other: MeasuredStep) -> MeasuredStep:
    """Join the samples of a step, the first ones in front. A vote of one model is another number than the same vote of the other."""
    sides = [(one, 0), (other, len(one.right or ()))]
    first = [vote + shift for each, shift in sides for vote in each.votes[: each.first_valid]]
    more = [vote + shift for each, shift in sides for vote in each.votes[each.first_valid :]]
    return MeasuredStep(
        number=one.number,
        drawn=one.drawn + other.drawn,
        first_valid=len(first),
        votes=(*first, *more),
        right=(*(one.right or ()), *(other.right or ())),
        mistakes=dict(Counter(one.mistakes) + Counter(other.mistakes)),
    )


def _both_right(rate: float | tuple[float, float]) -> tuple[float, float]:
    one, other = rate if isinstance(rate, tuple) else (rate, rate)
    return 1 - one, 1 - other


def _bounds(values: list[float]) -> tuple[float, float]:
    """Return the values between which all but the outermost `BOUNDS` at each side lie."""
    cut = int(BOUNDS * len(values))
    return sorted(values)[cut], sorted(values)[-1 - cut]
