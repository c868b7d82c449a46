"""What a calibration measured of one model: error rates of its votes, the chances they give, and the advice that follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from math import inf, log
from statistics import NormalDist, fmean
from typing import Any, Literal

from msgspec import Struct

from microagents.base.errors import InvalidUsage
from microagents.elections.error_rates import (
    ErrorRates,
    Loss,
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
from microagents.studies.analysis import Proportion
from microagents.studies.sampling.calibration import CalibratedStep

MAX_DRAWS = 100
"""The cap of an election by default."""
SHOWN_KS = (1, 2, 3, 4, 5)
MOSTLY = 0.5
FEWEST = 59
"""Number of ordinary steps, none hard, that excludes at 95 % that more than 5 % of all are hard."""
BOUNDS = 0.025
"""Share of the resamplings below the lower bound of a chance, and above the upper one."""
UNSEEN = 0.05
"""Chance at most that a sample shows none of what is more frequent than its bound."""

Verdict = Literal["votes-help", "hard-steps", "voting-hurts", "too-few", "small-task", "too-many-answers"]
"""What a calibration advises. docs/planning.md explains each."""
VERDICTS: dict[Verdict, str] = {
    "votes-help": "votes help: k = {k} is enough for a chance of {target:g} over {total:,} steps, if no step is harder than those seen",
    "hard-steps": "hard steps: {hard} of {steps:,} are wrong in most samples, and votes decide such a step wrong; take a ladder",
    "voting-hurts": "wrong more often than right: voting hurts; take a stronger model or smaller steps",
    "too-few": "too few steps for this promise: {needed:,} more are needed",
    "small-task": (
        "all {total:,} steps of the task are too few for this promise: calibrate a larger task, since a plan may be for another size, or "
        "more states (--states)"
    ),
    "too-many-answers": "answers too many for exact votes: right replies differ from each other; use votes by meaning",
}
MAX_K = 30
"""The largest k that is tried."""
_NORMAL_P95 = NormalDist().inv_cdf(0.95)


class Chances(Struct, frozen=True, kw_only=True):
    """Chances that all steps of a task are decided right at one k, estimated in three ways."""

    k: int
    independent: float
    """If all steps had the mean error rate."""
    measured: Proportion
    """By the error rates as they differ from step to step, if no step is harder than those seen."""
    held_out: Proportion
    """By the votes of one half of the steps, which no estimate has seen."""
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


class ModelCalibration(Struct, frozen=True, kw_only=True, dict=True):
    """What a calibration found about one model."""

    model: str
    run_id: str
    total: int
    """Number of steps of the task."""
    steps: tuple[CalibratedStep, ...]
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
    def draws(self) -> int:
        """Number of samples."""
        return sum(each.drawn for each in self.steps)

    @property
    def call_usd(self) -> float | None:
        """Mean cost of a call."""
        return None if self.cost_usd is None or not self.calls else self.cost_usd / self.calls

    @cached_property
    def p(self) -> Proportion:
        """Share of the valid replies that are right, over steps: only by the first samples, as many for every step."""
        wrongs = [each.first_wrong / each.first_valid for each in self.steps if each.first_valid]
        if not wrongs:
            raise InvalidUsage(
                f"{self.model} gave no valid reply to {len(self.steps):,} steps, so nothing is known of its errors"
            )
        low, high = exact_interval(sum(wrongs), len(wrongs))
        return Proportion(share=1 - sum(wrongs) / len(wrongs), low=1 - high, high=1 - low)

    @cached_property
    def valid(self) -> Proportion:
        """Share of the replies without a red flag, over steps, in the same way."""
        shares = sum(each.first_valid for each in self.steps) / 2
        low, high = exact_interval(shares, len(self.steps))
        return Proportion(share=shares / len(self.steps), low=low, high=high)

    @cached_property
    def rates(self) -> ErrorRates:
        """Error rates as they differ from step to step."""
        return error_rates((each.wrong, each.valid) for each in self.steps if each.valid)

    @cached_property
    def hard(self) -> list[int]:
        """Numbers of the steps that are called hard."""
        return self.rates.hard_among({each.number: (each.wrong, each.valid) for each in self.steps if each.valid})

    def most_hard(self, total: int) -> float:
        """Bound from above the share of hard steps in a task of ``total`` steps; exact if all of them were sampled."""
        if len(self.steps) == self.total == total:
            return len(self.hard) / total
        return upper_share(len(self.hard), len(self.steps), 1 - UNSEEN)

    @property
    def mistakes(self) -> dict[str, int]:
        """Number of wrong samples by the first field that is wrong."""
        counted: Counter[str] = Counter()
        for each in self.steps:
            counted.update(each.mistakes)
        return dict(counted.most_common())

    @property
    def agreement(self) -> float:
        """Share of the right samples of a step that give the most frequent right reply."""
        right = sum(each.valid - each.wrong for each in self.steps)
        return sum(each.same_right for each in self.steps) / right if right else 1.0

    @cached_property
    def _resampled(self) -> list[ErrorRates]:
        return self.rates.resampled()

    @cached_property
    def _smooth(self) -> list[ErrorRates]:
        return smooth_rates((each.wrong, each.valid) for each in self.steps if each.valid)

    @cached_property
    def _held_out(self) -> list[Any]:
        """The share of wrong samples of every other step."""
        return [each.wrong / each.valid for each in self.steps[1::2] if each.valid]

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

        longest = _bounds([votes(each, self.valid.low) for each in self._resampled])[1]
        out = sum(map(lost, self._held_out))
        seen = max(1, len(self._held_out))
        low, high = exact_interval(out, seen)
        return Chances(
            k=k,
            independent=chance_of(lost(1 - self.p.share), steps),
            measured=self.chance(steps, lost),
            held_out=Proportion(
                share=chance_of(out / seen, steps), low=chance_of(high, steps), high=chance_of(low, steps)
            ),
            calls=votes(self.rates, self.valid.share),
            calls_high=longest,
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

    def smallest_k(self, target: float, total: int | None = None) -> int | None:
        """Find the smallest k whose lower bound reaches the target; None if none does."""
        return next((k for k in range(1, MAX_K + 1) if self.chances(k, total).measured.low >= target), None)

    def verdict(self, target: float) -> tuple[Verdict, str]:
        """Give the advice, and its sentence."""
        sampled, k = len(self.steps), None
        hard, needed = len(self.hard), min(FEWEST, self.total) - sampled
        if self.p.high < MOSTLY or (self.p.share <= MOSTLY and needed <= 0):
            kind: Verdict = "voting-hurts"
        elif hard:
            kind = "hard-steps"
        elif self.agreement < MOSTLY:
            kind = "too-many-answers"
        elif needed > 0:
            kind = "too-few"
        elif (k := self.smallest_k(target)) is not None:
            kind = "votes-help"
        elif self.chances(MAX_K).measured.share >= target:
            # The width of an interval halves with four times as many steps.
            needed = min(3 * sampled, self.total - sampled)
            kind = "too-few" if needed else "small-task"
        else:
            kind, hard = "hard-steps", max(1, round(self.rates.hard * sampled))
        return kind, VERDICTS[kind].format(
            k=k, target=target, total=self.total, hard=hard, steps=sampled, needed=needed
        )

    @property
    def simulated(self) -> str:
        """The spec of a simulated model with these error rates and this latency, against one rival."""
        return self.spec_with(self.rates.hard)

    def spec_with(self, hard: float, *, timed: bool = True) -> str:
        """Return the same with another share of hard steps; with ``timed`` false it answers at once."""
        rates = self.rates
        profile = {
            "error": rates.mean_at(hard=False),
            "hard": hard,
            "hard_error": rates.mean_at(hard=True),
            "flag": 1 - self.valid.share,
        }
        if timed and self.latency is not None:
            profile |= {"latency": self.latency.p50, "sigma": self.latency.sigma}
        options = ",".join(
            f"{name}={value:.6g}" for name, value in profile.items() if value or name in ("error", "sigma")
        )
        return f"sim:perfect@{options},alternatives=1"

    def promise(self, k: int, steps: int) -> Promise:
        """Say what votes ahead by k promise for this number of steps."""
        chances = self.chances(k, steps)
        return Promise(
            calibration=self.run_id,
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
        if len(self.steps) == self.total == total:
            return "all steps of the task were sampled"
        left = self.most_hard(total) * total
        found = f"{len(self.steps):,} steps with {len(self.hard):,} hard ones"
        return f"if no step is harder than those seen: {found} leave up to {left:,.0f} hard ones in {total:,} (95 %)"


class PooledCalibration(ModelCalibration, frozen=True, kw_only=True, dict=True):
    """What the calibrations of two models say of a pool of both, from the steps that both were asked."""

    both: tuple[ModelCalibration, ModelCalibration]

    @cached_property
    def valid(self) -> Proportion:
        """Mean of both models."""
        return Proportion(
            **{name: fmean(getattr(each.valid, name) for each in self.both) for name in ("share", "low", "high")}
        )

    @cached_property
    def rates(self) -> ErrorRates:
        """Error rates of the votes, as they differ from step to step and go together."""
        return pooled_rates(self._seen.values())

    @cached_property
    def hard(self) -> list[int]:
        """Numbers of the steps that are hard for the pool."""
        return self.rates.hard_among(self._seen)

    @cached_property
    def _seen(self) -> dict[int, tuple[Seen, Seen]]:
        one, other = [{each.number: (each.wrong, each.valid) for each in of.steps if each.valid} for of in self.both]
        return {number: (seen, other[number]) for number, seen in one.items() if number in other}

    @cached_property
    def _held_out(self) -> list[Any]:
        return [tuple(wrong / valid for wrong, valid in seen) for seen in list(self._seen.values())[1::2]]

    def lost(self, rate: Any, k: int) -> float:
        """Compute the chance that votes by turns do not decide a step right, at the error rates of both, or at one that both have."""
        return race_by_turns(*_both_right(rate), k).lost

    def votes(self, rate: Any, k: int) -> float:
        """Estimate the votes until then."""
        return race_by_turns(*_both_right(rate), k).votes


def pooled(one: ModelCalibration, other: ModelCalibration) -> PooledCalibration | None:
    """Join the calibrations of two models by the numbers of their steps; None if no step was asked of both."""
    others = {each.number: each for each in other.steps if each.valid}
    steps = tuple([_joined(each, others[each.number]) for each in one.steps if each.valid and each.number in others])
    if not steps:
        return None
    costs = [each.cost_usd for each in (one, other)]
    return PooledCalibration(
        model=f"{one.model} + {other.model}",
        run_id=f"{one.run_id} + {other.run_id}",
        total=one.total,
        steps=steps,
        calls=one.calls + other.calls,
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cost_usd=None if None in costs else sum(cost or 0 for cost in costs),
        both=(one, other),
    )


def _joined(one: CalibratedStep, other: CalibratedStep) -> CalibratedStep:
    counts = {
        name: getattr(one, name) + getattr(other, name)
        for name in ("first_wrong", "first_valid", "wrong", "valid", "drawn", "same_wrong", "same_right")
    }
    return CalibratedStep(number=one.number, mistakes=dict(Counter(one.mistakes) + Counter(other.mistakes)), **counts)


def _both_right(rate: float | tuple[float, float]) -> tuple[float, float]:
    one, other = rate if isinstance(rate, tuple) else (rate, rate)
    return 1 - one, 1 - other


def _bounds(values: list[float]) -> tuple[float, float]:
    """Return the values between which all but the outermost `BOUNDS` at each side lie."""
    cut = int(BOUNDS * len(values))
    return sorted(values)[cut], sorted(values)[-1 - cut]
