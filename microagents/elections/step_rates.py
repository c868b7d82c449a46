"""Error rates that differ from step to step, from few samples of many steps: what a run of these steps comes to.

Most steps are easy and a few are hard, so the mean of all samples says little about votes. What the other steps are like is described by
a population of rates. Few samples leave its form open, so several forms are averaged by how well each predicts the samples (Hoeting
1999): one rate, a beta distribution, a lognormal one, and the first two with a share of hard steps.

Every figure comes from joint draws of the posterior: form, parameters, the rate of each sampled step given its own samples, and the
rates of the others. A draw holds all steps of the run, so that a chance is a product over its steps before any quantile is taken.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from microagents.base.errors import InvalidUsage
from microagents.elections.laws import check_target, check_whole, race_by_turns
from microagents.elections.race_tables import ERRORS, LOGITS, MAX_DRAWS, OTHERS, RIVALS, Array, RaceTable, race_table

Counts = NDArray[np.int64]

HARD = 0.5
"""Error rate from which on a step is wrong in most samples."""
MAX_FALSE = 0.05
"""Greatest expected share of ordinary steps among the steps called hard."""
SURE, LIKELY = 0.98, 0.9
"""Probabilities that a k which is marked is enough: in general, and if no difference between steps was seen."""
UNREFUTED = 0.35
"""Probability from which on it may be that all steps have one rate."""
MAX_K = 30
"""The largest k that is tried."""
MAX_STEPS = 10**15
"""The longest run."""
DRAWS = 1_000
"""Number of joint draws of the posterior."""
_TRIED, _REFINED, _ROUNDS = 2_000, 1_000, (8.0, 15.0, 25.0, 40.0)
"""Parameters of a form that are tried, first from its prior, then around those that fit; how many count, by round."""
_KERNELS, _DEGREES, _NARROWER, _BROAD = 50, 5, 0.3, 0.1
"""Of these rounds: points around which is drawn, degrees of freedom, part of the whole variance, and share from the prior."""
_FEW = 8
"""Number of equal steps up to which each is drawn by itself."""
_BEYOND, _LEAST_DRAWS = 0.005, 30
"""Share of a form's draws beyond either end of an interval, fewer than 2.5 % since no form is quite that of the steps; and the least
number of draws by which a form counts as not refuted."""
_RIVAL_PRIOR = np.array([1.0, 0.2, 0.2, 0.2, 0.2, 0.2])
_WIDTH = float(LOGITS[1] - LOGITS[0])
_LN_RIGHT: Array = -np.log1p(np.exp(LOGITS))
_LN_WRONG: Array = _LN_RIGHT + LOGITS
_LEAST = 1e-300
_IS_HARD = ERRORS >= HARD
_ROWS = np.arange(DRAWS)


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


class Interval(NamedTuple):
    """A figure with its 95 % interval."""

    mid: float
    low: float
    high: float


class Trend(NamedTuple):
    """Error rates along the chain."""

    chance: float
    """Chance that steps in a random order depend on their position as much (`trend_chance`)."""
    first: float
    """Mean error rate of the first third of the sampled steps."""
    last: float
    """Mean error rate of the last third."""


# -- forms of a population ----------------------------------------------------------------------------------------------


class _Population(NamedTuple):
    """Populations of the shape (parameters, error rates)."""

    base: Array
    hard: Array | None = None
    share: Array | None = None
    """Share of the hard steps."""

    @property
    def whole(self) -> Array:
        return self.base if self.hard is None or self.share is None else _mixed(self.base, self.hard, self.share)


def _mixed(base: Array, hard: Array, share: Array) -> Array:
    return np.asarray((1 - share[:, None]) * base + share[:, None] * hard)


def _between(low: float, high: float, at: Array) -> Array:
    return np.asarray(low * (high / low) ** at)


def _mean(at: Array) -> Array:
    """Spread a mean error rate by Jeffreys's prior of a chance."""
    return np.asarray(np.clip(np.sin(at * math.pi / 2) ** 2, 1e-9, 1 - 1e-9))


def _normal(weights: Array) -> Array:
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def _one(at: Array) -> Array:
    """Put all steps at one rate, between two of the table."""
    mean = _mean(at[:, 0])
    place = np.clip((np.log(mean / (1 - mean)) - LOGITS[0]) / _WIDTH, 0, len(LOGITS) - 1.001)
    below, rows = place.astype(int), np.arange(len(at))
    weights = np.zeros((len(at), len(LOGITS)))
    weights[rows, below], weights[rows, below + 1] = 1 - (place - below), place - below
    return weights


def _beta(at: Array) -> Array:
    mean, shape = _mean(at[:, 0])[:, None], _between(0.03, 6, at[:, 1])[:, None]
    a, b = shape / (1 - mean), shape / mean
    logs = a * _LN_WRONG + b * _LN_RIGHT
    # What lies beyond the ends of the table is counted at its ends.
    logs[:, :1] -= np.log(a * _WIDTH)
    logs[:, -1:] -= np.log(b * _WIDTH)
    return _normal(np.exp(logs - logs.max(1, keepdims=True)))


def _lognormal(at: Array) -> Array:
    sigma = _between(0.5, 2.5, at[:, 1] ** 2)[:, None]
    middle = np.log(_mean(at[:, 0]))[:, None] - sigma**2 / 2
    logs = -(((_LN_WRONG - middle) / sigma) ** 2) / 2 + _LN_RIGHT
    return _normal(np.exp(logs - logs.max(1, keepdims=True)))


def _with_hard(base: Callable[[Array], Array], at: Array) -> _Population:
    """Add a share of steps around another, higher rate; the last three parameters are theirs."""
    middle, sigma = (-3.5 + 7.5 * at[:, -2])[:, None], _between(0.1, 1.5, at[:, -1] ** 2)[:, None]
    hard = _normal(np.exp(-(((LOGITS - middle) / sigma) ** 2) / 2))
    return _Population(base(at), hard, _between(1e-5, 0.5, at[:, -3]))


class _Form(NamedTuple):
    weight: float
    parameters: int
    population: Callable[[Array], _Population]


_FORMS = (
    _Form(0.36, 1, lambda at: _Population(_one(at))),
    _Form(0.18, 2, lambda at: _Population(_beta(at))),
    _Form(0.28, 2, lambda at: _Population(_lognormal(at))),
    _Form(0.14, 3, lambda at: _with_hard(_one, np.column_stack([at, np.zeros(len(at))]))),
    _Form(0.04, 5, lambda at: _with_hard(_beta, at)),
)
"""Forms by how likely they are before any sample; samples of hard steps speak so clearly that these may be unlikely."""


def _populations(wrong: Counts, valid: Counts, number: Counts, rng: np.random.Generator) -> tuple[Array, Counts]:
    """Draw populations from the posterior, given the steps by their wrong and valid samples; of the shape (`DRAWS`, error rates).

    Returns also the index of the form of each draw.

    If none of the sampled steps is one of the hard steps of a draw, there are none: that is the condition of every chance.
    """
    likely = _likelihood(wrong, valid)
    tried = [_fitted(form, likely, number, rng) for form in _FORMS]
    weights = np.concatenate([each.weights for each in tried])
    weights = np.exp(weights - weights.max())
    bounds = np.cumsum(weights) / weights.sum()
    chosen = np.searchsorted(bounds, (np.arange(DRAWS) + rng.random()) / DRAWS)
    drawn, first = [], 0
    for form, each in zip(_FORMS, tried, strict=True):
        at = each.at[chosen[(chosen >= first) & (chosen < first + len(each.at))] - first]
        first += len(each.at)
        found = form.population(at)
        if found.hard is not None and found.share is not None:
            base = (1 - found.share)[:, None] * (found.base @ likely.T)
            none = (number * np.log(np.maximum(base / np.maximum(found.whole @ likely.T, _LEAST), _LEAST))).sum(1)
            is_none = rng.random(len(at)) < np.exp(none)
            found = found._replace(share=np.where(is_none, 0.0, found.share))
        drawn.append(found.whole)
    order = rng.permutation(DRAWS)
    return np.concatenate(drawn)[order], np.repeat(range(len(_FORMS)), [len(each) for each in drawn])[order]


def _likelihood(wrong: Counts, valid: Counts) -> Array:
    """Compute the likelihood of each kind of step at each error rate, in its greatest."""
    logs = wrong[:, None] * _LN_WRONG + (valid - wrong)[:, None] * _LN_RIGHT
    return np.asarray(np.exp(logs - logs.max(1, keepdims=True)))


class _Fitted(NamedTuple):
    at: Array
    """Parameters, each between 0 and 1, of the shape (tries, parameters)."""
    weights: Array
    """Logarithms of their shares in the posterior of all forms."""


def _fitted(form: _Form, likely: Array, number: Counts, rng: np.random.Generator) -> _Fitted:
    """Weigh parameters of a form by importance, drawn around those that fit (population Monte Carlo, Cappé 2004)."""

    def reached(populations: Array) -> Array:
        return np.asarray(np.log(np.maximum(populations @ likely.T, _LEAST)) @ number)

    size = form.parameters
    z, populations = _prior(form)
    weights = reached(populations)
    for effective in _ROUNDS[-max(2, size - 1) :]:
        tempered = _tempered(weights, effective * size)
        spread = z - tempered @ z
        root = np.linalg.cholesky(spread.T @ (spread * tempered[:, None]) * _NARROWER + 1e-6 * np.eye(size))
        middles = z[rng.choice(len(z), p=tempered, size=_KERNELS)]
        stretch = np.sqrt(_DEGREES / rng.chisquare(_DEGREES, size=(_REFINED, 1)))
        z = middles[rng.integers(_KERNELS, size=_REFINED)] + stretch * rng.standard_normal((_REFINED, size)) @ root.T
        z = np.where(rng.random((_REFINED, 1)) < _BROAD, rng.logistic(size=z.shape), z)
        near = _kernel(np.linalg.solve(root, z.T).T, np.linalg.solve(root, middles.T).T)
        near -= math.log(_KERNELS) + float(np.log(np.diag(root)).sum())
        prior = -(np.logaddexp(0, z) + np.logaddexp(0, -z)).sum(1)
        weights = reached(form.population(_unit(z)).whole) + prior
        weights -= np.logaddexp(math.log(_BROAD) + prior, math.log(1 - _BROAD) + near)
    # A point that is too heavy stands for a region that the others have missed (Ionides 2008).
    most = weights.max()
    weights = np.minimum(weights, most + math.log(np.exp(weights - most).mean()) + math.log(_REFINED) / 2)
    return _Fitted(_unit(z), weights + math.log(form.weight))


@lru_cache(maxsize=len(_FORMS))
def _prior(form: _Form) -> tuple[Array, Array]:
    """Draw parameters of a form from its prior, with their populations; always the same."""
    z = np.random.default_rng(0).logistic(size=(_TRIED, form.parameters))
    return z, form.population(_unit(z)).whole


def _kernel(at: Array, middles: Array) -> Array:
    """Compute the logarithm of the summed densities of Student's distribution around some points."""
    size = at.shape[1]
    far = (at**2).sum(1)[:, None] + (middles**2).sum(1) - 2 * at @ middles.T
    whole = math.lgamma((_DEGREES + size) / 2) - math.lgamma(_DEGREES / 2) - size / 2 * math.log(_DEGREES * math.pi)
    return np.asarray(np.log(((1 + np.maximum(far, 0) / _DEGREES) ** (-(_DEGREES + size) / 2)).sum(1)) + whole)


def _unit(z: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-np.clip(z, -30, 30))))


def _tempered(logs: Array, effective: float) -> Array:
    """Return weights, evened out until as many count."""
    weights = np.zeros_like(logs)
    for step in range(60):
        weights = np.exp(0.8**step * (logs - logs.max()))
        weights /= weights.sum()
        if 1 / (weights**2).sum() >= effective:
            break
    return weights


# -- draws --------------------------------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """Steps whose samples are alike."""

    right: int
    wrong: tuple[int, ...]
    is_own: bool


def _kind(step: SeenStep) -> Kind:
    return Kind(step.right, tuple(sorted(step.wrong, reverse=True)), step.is_own)


@lru_cache(maxsize=4_096)
def _rival_likelihood(wrong: tuple[int, ...]) -> Array:
    """Compute the chance of the numbers of equal wrong replies at each share of the first rival, up to a factor."""
    count, shares = sum(wrong), np.array(RIVALS)

    def others(numbers: Sequence[int]) -> float:
        ways = sum(math.log(OTHERS) + math.lgamma(each) for each in numbers)
        return math.exp(ways + math.lgamma(OTHERS) - math.lgamma(OTHERS + sum(numbers)))

    at = (1 - shares) ** count * others(wrong)  # the first rival is none of them
    for index, number in enumerate(wrong):
        at += shares**number * (1 - shares) ** (count - number) * others([*wrong[:index], *wrong[index + 1 :]])
    return np.asarray(at / at.max())


def _rival_shares(kinds: Mapping[Kind, float], rng: np.random.Generator) -> Array:
    """Draw the population of the first rivals' shares, given kinds of steps by their number; of the shape (`DRAWS`, shares)."""
    several = [(_rival_likelihood(kind.wrong), count) for kind, count in kinds.items() if sum(kind.wrong) > 1]
    taken = _RIVAL_PRIOR
    if several:
        likely, number = np.array([each for each, _ in several]), np.array([count for _, count in several])
        for _ in range(50):
            parts = likely * taken
            taken = _RIVAL_PRIOR + (number[:, None] * parts / parts.sum(1, keepdims=True)).sum(0)
    return rng.dirichlet(taken, size=DRAWS)


def _with_rivals(steps: Counts, shares: Array, rng: np.random.Generator) -> Counts:
    """Draw the first rivals' shares of steps, given their number by error rate."""
    found = np.zeros((*steps.shape, len(RIVALS)), np.int64)
    row, rate = steps.nonzero()
    found[row, rate] = rng.multinomial(steps[row, rate], shares[_IS_HARD[rate].astype(int), row])
    return found


def _tallied(seen: Iterable[tuple[int, int]]) -> tuple[Counts, Counts, Counts]:
    """Count steps that are alike: two numbers of each kind, and how many there are."""
    kinds = Counter(seen)
    one, other = np.array(list(kinds)).T
    return one, other, np.array(list(kinds.values()))


def _valid_draws(seen: Sequence[SeenStep], rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw the share of samples without a flag, and the mean number of samples for a valid one."""
    drawn = sum(each.flagged + each.valid for each in seen)
    if not any(each.flagged for each in seen):
        flags = rng.beta(0.5, 0.5 + drawn, size=DRAWS)
        flags *= rng.random(DRAWS) < HARD  # as likely as not, no sample is ever flagged
        return 1 - flags, 1 / (1 - flags)
    found, _ = _populations(*_tallied((each.flagged, each.flagged + each.valid) for each in seen), rng)
    return 1 - found @ ERRORS, found @ np.minimum(1 / (1 - ERRORS), MAX_DRAWS)


def _picked(weights: Array, rng: np.random.Generator) -> Counts:
    """Pick an index of each row by its weights."""
    bounds = np.cumsum(weights, axis=1)
    return np.asarray((rng.random((len(weights), 1)) * bounds[:, -1:] > bounds).sum(1))


class RunRates:
    """What a planned run comes to: joint draws of the error rates of all its steps, and the figures that follow."""

    total: int
    """Number of steps of the run."""
    sampled: int
    """Number of sampled steps."""
    unseen: int
    """Number of steps of the run that were not sampled."""
    _counts: Array
    """Number of steps of each kind, by draw."""
    _errors: Array
    """Error rate of each kind."""
    replies: tuple[Array, Array]
    """Share of the samples without a flag, and mean number of samples for a valid one, by draw."""
    forms: tuple[Counts, ...]
    """Index of the form of each draw, in the order of `_FORMS`; of each model of a pool."""
    _hard_chances: list[float]
    _hard_own: Array

    @cached_property
    def p(self) -> Interval:
        """Mean chance over the steps of the run that a valid sample is right."""
        return self._estimate(1 - self._sum(self._errors) / self.total)

    @cached_property
    def valid(self) -> Interval:
        """Share of the samples without a red flag."""
        return _ends(self.replies[0])

    def chance(self, k: int, *, max_draws: int = MAX_DRAWS) -> Interval:
        """Compute the chance that every step of the run is decided right by a lead of k votes."""
        return self._estimate(self._chances(k, max_draws))

    def decided(self, k: int, *, max_draws: int = MAX_DRAWS) -> Interval:
        """Compute the share of the steps that are decided right."""
        return self._estimate(1 - self._sum(self._table(k, max_draws).loss) / self.total)

    def calls(self, k: int, *, max_draws: int = MAX_DRAWS) -> Interval:
        """Compute the expected number of samples of the run, flagged ones included."""
        votes = self._sum(self._table(k, max_draws).votes)
        return self._estimate(np.minimum(votes * self.replies[1], self.total * float(max_draws)))

    def chance_by(self, loss: Array | Sequence[Sequence[float]], *, failed: int = 0, of_hard: int = 0) -> Interval:
        """Compute the chance that no step is lost by a strategy of its own losses.

        Args:
            loss: chance that a step is lost, at each error rate.
            failed: number of hard steps that trials lost.
            of_hard: number of hard steps in the trials; 0 if `loss` holds for hard steps, too.
        """
        is_hard = (self._errors >= HARD) & (of_hard > 0)
        kept = self._sum(np.where(is_hard, 0.0, np.log1p(-np.minimum(loss, 1 - 1e-15))))
        at_hard = np.random.default_rng(0).beta(failed + 0.5, of_hard - failed + 0.5, size=DRAWS)
        return self._estimate(
            np.exp(kept + self._sum(is_hard.astype(float)) * np.log1p(-np.minimum(at_hard, 1 - 1e-15)))
        )

    def sure(self, k: int, target: float, *, max_draws: int = MAX_DRAWS) -> float:
        """Compute the probability that the chance of the run is at least the target."""
        return float((self._chances(k, max_draws) >= target).mean())

    def least_k(self, target: float, *, max_draws: int = MAX_DRAWS) -> int | None:
        """Find the smallest k that is enough for the target with a probability of `SURE`; None if there is none.

        If the samples show no difference between steps, one more than is enough for equal steps will do: that much is enough for
        differences of the size that they may hide.

        Raises:
            InvalidUsage: the target is not above 0 and below 1.
        """
        check_target(target)
        enough = None
        for k in range(1, min(MAX_K, max_draws) + 1):
            chances = self._chances(k, max_draws)
            sure = float((chances >= target).mean())
            if sure >= SURE or (enough is not None and k == enough + 1 and sure >= LIKELY):
                return k
            alike = np.logical_and.reduce([each == 0 for each in self.forms])
            if enough is None and alike.mean() >= UNREFUTED and np.median(chances[alike]) >= target:
                enough = k
        return None

    @cached_property
    def correlation(self) -> float:
        """Correlation of two samples of one step: 0 if all steps are alike, 1 if each is always right or always wrong."""
        weights = self._counts.sum(0) / self._counts.sum()
        mean, square = (float((weights * self._errors**power).sum()) for power in (1, 2))
        return (square - mean**2) / (mean * (1 - mean))

    @cached_property
    def p_ordinary(self) -> float:
        """Mean chance that a valid sample is right at the steps that are not hard; 0 if all are hard."""
        weights = self._counts.sum(0) * (self._errors < HARD)
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
        """What the figures depend on, in words."""
        if not self.unseen:
            return f"all {self.total:,} steps of the run were sampled"
        return (
            f"if the other {self.unseen:,} steps are of the kinds of the {self.sampled:,} that were sampled: {len(self.hard_found):,} of "
            f"these are hard, and up to {self.hard.high:,.0f} of all {self.total:,} may be (95 %)"
        )

    def _bound_hard(self, hard: Array, own: Array, rng: np.random.Generator) -> Array:
        """Draw the number of hard steps, without a condition: those that no sample shows are as frequent as the samples leave open."""
        share = rng.beta(hard + 1, np.maximum(self.sampled - hard, _LEAST))
        among = self._sum((self._errors >= HARD).astype(float))
        return np.maximum(among, own + rng.binomial(self.unseen, share))

    def _chances(self, k: int, max_draws: int) -> Array:
        return np.exp(self._sum(np.log1p(-np.minimum(self._table(k, max_draws).loss, 1 - 1e-15))))

    def _table(self, k: int, max_draws: int) -> RaceTable:
        votes = math.floor(max_draws * self.valid.mid)
        return race_table(k, max_draws if max_draws < k else max(k, votes))

    def _sum(self, values: Array) -> Array:
        return np.asarray(np.tensordot(self._counts, values, 2))

    def _estimate(self, values: Array) -> Interval:
        """Return the mean of all draws, and an interval that holds those of all forms that are not refuted.

        A mean over forms says what to expect. Its quantiles would be too sure: the samples cannot tell the forms of rare steps apart.
        """
        ends = [
            _ends(values[form == index])
            for form in self.forms
            for index, count in enumerate(np.bincount(form))
            if count >= _LEAST_DRAWS
        ]
        low, high = min(each.low for each in ends), max(each.high for each in ends)
        return Interval(float(np.clip(values.mean(), low, high)), low, high)


class StepRates(RunRates):
    """Error rates of the steps of a planned run with one model, as its samples leave them open.

    Args:
        seen: sampled steps; their number may depend on the samples, as when only steps with an error are sampled again. Steps without
            a valid sample say only how often samples are flagged.
        total: number of steps of the planned run; those of its own that were sampled are among them.
        seed: of the joint draws: the same arguments give the same figures.

    Raises:
        InvalidUsage: no sample is valid, or the run has fewer steps than were sampled of it.
    """

    def __init__(self, seen: Sequence[SeenStep], total: int, *, seed: int = 0) -> None:
        check_whole("steps", total)
        self.seen = tuple(each for each in seen if each.valid)
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
        rng = np.random.default_rng(seed)
        self.populations, forms = _populations(*_tallied((sum(each.wrong), each.valid) for each in self.seen), rng)
        self.forms = (forms,)
        self._kinds = Counter(_kind(each) for each in self.seen)
        hard = {kind: float(self._given(kind)[:, _IS_HARD].sum(1).mean()) for kind in self._kinds}
        ordinary = {kind: count * (1 - hard[kind]) for kind, count in self._kinds.items()}
        mostly = {kind: count * hard[kind] for kind, count in self._kinds.items()}
        # A step that is wrong in most samples is wrong in its own way, so the rivals of hard steps are a population of their own.
        self._shares = np.stack([_rival_shares(each, rng) for each in (ordinary, mostly)])
        self._hard_chances = [hard[_kind(each)] for each in self.seen]
        self.replies = _valid_draws(seen, rng)
        self._draw(rng)

    def _draw(self, rng: np.random.Generator) -> None:
        plain = rng.multinomial(self.unseen, self.populations)
        counts = np.zeros((DRAWS, *self._errors.shape), np.int64)
        hard, hard_own = np.zeros(DRAWS), np.zeros(DRAWS)
        for kind, count in self._kinds.items():
            at, rivals = self._given(kind), _normal(self._shares * _rival_likelihood(kind.wrong))
            if kind.is_own and count <= _FEW:
                drawn = np.zeros((DRAWS, len(ERRORS)), np.int64)
                for _ in range(count):
                    rate = _picked(at, rng)
                    drawn[_ROWS, rate] += 1
                    counts[_ROWS, rate, _picked(rivals[_IS_HARD[rate].astype(int), _ROWS], rng)] += 1
            else:
                drawn = rng.multinomial(count, at)
                if kind.is_own and sum(kind.wrong) > 1:
                    counts += _with_rivals(drawn, rivals, rng)
                elif kind.is_own:
                    plain += drawn
            hard += drawn[:, _IS_HARD].sum(1)
            hard_own += kind.is_own * drawn[:, _IS_HARD].sum(1)
        self._counts = (counts + _with_rivals(plain, self._shares, rng)).astype(np.float64)
        self._hard_own = self._bound_hard(hard, hard_own, rng)

    def _given(self, kind: Kind) -> Array:
        """Return the posterior of the rate at a step with these samples, in each draw."""
        wrong = sum(kind.wrong)
        return _normal(self.populations * _likelihood(np.array([wrong]), np.array([kind.right + wrong])))

    def rates(self, seed: int, steps: int | None = None, *, hard: float = 0.0) -> tuple[Array, Array]:
        """Draw the error rate of every step of the run, and the share of the first rival in its wrong votes, by position.

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
        places: dict[Kind, list[int]] = {}
        for each in self.seen:
            if each.is_own and each.number in index:
                places.setdefault(_kind(each), []).append(index[each.number])
        for kind, at in places.items():
            errors[at] = rng.choice(ERRORS, size=len(at), p=self._given(kind)[row])
            likely[at] = _rival_likelihood(kind.wrong)
        if hard:
            weights = self._counts.sum((0, 2)) * (ERRORS >= HARD)
            replaced = rng.choice(count, size=max(1, round(hard * count)), replace=False)
            errors[replaced] = rng.choice(ERRORS, size=len(replaced), p=weights / weights.sum())
        return errors, np.array(RIVALS)[_picked(shares[(errors >= HARD).astype(int)] * likely, rng)]

    @cached_property
    def trend(self) -> Trend:
        """How errors differ from one end of the chain to the other."""
        ordered = sorted(self.seen, key=lambda each: each.number)
        third, rng = max(1, len(ordered) // 3), np.random.default_rng(0)
        first, last = (
            float((_populations(*_tallied((sum(each.wrong), each.valid) for each in part), rng)[0] @ ERRORS).mean())
            for part in (ordered[:third], ordered[-third:])
        )
        return Trend(trend_chance(self.seen), first, last)


def trend_chance(seen: Sequence[SeenStep]) -> float:
    """Test whether errors depend on the position: Pitman's permutation test of their correlation (1937), two-sided."""
    ordered = sorted((each for each in seen if each.valid), key=lambda each: each.number)
    errors = np.array([sum(each.wrong) / each.valid for each in ordered])
    apart, places = errors - errors.mean(), np.arange(len(ordered)) - (len(ordered) - 1) / 2
    spread = math.sqrt(float((apart**2).sum() * (places**2).sum()) / max(1, len(ordered) - 1))
    return math.erfc(abs(float(apart @ places)) / spread / math.sqrt(2)) if spread else 1.0


class PoolRates(RunRates):
    """The same for a pool of two models whose votes alternate, from the steps that were asked of both.

    A share of the steps is as hard for one model as for the other, by rank; at the rest their rates are independent. Wrong replies
    are taken to be alike, which is the worst case.

    Raises:
        InvalidUsage: the runs differ in their number of steps, or no step was asked of both.
    """

    def __init__(self, one: StepRates, other: StepRates, *, seed: int = 0) -> None:
        others = {(each.number, each.is_own): each for each in other.seen}
        both = [(each, others[each.number, each.is_own]) for each in one.seen if (each.number, each.is_own) in others]
        if one.total != other.total or not both:
            raise InvalidUsage(
                "a pool is of two models that were asked the same steps of one task; sample the same steps"
            )
        self.total, self.sampled = one.total, len(both)
        self.unseen = one.total - sum(each.is_own for each, _ in both)
        self.seen = tuple(each for each, _ in both)
        self.replies = ((one.replies[0] + other.replies[0]) / 2, (one.replies[1] + other.replies[1]) / 2)
        self._errors = (_PAIRED[:, None] + _PAIRED) / 2
        self.forms = (*one.forms, *other.forms)
        self._draw(_paired(one.populations), _paired(other.populations), both, np.random.default_rng(seed))

    def rates(self, seed: int, steps: int | None = None) -> tuple[Array, Array]:
        """Draw the error rates of both models at every step, or a number of random ones, and 1 as the share of the first rival.

        One joint draw, in a random order: the error rates are of the shape (2, steps).
        """
        rng = np.random.default_rng(seed)
        counts = self._counts[int(rng.integers(DRAWS))].ravel().astype(np.int64)
        count = self.total if steps is None else min(steps, self.total)
        taken = rng.multivariate_hypergeometric(counts, count, method="marginals")
        pairs = rng.permutation(np.repeat(np.arange(len(counts)), taken))
        return _PAIRED[np.array(np.divmod(pairs, len(_PAIRED)))], np.ones(count)

    def _draw(self, one: Array, other: Array, both: list[tuple[SeenStep, SeenStep]], rng: np.random.Generator) -> None:
        of = [
            ((sum(each.wrong), each.valid), (sum(against.wrong), against.valid), each.is_own) for each, against in both
        ]
        kinds = Counter(of)
        ranks = _Ranks.of(one, other)
        likely = [(_paired_likelihood(first), _paired_likelihood(second)) for first, second, _ in kinds]
        together = np.stack([(ranks.weights * a[ranks.one] * b[ranks.other]).sum(1) for a, b in likely], 1)
        apart = np.stack([(one @ a) * (other @ b) for a, b in likely], 1)
        tried = np.linspace(0, 1, 41)[:, None, None]
        reached = np.log(np.maximum(tried * together + (1 - tried) * apart, _LEAST)) @ np.array(list(kinds.values()))
        shared = tried[_picked(np.exp(reached - reached.max(0)).T, rng), 0, 0]
        self.shared = _ends(shared)
        self._counts = np.zeros((DRAWS, *self._errors.shape))
        hard, hard_own, chances = np.zeros(DRAWS), np.zeros(DRAWS), {}
        for index, (kind, count) in enumerate(kinds.items()):
            a, b = likely[index]
            whole = shared * together[:, index] + (1 - shared) * apart[:, index]
            alike = np.minimum(1.0, shared * together[:, index] / np.maximum(whole, _LEAST))
            drawn = ranks.drawn(count, alike, (ranks.weights * a[ranks.one] * b[ranks.other], one * a, other * b), rng)
            at_hard = self._add(drawn, is_own=kind[2])
            chances[kind] = float(at_hard.mean()) / count
            hard, hard_own = hard + at_hard, hard_own + kind[2] * at_hard
        self._add(ranks.drawn(self.unseen, shared, (ranks.weights, one, other), rng), is_own=True)
        self._hard_chances = [chances[each] for each in of]
        self._hard_own = self._bound_hard(hard, hard_own, rng)

    def _add(self, drawn: tuple[Counts, ...], *, is_own: bool) -> Array:
        """Add steps, and return the number of hard ones of each draw."""
        *at, number = drawn
        if is_own:
            np.add.at(self._counts, tuple(at), number)
        is_hard = self._errors[at[1], at[2]] >= HARD
        return np.bincount(at[0], weights=number * is_hard, minlength=DRAWS).astype(np.float64)

    def _table(self, k: int, max_draws: int) -> RaceTable:
        table = _turns_table(k)
        return RaceTable(table.loss, np.minimum(table.votes, max_draws))


_PAIRED: Array = 1 / (1 + np.exp(-(LOGITS[:-1:2] + _WIDTH / 2)))
"""The error rates that a step may have by each model of a pool."""


def _paired(populations: Array) -> Array:
    merged = populations[:, :-1:2] + populations[:, 1::2]
    merged[:, -1] += populations[:, -1]
    return merged


def _paired_likelihood(seen: tuple[int, int]) -> Array:
    wrong, valid = seen
    logs = wrong * np.log(_PAIRED) + (valid - wrong) * np.log1p(-_PAIRED)
    return np.asarray(np.exp(logs - logs.max()))


@lru_cache(maxsize=MAX_K)
def _turns_table(k: int) -> RaceTable:
    races = [[race_by_turns(1 - float(one), 1 - float(other), k) for other in _PAIRED] for one in _PAIRED]
    return RaceTable(
        np.array([[each.lost for each in row] for row in races]),
        np.array([[each.votes for each in row] for row in races]),
    )


class _Ranks(NamedTuple):
    """Pairs of rates of two models at the same ranks of their populations, of the shape (`DRAWS`, pairs)."""

    one: Counts
    other: Counts
    weights: Array

    @classmethod
    def of(cls, one: Array, other: Array) -> _Ranks:
        ends = [np.cumsum(each, axis=1) for each in (one, other)]
        bounds = np.sort(np.concatenate(ends, axis=1), axis=1)
        weights = np.diff(bounds, axis=1, prepend=0.0)
        middles = bounds - weights / 2
        first, second = (
            np.minimum((middles[:, :, None] > each[:, None, :]).sum(2), each.shape[1] - 1) for each in ends
        )
        return cls(first, second, weights)

    def drawn(
        self, count: int, alike: Array, weights: tuple[Array, Array, Array], rng: np.random.Generator
    ) -> tuple[Counts, ...]:
        """Draw pairs of rates, some at the same ranks and the rest independent; returns draws, both rates, and numbers.

        Args:
            count: number of steps.
            alike: chance of each that its rates are at the same ranks, by draw.
            weights: of the ranks, and of the rates of either model.
            rng: source of randomness.
        """
        coupled = rng.binomial(count, alike)
        rows = np.repeat(_ROWS, self.weights.shape[1])
        number = rng.multinomial(coupled, _normal(weights[0] + _LEAST)).ravel()
        parts = [np.stack([rows, self.one.ravel(), self.other.ravel(), number])[:, number > 0]]
        if count <= _FEW:
            for turn in range(count):
                is_left = turn < count - coupled
                parts.append(np.stack([_ROWS, _picked(weights[1], rng), _picked(weights[2], rng), is_left]))
        else:
            first = rng.multinomial(count - coupled, _normal(weights[1]))
            row, one = first.nonzero()
            pairs = rng.multinomial(first[row, one], _normal(weights[2])[row])
            at, other = pairs.nonzero()
            parts.append(np.stack([row[at], one[at], other, pairs[at, other]]))
        return tuple(np.concatenate(parts, axis=1).astype(np.int64))


def _ends(values: Array) -> Interval:
    """Return the mean, which is the chance or the cost to expect of one run, and the interval."""
    low, high = np.quantile(values, [_BEYOND, 1 - _BEYOND])
    return Interval(float(np.clip(values.mean(), low, high)), float(low), float(high))
