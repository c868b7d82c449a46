"""Populations of error rates that steps are from: drawn from their posterior, given few samples of many steps.

Few samples leave the form of a population open, so several forms are averaged by how well each predicts the samples (Hoeting 1999): one
rate, a beta distribution, a lognormal one, and the first two with a share of hard steps.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from microagents.elections.race_tables import LOGITS, Array

Counts = NDArray[np.int64]

DRAWS = 1_000
"""Number of joint draws of the posterior."""
LEAST = 1e-300
"""Least likelihood of which a logarithm is taken."""
_TRIED, _REFINED, _ROUNDS = 2_000, 1_000, (8.0, 15.0, 25.0, 40.0)
"""Parameters of a form that are tried, first from its prior, then around the fitting ones; how many count, by round."""
_KERNELS, _DEGREES, _NARROWER, _BROAD = 50, 5, 0.3, 0.1
"""Of these rounds: points around which is drawn, degrees of freedom, part of the whole variance, and share from the prior."""
_WIDTH = float(LOGITS[1] - LOGITS[0])
_LN_RIGHT: Array = -np.log1p(np.exp(LOGITS))
_LN_WRONG: Array = _LN_RIGHT + LOGITS


class _Population(NamedTuple):
    """Populations of the shape (parameters, error rates)."""

    base: Array
    hard: Array | None = None
    share: Array | None = None
    """Share of the hard steps."""

    @property
    def whole(self) -> Array:
        if self.hard is None or self.share is None:
            return self.base
        return np.asarray((1 - self.share[:, None]) * self.base + self.share[:, None] * self.hard)


def _between(low: float, high: float, at: Array) -> Array:
    return np.asarray(low * (high / low) ** at)


def _mean(at: Array) -> Array:
    """Spread a mean error rate by Jeffreys's prior of a chance."""
    return np.asarray(np.clip(np.sin(at * math.pi / 2) ** 2, 1e-9, 1 - 1e-9))


def normal(weights: Array) -> Array:
    """Divide weights by their sum over the last axis."""
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
    return normal(np.exp(logs - logs.max(1, keepdims=True)))


def _lognormal(at: Array) -> Array:
    sigma = _between(0.5, 2.5, at[:, 1] ** 2)[:, None]
    middle = np.log(_mean(at[:, 0]))[:, None] - sigma**2 / 2
    logs = -(((_LN_WRONG - middle) / sigma) ** 2) / 2 + _LN_RIGHT
    return normal(np.exp(logs - logs.max(1, keepdims=True)))


def _with_hard(base: Callable[[Array], Array], at: Array) -> _Population:
    """Add a share of steps around another, higher rate; the last three parameters are theirs."""
    middle, sigma = (-3.5 + 7.5 * at[:, -2])[:, None], _between(0.1, 1.5, at[:, -1] ** 2)[:, None]
    hard = normal(np.exp(-(((LOGITS - middle) / sigma) ** 2) / 2))
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


def populations(seen: Iterable[tuple[int, int]], seed: tuple[int, int]) -> tuple[Array, Counts]:
    """Draw populations from the posterior, given the wrong and valid samples of each step; of the shape (`DRAWS`, error rates).

    Returns also the index of the form of each draw; the first form has one rate.

    If none of the sampled steps is one of the hard steps of a draw, there are none: that is the condition of every chance.
    """
    kinds = Counter(seen)
    return _populations(tuple(kinds.items()), seed)


@lru_cache(maxsize=8)
def _populations(kinds: tuple[tuple[tuple[int, int], int], ...], seed: tuple[int, int]) -> tuple[Array, Counts]:
    rng, number = np.random.default_rng(seed), np.array([count for _, count in kinds])
    wrong, valid = np.array([samples for samples, _ in kinds]).T
    likely = likelihood(wrong, valid)
    tried, logs = zip(*[_fitted(form, likely, number, rng) for form in _FORMS], strict=True)
    weights = np.concatenate(logs)
    weights = np.exp(weights - weights.max())
    bounds = np.cumsum(weights) / weights.sum()
    chosen = np.searchsorted(bounds, (np.arange(DRAWS) + rng.random()) / DRAWS)
    drawn, first = [], 0
    for form, each in zip(_FORMS, tried, strict=True):
        found = form.population(each[chosen[(chosen >= first) & (chosen < first + len(each))] - first])
        first += len(each)
        if found.hard is not None and found.share is not None:
            base = (1 - found.share)[:, None] * (found.base @ likely.T)
            is_base = base / np.maximum(found.whole @ likely.T, LEAST)
            none = np.log(np.maximum(is_base, LEAST)) @ number
            is_none = rng.random(len(none)) < np.exp(none)
            found = found._replace(share=np.where(is_none, 0.0, found.share))
        drawn.append(found.whole)
    order = rng.permutation(DRAWS)
    return np.concatenate(drawn)[order], np.repeat(range(len(_FORMS)), [len(each) for each in drawn])[order]


def likelihood(wrong: Counts, valid: Counts) -> Array:
    """Compute the likelihood of each kind of step at each error rate, in its greatest."""
    logs = wrong[:, None] * _LN_WRONG + (valid - wrong)[:, None] * _LN_RIGHT
    return np.asarray(np.exp(logs - logs.max(1, keepdims=True)))


def _fitted(form: _Form, likely: Array, number: Counts, rng: np.random.Generator) -> tuple[Array, Array]:
    """Weigh parameters of a form by importance, drawn around the fitting ones (population Monte Carlo, Cappé 2004).

    Returns parameters, each between 0 and 1, of the shape (tries, parameters), and logarithms of their shares in all forms' posterior.
    """

    def reached(populations: Array) -> Array:
        return np.asarray(np.log(np.maximum(populations @ likely.T, LEAST)) @ number)

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
        log_scale = np.log(np.diag(root)).sum()
        near -= math.log(_KERNELS) + float(log_scale)
        prior = -(np.logaddexp(0, z) + np.logaddexp(0, -z)).sum(1)
        weights = reached(form.population(_unit(z)).whole) + prior
        weights -= np.logaddexp(math.log(_BROAD) + prior, math.log(1 - _BROAD) + near)
    # A point that is too heavy stands for a region that the others have missed (Ionides 2008).
    most = weights.max()
    mean = most + math.log(np.exp(weights - most).mean())
    weights = np.minimum(weights, mean + math.log(_REFINED) / 2)
    return _unit(z), weights + math.log(form.weight)


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
    densities = (1 + np.maximum(far, 0) / _DEGREES) ** (-(_DEGREES + size) / 2)
    return np.asarray(np.log(densities.sum(1)) + whole)


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
