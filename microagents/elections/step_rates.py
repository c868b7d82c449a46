"""Error rates that differ from step to step, from few samples of many steps: the prospects of a run of these steps.

Most steps are easy and a few are hard, so the mean of all samples says little about votes. Every figure comes from joint draws of the
posterior: the population, the rate of each sampled step given its own samples, and the rates of the others. A draw holds all steps of
the run, so that a chance is a product over its steps before any quantile is taken.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from microagents.base.errors import InvalidUsage
from microagents.elections.laws import check_whole
from microagents.elections.race_tables import (
    ERRORS,
    MAX_DRAWS,
    OTHERS,
    RIVALS,
    Array,
    RaceTable,
    certified_table,
    least_loss,
    race_table,
)
from microagents.elections.rules import Certify
from microagents.elections.step_populations import DRAWS, LEAST, Counts, likelihood, normal, populations

HARD = 0.5
"""Error rate from which on a step is wrong in most samples."""
MAX_FALSE = 0.05
"""Greatest expected share of ordinary steps among the steps called hard."""
MAX_K = 30
"""The largest k that is tried."""
MAX_STEPS = 10**15
"""The longest run."""
FEW = 8
"""Number of equal steps up to which each is drawn by itself."""
_BEYOND, _LEAST_DRAWS = 0.01, 30
"""Share of a form's draws beyond either end of an interval, fewer than 2.5 % since no form fits the steps quite; and the least
number of draws by which a form counts as not refuted."""
UNNOTICED = 0.05
"""Share of measurements in which the draws of a step may leave its error rate open."""
_TOLD = 2.0
"""Gain of log-likelihood from which on the wrong replies are taken to differ otherwise than usual."""
_RIVAL_PRIOR = np.array([1.0, 0.2, 0.2, 0.2, 0.2, 0.2])
_IS_HARD = ERRORS >= HARD
_IS_BEATEN = ERRORS[:, None] * np.array(RIVALS) >= 1 - ERRORS[:, None]
"""By error rate and share of the first rival, whether this is as likely as the right reply or more: votes then decide wrong."""
ROWS = np.arange(DRAWS)


class SeenStep(Struct, frozen=True, kw_only=True):
    """The samples of a step."""

    right: int
    """Number of right samples."""
    wrong: tuple[int, ...] = ()
    """Numbers of samples with each distinct wrong reply."""
    flagged: int = 0
    """Number of samples with a red flag."""
    number: int = 0
    """Position of the step in its task."""
    is_own: bool = True
    """Whether it is a step of the planned run, and not only of a task like it."""

    @property
    def valid(self) -> int:
        """Number of samples without a red flag."""
        return self.right + sum(self.wrong)

    @property
    def kind(self) -> SeenStep:
        """Stands for all steps whose samples are alike."""
        return SeenStep(right=self.right, wrong=tuple(sorted(self.wrong, reverse=True)), is_own=self.is_own)


class Interval(NamedTuple):
    """A figure with its 95 % interval."""

    mid: float
    low: float
    high: float


@lru_cache(maxsize=16_384)
def _rival_likelihood(wrong: tuple[int, ...], others: float) -> Array:
    """Compute the chance of the numbers of equal wrong replies at each share of the first rival, up to a factor of the numbers alone."""
    count, shares = sum(wrong), np.array(RIVALS)

    def ways(numbers: Sequence[int]) -> float:
        of_each = sum(math.log(others) + math.lgamma(each) for each in numbers)
        return math.exp(of_each + math.lgamma(others) - math.lgamma(others + sum(numbers)))

    at = (1 - shares) ** count * ways(wrong)  # the first rival is none of them
    for index, number in enumerate(wrong):
        at += shares**number * (1 - shares) ** (count - number) * ways([*wrong[:index], *wrong[index + 1 :]])
    return np.asarray(at)


def _rival_weights(kinds: Mapping[SeenStep, float], others: float) -> tuple[Array, float]:
    """Fit the population of the first rivals' shares to kinds of steps by their number; return it with its log-likelihood."""
    several = [(_rival_likelihood(kind.wrong, others), count) for kind, count in kinds.items() if sum(kind.wrong) > 1]
    if not several:
        return _RIVAL_PRIOR, 0.0
    likely, number = np.array([each for each, _ in several]), np.array([count for _, count in several])
    taken = _RIVAL_PRIOR
    for _ in range(50):
        parts = likely * taken
        taken = _RIVAL_PRIOR + (number[:, None] * parts / parts.sum(1, keepdims=True)).sum(0)
    return taken, float(number @ np.log(np.maximum(likely @ normal(taken), LEAST)))


def _with_rivals(steps: Counts, shares: Array, rng: np.random.Generator) -> Counts:
    """Draw the first rivals' shares of steps, given their number by error rate."""
    found = np.zeros((*steps.shape, len(RIVALS)), np.int64)
    row, rate = steps.nonzero()
    found[row, rate] = rng.multinomial(steps[row, rate], shares[_IS_HARD[rate].astype(int), row])
    return found


def _valid_draws(seen: Sequence[SeenStep], seed: int) -> tuple[Array, Array]:
    """Draw the share of samples without a flag, and the mean number of samples for a valid one."""
    rng = np.random.default_rng((seed, 1))
    drawn = sum(each.flagged + each.valid for each in seen)
    if not any(each.flagged for each in seen):
        flags = rng.beta(0.5, 0.5 + drawn, size=DRAWS)
        flags *= rng.random(DRAWS) < HARD  # as likely as not, no sample is ever flagged
        return 1 - flags, 1 / (1 - flags)
    found, _ = populations([(each.flagged, each.flagged + each.valid) for each in seen], (seed, 1))
    return 1 - found @ ERRORS, found @ np.minimum(1 / (1 - ERRORS), MAX_DRAWS)


def picked(weights: Array, rng: np.random.Generator) -> Counts:
    """Pick an index of each row by its weights."""
    bounds = np.cumsum(weights, axis=1)
    return np.asarray((rng.random((len(weights), 1)) * bounds[:, -1:] > bounds).sum(1))


class StepRates:
    """Prospects of a planned run with one model: joint draws of the error rates of all its steps, as its samples leave them open.

    No measure of how much rare wrong replies differ fits a few steps with several equally frequent ones, so high ends of chances are the
    highest of all measures: with three equal rivals at 3 % of 300 steps too low in .10 to .18 at k = 5, in place of .20 to .45. Low ends
    hold there; a weaker prior for one rival would lower all of them.

    Args:
        seen: sampled steps; their number may depend on the samples, as when only steps with an error are sampled again. Steps without
            a valid sample say only how often samples are flagged.
        total: number of steps of the planned run; those of its own that were sampled are among them.
        seed: of the joint draws: the same arguments give the same figures.

    Raises:
        InvalidUsage: no sample is valid, or the run has fewer steps than were sampled of it.
    """

    total: int
    """Number of steps of the run."""
    sampled: int
    """Number of sampled steps."""
    others: float
    """How much the rare wrong replies to a step differ from each other; see `race_tables.OTHERS`."""
    unseen: int
    """Number of steps of the run that were not sampled."""
    counts: Array
    """Number of steps of each kind, by draw."""
    _counts_seen: Array
    """The same of its sampled steps alone."""
    _worst: Counts
    """Index of the error rate of the worst sampled step, by draw."""
    _errors: Array
    """Error rate of each kind."""
    _is_hard: NDArray[np.bool_]
    """Whether the right reply to a step of this kind is not the likeliest one."""
    none_hard: float
    """Probability that none of the sampled steps is hard."""
    mostly_hard: float
    """Probability that more than half of the sampled steps are."""
    replies: tuple[Array, Array]
    """Share of the samples without a flag, and mean number of samples for a valid one, by draw."""
    form: Counts
    """Index of the form of each draw's population; 0 if all steps have one rate."""
    unseen_hard: int
    """Number of hard steps that may be among those not sampled: a one-sided bound of 95 %, whatever kinds of steps these are."""
    _hard_chances: list[float]
    _hard_own: Array

    def __init__(self, seen: Sequence[SeenStep], total: int, *, seed: int = 0) -> None:
        check_whole("steps", total)
        self.seen, self._seed = tuple(each for each in seen if each.valid), seed
        own = sum(each.is_own for each in self.seen)
        if not self.seen:
            raise InvalidUsage("no sample is valid, so nothing is known of the errors; sample more steps")
        if total > MAX_STEPS:
            raise InvalidUsage(f"a plan by measured rates has at most {MAX_STEPS:,} steps, not {total:,}")
        if own > total:
            raise InvalidUsage(
                f"{own:,} steps were sampled of a run of {total:,} steps; give the number of all its steps"
            )
        self.total, self.sampled, self.unseen = total, len(self.seen), total - own
        self._errors = np.broadcast_to(ERRORS[:, None], (len(ERRORS), len(RIVALS)))
        self._is_hard = _IS_BEATEN
        rng = np.random.default_rng((seed, 2))
        self.populations, self.form = populations([(sum(each.wrong), each.valid) for each in self.seen], (seed, 0))
        self._kinds = Counter(each.kind for each in self.seen)
        hard = {kind: float(self._given(kind)[:, _IS_HARD].sum(1).mean()) for kind in self._kinds}
        by_hardness = [
            {kind: count * abs(is_ordinary - hard[kind]) for kind, count in self._kinds.items()}
            for is_ordinary in (1, 0)
        ]
        # A step that is wrong in most samples is wrong in its own way, so the rivals of hard steps are a population of their own.
        usual, *rest = [(others, sum(_rival_weights(each, others)[1] for each in by_hardness)) for others in OTHERS]
        better = [(others, fit) for others, fit in rest if fit > usual[1] + _TOLD]
        self.others, _ = max(better, key=lambda each: each[1], default=usual)
        weights = [_rival_weights(each, self.others)[0] for each in by_hardness]
        self._shares = np.stack([rng.dirichlet(each, size=DRAWS) for each in weights])
        self.replies = _valid_draws(seen, seed)
        self._draw(rng)

    @cached_property
    def p(self) -> Interval:
        """Mean chance over the steps of the run that a valid sample is right."""
        return self._estimate(1 - self._sum(self._errors) / self.total)

    @cached_property
    def valid(self) -> Interval:
        """Share of the samples without a red flag."""
        return ends_of(self.replies[0])

    def chance(self, k: int | Certify, *, max_draws: int = MAX_DRAWS) -> Interval:
        """Compute the chance that every step of the run is decided right by a lead of k votes, or by the rule certify."""
        return self._estimated(self._chances, k, max_draws)

    def decided(self, k: int | Certify, *, max_draws: int = MAX_DRAWS) -> Interval:
        """Compute the share of the steps that are decided right."""
        return self._estimated(self._decided, k, max_draws)

    def calls(self, k: int | Certify, *, max_draws: int = MAX_DRAWS) -> Interval:
        """Compute the expected number of samples of the run, flagged ones included."""
        votes = self._sum(self._table(k, max_draws).votes)
        return self._estimate(np.minimum(votes * self.replies[1], self.total * float(max_draws)))

    def chance_by(self, loss: Array | Sequence[Sequence[float]], *, failed: int, of_hard: int) -> Interval:
        """Compute the chance that no step is lost by a strategy of its own losses.

        Args:
            loss: chance that a step is lost, at each error rate.
            failed: number of hard steps that trials lost.
            of_hard: number of hard steps in the trials; 0 if `loss` holds for hard steps, too.
        """
        is_hard = self._is_hard & (of_hard > 0)
        kept = self._sum(np.where(is_hard, 0.0, np.log1p(-np.minimum(loss, 1 - 1e-15))))
        at_hard = np.random.default_rng(0).beta(failed + 0.5, of_hard - failed + 0.5, size=DRAWS)
        return self._estimate(
            np.exp(kept + self._sum(is_hard.astype(float)) * np.log1p(-np.minimum(at_hard, 1 - 1e-15)))
        )

    def if_none_is_worse(self) -> StepRates:
        """Return the rates under a condition: no step that was not sampled errs more often than the worst sampled one."""
        bounded = normal(self.populations * (np.arange(len(ERRORS)) <= self._worst[:, None]))
        rng = np.random.default_rng((self._seed, 3))
        unseen = _with_rivals(rng.multinomial(self.unseen, bounded), self._shares, rng)
        rates = copy(self)
        rates.counts = self._counts_seen + unseen
        return rates

    @cached_property
    def hidden(self) -> float:
        """Error rate from which on a sampled step is right in all its samples in at most 5 % of measurements; 0 if no step was."""
        right = np.array([each.valid for each in self.seen if not each.wrong])
        if not len(right):
            return 0.0
        shares = ((1 - ERRORS[:, None]) ** right).mean(1)
        return float(ERRORS[(shares <= UNNOTICED).argmax()])

    @cached_property
    def correlation(self) -> float:
        """Correlation of two samples of one step: 0 if all steps are alike, 1 if each is always right or always wrong."""
        weights = self.counts.sum(0) / self.counts.sum()
        mean, square = (float((weights * self._errors**power).sum()) for power in (1, 2))
        return (square - mean**2) / (mean * (1 - mean))

    @cached_property
    def p_ordinary(self) -> float:
        """Mean chance that a valid sample is right at the steps that are not hard; 0 if all are hard."""
        weights = self.counts.sum(0) * ~self._is_hard
        return float((weights * (1 - self._errors)).sum() / max(1, weights.sum()))

    @cached_property
    def hard_found(self) -> tuple[int, ...]:
        """Indices of the sampled steps called hard: as many as keep the expected share of others at `MAX_FALSE`."""
        found: list[int] = []
        false = 0.0
        for index in sorted(range(self.sampled), key=lambda at: -self._hard_chances[at]):
            false += 1 - self._hard_chances[index]
            if self._hard_chances[index] <= HARD or false > MAX_FALSE * (len(found) + 1):
                break
            found.append(index)
        return tuple(sorted(found))

    @cached_property
    def hard(self) -> Interval:
        """Number of hard steps of the run; ``high`` is a one-sided bound of 95 %, whatever kinds of steps were not sampled."""
        low, mid, high = np.quantile(self._hard_own, [0.05, 0.5, 0.95])
        return Interval(float(mid), float(low), float(high))

    @property
    def condition(self) -> str:
        """Conditions of the figures, in words."""
        if not self.unseen:
            return f"all {self.total:,} steps of the run were sampled"
        return (
            f"if the other {self.unseen:,} steps are of the kinds of the {self.sampled:,} that were sampled: {len(self.hard_found):,} of "
            f"these are hard, and up to {self.hard.high:,.0f} of all {self.total:,} may be (95 %)"
        )

    def _bound_hard(self, hard: Array, own: Array, rng: np.random.Generator) -> Array:
        """Draw the number of hard steps, without a condition: hidden ones are as frequent as the samples leave open."""
        share = rng.beta(hard + 1, np.maximum(self.sampled - hard, LEAST))
        among, unseen = self._sum((self._errors >= HARD).astype(float)), rng.binomial(self.unseen, share)
        self.unseen_hard = int(np.quantile(unseen, 0.95))
        return np.maximum(among, own + unseen)

    def _chances(self, loss: Array) -> Array:
        return np.exp(self._sum(np.log1p(-np.minimum(loss, 1 - 1e-15))))

    def _decided(self, loss: Array) -> Array:
        return 1 - self._sum(loss) / self.total

    def _estimated(self, right: Callable[[Array], Array], k: int | Certify, max_draws: int) -> Interval:
        """Estimate a chance if rare wrong replies differ as the samples say; its high end is the highest for any difference."""
        found = self._estimate(right(self._table(k, max_draws).loss))
        if isinstance(k, Certify):
            return found
        best = self._estimate(right(least_loss(k, self._most(k, max_draws))))
        return found._replace(high=max(found.high, best.high))

    def _table(self, k: int | Certify, max_draws: int) -> RaceTable:
        most = self._most(k, max_draws)
        if isinstance(k, Certify):
            return certified_table(k.level, most)
        return race_table(k, most, self.others)

    def _most(self, k: int | Certify, max_draws: int) -> int:
        """Return the number of valid votes that an election has at most."""
        least = 0 if isinstance(k, Certify) else min(k, max_draws)
        return max(least, math.floor(max_draws * self.valid.mid))

    def _sum(self, values: Array) -> Array:
        return np.asarray(np.tensordot(self.counts, values, 2))

    def _estimate(self, values: Array) -> Interval:
        """Return the mean of all draws, and an interval with the draws of all forms that are not refuted.

        A mean over forms says what to expect. Its quantiles would be too sure: the samples cannot tell the forms of rare steps apart.
        Where so many steps were sampled that no hard one may be among the others, little depends on the form.
        """
        if not self.unseen_hard:
            return ends_of(values)
        counts = np.bincount(self.form)
        ends = [ends_of(values[self.form == index]) for index, count in enumerate(counts) if count >= _LEAST_DRAWS]
        low, high = min(each.low for each in ends), max(each.high for each in ends)
        return Interval(float(np.clip(values.mean(), low, high)), low, high)

    def _draw(self, rng: np.random.Generator) -> None:
        counts = _with_rivals(rng.multinomial(self.unseen, self.populations), self._shares, rng)
        lost, hard, hard_own, chances = np.zeros(DRAWS), np.zeros(DRAWS), np.zeros(DRAWS), {}
        counts_seen, self._worst = np.zeros_like(counts), np.zeros(DRAWS, np.int64)
        for kind, count in self._kinds.items():
            at, rivals = self._given(kind), normal(self._shares * _rival_likelihood(kind.wrong, self.others))
            if count <= FEW:
                drawn = np.zeros_like(counts)
                for _ in range(count):
                    rate = picked(at, rng)
                    drawn[ROWS, rate, picked(rivals[_IS_HARD[rate].astype(int), ROWS], rng)] += 1
            else:
                drawn = _with_rivals(rng.multinomial(count, at), rivals, rng)
            self._worst = np.maximum(self._worst, np.where(drawn.any(2), np.arange(len(ERRORS)), 0).max(1))
            beaten = drawn[:, self._is_hard].sum(1)
            chances[kind] = float(beaten.mean()) / count
            lost += beaten
            # The bound counts every step that is wrong in most samples: how alike its wrong replies are is known less surely.
            mostly_wrong = drawn[:, _IS_HARD].sum((1, 2))
            hard += mostly_wrong
            if kind.is_own:
                counts_seen += drawn
                hard_own += mostly_wrong
        self.none_hard, self.mostly_hard = float((lost == 0).mean()), float((2 * lost > self.sampled).mean())
        self._hard_chances = [chances[each.kind] for each in self.seen]
        self._counts_seen = counts_seen.astype(np.float64)
        self.counts = self._counts_seen + counts
        self._hard_own = self._bound_hard(hard, hard_own, rng)

    def _given(self, kind: SeenStep) -> Array:
        """Return the posterior of the rate at a step with these samples, in each draw."""
        return normal(self.populations * likelihood(np.array([sum(kind.wrong)]), np.array([kind.valid])))

    def rates(self, seed: int, steps: int | None = None, *, hard: float = 0.0) -> tuple[Array, Array]:
        """Draw the error rate of every step of the run, and the first rival's share in its wrong votes.

        One joint draw: sampled steps by their own samples, at their own positions, and the others from the population.

        Args:
            seed: of the draw.
            steps: only random ones, this number of them.
            hard: share of the steps that are replaced by hard ones.
        """
        rng = np.random.default_rng(seed)
        row = int(rng.integers(DRAWS))
        population, shares = self.populations[row], self._shares[:, row]
        count = self.total if steps is None else min(steps, self.total)
        chosen = range(count) if count == self.total else sorted(rng.choice(self.total, count, replace=False).tolist())
        errors, likely = rng.choice(ERRORS, size=count, p=population), np.ones((count, len(RIVALS)))
        index = {number: place for place, number in enumerate(chosen)}
        places: dict[SeenStep, list[int]] = {}
        for each in self.seen:
            if each.is_own and each.number in index:
                places.setdefault(each.kind, []).append(index[each.number])
        for kind, at in places.items():
            errors[at] = rng.choice(ERRORS, size=len(at), p=self._given(kind)[row])
            likely[at] = _rival_likelihood(kind.wrong, self.others)
        if hard:
            weights = self.counts.sum((0, 2)) * (ERRORS >= HARD)
            replaced = rng.choice(count, size=max(1, round(hard * count)), replace=False)
            errors[replaced] = rng.choice(ERRORS, size=len(replaced), p=weights / weights.sum())
        return errors, np.array(RIVALS)[picked(shares[(errors >= HARD).astype(int)] * likely, rng)]


def mean_errors(seen: Sequence[SeenStep]) -> Array:
    """Draw the mean error rate of steps like these."""
    found, _ = populations([(sum(each.wrong), each.valid) for each in seen], (0, 0))
    return np.asarray(found @ ERRORS)


def trend_chance(values: Sequence[float], seen: Sequence[SeenStep]) -> float:
    """Test whether errors depend on a value of each step: Pitman's permutation test of the correlation with its rank (1937), two-sided."""
    errors = np.array([sum(each.wrong) / each.valid for each in seen])
    _, at, equal = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(equal) - (equal - 1) / 2)[at]
    if not np.ptp(errors) or not np.ptp(ranks):
        return 1.0
    correlation = float(np.corrcoef(errors, ranks)[0, 1])
    return math.erfc(abs(correlation) * math.sqrt((len(errors) - 1) / 2))


def ends_of(values: Array) -> Interval:
    """Return the mean, which is the chance or the cost to expect of one run, and the interval."""
    low, high = np.quantile(values, [_BEYOND, 1 - _BEYOND])
    return Interval(float(np.clip(values.mean(), low, high)), float(low), float(high))
