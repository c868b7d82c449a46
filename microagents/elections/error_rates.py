"""Error rates that differ from step to step, estimated from few samples of many steps: what votes gain on steps as they are.

Most steps are easy and a few are hard, so the mean of all samples says little about votes: the law for equal steps promised .998 on
recorded questions, but votes were right in .942. Here the distribution of the rates is estimated (its maximum likelihood without a form of
its own, by the EM algorithm: Laird 1978, Lindsay 1983), and every figure follows from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import product
from math import ceil, exp, floor, inf, lgamma, log, log1p
from random import Random
from typing import Any, TypeVar

from msgspec import Struct

K = TypeVar("K", bound=tuple[Any, ...])
R = TypeVar("R", float, tuple[float, float])
Loss = Callable[[Any], float]
"""A loss at a step by its error rate; with a pool of two models, by the pair of their error rates."""
Seen = tuple[int, int]
"""Number of wrong samples of a step, and of its valid ones."""

HARD = 0.5
"""Error rate from which on votes decide a step wrong rather than right."""
MAX_FALSE = 0.05
"""Greatest expected share of ordinary steps among the steps called hard."""
POOLED_RATES = (0.0, 0.001, 0.003, 0.01, 0.02, 0.04, 0.07, *(tenth / 10 for tenth in range(1, 11)))
"""The error rates that a step may have by each of two models."""
RATES = (0.0, *(10 ** (step / 8 - 5) for step in range(33)), *(step / 40 for step in range(5, 40)), 1.0)
"""The error rates that a step may have."""
ROUNDS = 2_000
"""Rounds of the EM algorithm."""
POOLED_ROUNDS = 200
"""The same for two models."""
RESAMPLED_ROUNDS = 60
"""The same for a resampling, which begins at the estimate."""
RESAMPLINGS = 60
TAIL_DROP = 1.92
"""Log-likelihood below the greatest one at which a beta distribution is still not ruled out (half of the 95 % quantile of chi-square)."""
TAIL_MEANS = tuple(2 ** (step / 4) for step in range(-12, 5))
"""Means of these distributions, as multiples of the share of wrong samples."""
TAIL_WEIGHTS = tuple(2 ** (step / 2) for step in range(-2, 24))
"""Sums of their two parameters: from rates of almost 0 or 1 to rates that are alike."""
TAIL_NODES, TAIL_FROM = 150, 1e-8
"""Number of the rates at which they are evaluated, and the least of these."""
MIN_GAIN = 1e-10
"""Gain of the log-likelihood of a step below which the algorithm ends."""
LEAST = 1e-12
"""Share of steps below which a rate is left out."""


class ErrorRates(Struct, frozen=True, kw_only=True, dict=True):
    """A distribution of error rates over steps."""

    shares: tuple[tuple[float, float], ...]
    """Error rates, in rising order, and the share of the steps that have each."""
    seen: tuple[tuple[Seen, int], ...] = ()
    """What was seen of the sampled steps, each with the number of steps."""

    @cached_property
    def steps(self) -> int:
        """Number of sampled steps."""
        return sum(count for _, count in self.seen)

    @cached_property
    def mean(self) -> float:
        """Mean error rate: the share of all samples that are wrong."""
        return sum(share * rate for rate, share in self.shares)

    @cached_property
    def correlation(self) -> float:
        """Correlation of two samples of one step: 0 if all steps are alike, 1 if each is always right or always wrong."""
        second = sum(share * rate * rate for rate, share in self.shares)
        spread = self.mean * (1 - self.mean)
        return max(0.0, (second - self.mean**2) / spread) if spread else 0.0

    @cached_property
    def hard(self) -> float:
        """Share of the steps that are wrong in half of the samples or more."""
        return sum(share for rate, share in self.shares if rate >= HARD)

    def mean_at(self, *, hard: bool) -> float:
        """Compute the mean error rate of the hard steps, or of the others; 0 if there are none."""
        rates = [(rate, share) for rate, share in self.shares if (rate >= HARD) == hard]
        weight = sum(share for _, share in rates)
        return sum(rate * share for rate, share in rates) / weight if weight else 0.0

    def hard_given(self, seen: Seen) -> float:
        """Compute the chance that a step with these samples is hard."""
        return _hard_given((rate, share * _likelihood(rate, seen)) for rate, share in self.shares)

    def hard_among(self, steps: Mapping[int, Any]) -> list[int]:
        """Call steps hard, by their numbers: as many as keep the expected share of others among them at `MAX_FALSE`."""
        chances = {seen: self.hard_given(seen) for seen in set(steps.values())}
        ranked = sorted(steps, key=lambda number: (-chances[steps[number]], number))
        found: list[int] = []
        expected_false = 0.0
        for number in ranked:
            expected_false += 1 - chances[steps[number]]
            if chances[steps[number]] <= HARD or expected_false > MAX_FALSE * (len(found) + 1):
                break
            found.append(number)
        return sorted(found)

    def loss(self, loss_at: Loss) -> float:
        """Average over the steps a loss that depends on the error rate, such as the chance that a vote is not decided right."""
        return sum(share * loss_at(rate) for rate, share in self.shares)

    def resampled(self, seed: int = 0) -> list[ErrorRates]:
        """Repeat the estimate with steps drawn anew from the sampled ones (the bootstrap over steps)."""
        kinds, counts = [kind for kind, _ in self.seen], [count for _, count in self.seen]
        rng, start = Random(seed), dict(self.shares)  # noqa: S311 - seeded on purpose
        return [
            _error_rates(
                Counter(rng.choices(kinds, counts, k=self.steps)),
                {rate: start.get(rate, 0.0) or LEAST for rate in RATES},
                RESAMPLED_ROUNDS,
            )
            for _ in range(RESAMPLINGS)
        ]


class PooledRates(ErrorRates, frozen=True, kw_only=True, dict=True):
    """A distribution of the error rates of votes that come from two models by turns."""

    pairs: tuple[tuple[tuple[float, float], float], ...]
    """Error rates of both models, and the share of the steps that have each pair."""
    both_seen: tuple[tuple[tuple[Seen, Seen], int], ...]
    """What was seen of the steps that both were asked, each with the number of steps."""

    def loss(self, loss_at: Loss) -> float:
        """Average over the steps a loss that depends on the error rates of both."""
        return sum(share * loss_at(pair) for pair, share in self.pairs)

    def hard_given(self, seen: Any) -> float:
        """Compute the chance that a step with these samples of both models is hard for their pool."""
        return _hard_given((sum(pair) / 2, share * _pair_likelihood(pair, seen)) for pair, share in self.pairs)

    def resampled(self, seed: int = 0) -> list[ErrorRates]:
        """Repeat the estimate with samples of steps drawn anew, of the pairs of rates that it has found."""
        kinds, counts = [kind for kind, _ in self.both_seen], [count for _, count in self.both_seen]
        rng = Random(seed)  # noqa: S311 - seeded on purpose
        return [
            _pooled(Counter(rng.choices(kinds, counts, k=sum(counts))), dict(self.pairs), RESAMPLED_ROUNDS)
            for _ in range(RESAMPLINGS)
        ]


def error_rates(steps: Iterable[Seen]) -> ErrorRates:
    """Estimate the distribution of error rates. Steps may have different numbers of samples, also by what their first ones were."""
    return _error_rates(Counter(steps), dict.fromkeys(RATES, 1 / len(RATES)), ROUNDS)


def smooth_rates(steps: Iterable[Seen]) -> list[ErrorRates]:
    """List the beta distributions that the samples do not rule out at 95 %; none if no sample is wrong, or every one.

    The samples end at the hardest sampled step; a beta distribution reaches harder ones.
    """
    seen = sorted(Counter(steps).items())
    wrong, valid = [sum(count * each[index] for each, count in seen) for index in (0, 1)]
    if not 0 < wrong < valid:
        return []
    parameters = [
        (mean * weight, (1 - mean) * weight)
        for mean in (wrong / valid * times for times in TAIL_MEANS)
        for weight in TAIL_WEIGHTS
        if mean < 1
    ]
    reached = {
        (a, b): sum(count * (_ln_beta(a + wrong, b + valid - wrong) - _ln_beta(a, b)) for (wrong, valid), count in seen)
        for a, b in parameters
    }
    least = max(reached.values()) - TAIL_DROP
    return [_beta_rates(a, b) for (a, b), likelihood in reached.items() if likelihood >= least]


def _beta_rates(a: float, b: float) -> ErrorRates:
    """Return a beta distribution at some rates; the rest of the steps, with lower rates, have none."""
    width = -log(TAIL_FROM) / TAIL_NODES
    rates = [TAIL_FROM ** ((node + 0.5) / TAIL_NODES) for node in range(TAIL_NODES)]
    weights = [width * exp(a * log(rate) + (b - 1) * log1p(-rate) - _ln_beta(a, b)) for rate in rates]
    whole = max(1.0, sum(weights))
    return ErrorRates(shares=tuple((rate, weight / whole) for rate, weight in zip(rates, weights, strict=True)))


def _ln_beta(a: float, b: float) -> float:
    return lgamma(a) + lgamma(b) - lgamma(a + b)


def pooled_rates(steps: Iterable[tuple[Seen, Seen]]) -> PooledRates:
    """Estimate the same for a pool of two models, from what was seen of steps that both were asked: hard steps may be hard for both."""
    pairs = list(product(POOLED_RATES, POOLED_RATES))
    return _pooled(Counter(steps), dict.fromkeys(pairs, 1 / len(pairs)), POOLED_ROUNDS)


def chance_of(loss: float, steps: float) -> float:
    """Compute the chance that none of the steps is lost, each with this chance."""
    return exp(steps * log1p(-loss)) if loss < 1 else 0.0


def steps_for(loss: float, target: float) -> float:
    """Compute the number of steps up to which the chance of no loss is at least the target."""
    return inf if loss <= 0 else log(target) / log1p(-loss) if loss < 1 else 0.0


def upper_share(found: int, steps: int, confidence: float = 0.95) -> float:
    """Bound a share of steps from above by the number found (one-sided, exact): 3.0 / steps for none, 4.74 for one, 6.3 for two."""
    if found >= steps:
        return 1.0
    low, high = 0.0, 1.0
    while high - low > LEAST * high and high > LEAST:
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(found, steps, middle) > 1 - confidence else (low, middle)
    return high


def exact_interval(found: float, steps: int, confidence: float = 0.95) -> tuple[float, float]:
    """Compute the confidence interval of a share over steps (Clopper and Pearson 1934).

    A step may be found in part: the interval is then wider.
    """
    side = (1 + confidence) / 2
    return 1 - upper_share(steps - floor(found), steps, side), upper_share(ceil(found), steps, side)


def _at_most(found: int, steps: int, share: float) -> float:
    """Compute the chance of at most this number of successes, summed from the likeliest number on, so that nothing underflows."""
    first = min(found, int((steps + 1) * share))
    odds = share / (1 - share)
    ln_ways = lgamma(steps + 1) - lgamma(first + 1) - lgamma(steps - first + 1)
    most = exp(ln_ways + first * log(share) + (steps - first) * log1p(-share))
    total, term, number = most, most, first
    while number > 0 and term > total * LEAST:
        term *= number / (steps - number + 1) / odds
        total, number = total + term, number - 1
    term = most
    for number in range(first, found):
        term *= (steps - number) / (number + 1) * odds
        total += term
        if term < total * LEAST:
            break
    return total


def _error_rates(seen: Counter[Seen], start: Mapping[float, float], rounds: int) -> ErrorRates:
    return ErrorRates(shares=_fitted(seen, start, rounds, _likelihood), seen=tuple(sorted(seen.items())))


def _pooled(seen: Counter[tuple[Seen, Seen]], start: Mapping[tuple[float, float], float], rounds: int) -> PooledRates:
    pairs = _fitted(seen, start, rounds, _pair_likelihood)
    shares: dict[float, float] = {}
    for pair, share in pairs:
        shares[sum(pair) / 2] = shares.get(sum(pair) / 2, 0.0) + share
    return PooledRates(shares=tuple(sorted(shares.items())), pairs=pairs, both_seen=tuple(sorted(seen.items())))


def _fitted(
    seen: Mapping[K, int], start: Mapping[R, float], rounds: int, likelihood: Callable[[R, K], float]
) -> tuple[tuple[R, float], ...]:
    """Estimate the shares of rates by the EM algorithm, from the number of steps of each kind that was seen."""
    kinds = sorted(seen.items())
    total = sum(seen.values())
    likely = {kind: [likelihood(rate, kind) for rate in start] for kind, _ in kinds}
    shares = list(start.values())
    before = -inf
    for _ in range(rounds):
        taken, reached = [0.0] * len(shares), 0.0
        for kind, count in kinds:
            weights = [share * each for share, each in zip(shares, likely[kind], strict=True)]
            whole = sum(weights)
            reached += count * log(whole)
            part = count / whole
            taken = [so_far + part * weight for so_far, weight in zip(taken, weights, strict=True)]
        shares = [each / total for each in taken]
        if reached - before < MIN_GAIN * total:
            break
        before = reached
    return tuple([(rate, share) for rate, share in zip(start, shares, strict=True) if share > LEAST])


def _hard_given(weights: Iterable[tuple[float, float]]) -> float:
    """Compute the share of the weight that hard rates have."""
    listed = list(weights)
    total = sum(weight for _, weight in listed)
    return sum(weight for rate, weight in listed if rate >= HARD) / total if total else 0.0


def _likelihood(rate: float, seen: Seen) -> float:
    wrong, valid = seen
    return rate**wrong * (1 - rate) ** (valid - wrong)


def _pair_likelihood(pair: tuple[float, float], seen: tuple[Seen, Seen]) -> float:
    return _likelihood(pair[0], seen[0]) * _likelihood(pair[1], seen[1])
