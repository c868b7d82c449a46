"""Error rates of a pool: two models whose samples take turns, from the steps that both were asked."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from microagents.base.errors import InvalidUsage
from microagents.elections.laws import race_by_turns
from microagents.elections.race_tables import LOGITS, Array, RaceTable
from microagents.elections.step_populations import DRAWS, LEAST, Counts, normal
from microagents.elections.step_rates import FEW, HARD, MAX_K, ROWS, RunRates, SeenStep, StepRates, ends_of, picked

_PAIRED: Array = 1 / (1 + np.exp(-(LOGITS[:-1:2] + (LOGITS[1] - LOGITS[0]) / 2)))
"""The error rates that a step may have by each model of a pool."""


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
        self._is_hard = self._errors >= HARD
        self.forms = (*one.forms, *other.forms)
        self._draw(_paired(one.populations), _paired(other.populations), both, np.random.default_rng(seed))

    def rates(self, seed: int, steps: int | None = None, *, hard: float = 0.0) -> tuple[Array, Array]:  # noqa: ARG002 - of one model
        """Draw the error rates of both models, of the shape (2, steps), in a random order, and 1 as the first rival's share."""
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
        reached = np.log(np.maximum(tried * together + (1 - tried) * apart, LEAST)) @ np.array(list(kinds.values()))
        shared = tried[picked(np.exp(reached - reached.max(0)).T, rng), 0, 0]
        self.shared = ends_of(shared)
        self._counts = np.zeros((DRAWS, *self._errors.shape))
        hard, hard_own, chances = np.zeros(DRAWS), np.zeros(DRAWS), {}
        for index, (kind, count) in enumerate(kinds.items()):
            a, b = likely[index]
            whole = shared * together[:, index] + (1 - shared) * apart[:, index]
            alike = np.minimum(1.0, shared * together[:, index] / np.maximum(whole, LEAST))
            drawn = ranks.drawn(count, alike, (ranks.weights * a[ranks.one] * b[ranks.other], one * a, other * b), rng)
            at_hard = self._add(drawn, is_own=kind[2])
            chances[kind] = float(at_hard.mean()) / count
            hard, hard_own = hard + at_hard, hard_own + kind[2] * at_hard
        self._add(ranks.drawn(self.unseen, shared, (ranks.weights, one, other), rng), is_own=True)
        self._hard_chances = [chances[each] for each in of]
        self.none_hard, self.mostly_hard = float((hard == 0).mean()), float((2 * hard > self.sampled).mean())
        self._hard_own = self._bound_hard(hard, hard_own, rng)

    def _add(self, drawn: tuple[Counts, ...], *, is_own: bool) -> Array:
        """Add steps, and return the number of hard ones of each draw."""
        *at, number = drawn
        if is_own:
            np.add.at(self._counts, tuple(at), number)
        is_hard = self._is_hard[at[1], at[2]]
        return np.bincount(at[0], weights=number * is_hard, minlength=DRAWS).astype(np.float64)

    def _table(self, k: int, max_draws: int) -> RaceTable:
        table = _turns_table(k)
        return RaceTable(table.loss, np.minimum(table.votes, max_draws))


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
    lost = [[each.lost for each in row] for row in races]
    votes = [[each.votes for each in row] for row in races]
    return RaceTable(np.array(lost), np.array(votes))


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
        rows = np.repeat(ROWS, self.weights.shape[1])
        number = rng.multinomial(coupled, normal(weights[0] + LEAST)).ravel()
        parts = [np.stack([rows, self.one.ravel(), self.other.ravel(), number])[:, number > 0]]
        if count <= FEW:
            for turn in range(count):
                is_left = turn < count - coupled
                parts.append(np.stack([ROWS, picked(weights[1], rng), picked(weights[2], rng), is_left]))
        else:
            first = rng.multinomial(count - coupled, normal(weights[1]))
            row, one = first.nonzero()
            pairs = rng.multinomial(first[row, one], normal(weights[2])[row])
            at, other = pairs.nonzero()
            parts.append(np.stack([row[at], one[at], other, pairs[at, other]]))
        return tuple(np.concatenate(parts, axis=1).astype(np.int64))
