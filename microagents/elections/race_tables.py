"""Ends and lengths of elections at many error rates at once, by how alike the wrong replies to one step are.

The most frequent wrong reply to a step has a share of its wrong votes; each other wrong vote after n more of them is a new reply with
chance others / (others + n) (Ewens 1972). A share of 1 is one rival.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from microagents.base.errors import InvalidUsage
from microagents.elections.laws import check_whole
from microagents.elections.races import RaceEnd, race_end
from microagents.elections.rules import Certify, FirstToAheadBy

Array = NDArray[np.float64]

LOGITS: Array = np.linspace(-15, 7.5, 151)
ERRORS: Array = 1 / (1 + np.exp(-LOGITS))
"""The error rates of a table, in rising order; 0.5 is one of them."""
RIVALS = (1.0, 0.9, 0.75, 0.55, 0.35, 0.15)
"""The shares of the most frequent wrong reply in a table."""
OTHERS = (6.0, 0.3, 1.0, 2.5, 20.0, 200.0)
"""Measures of how much the other wrong replies differ from each other: the usual one of free answers first; of few options it is small."""
MAX_DRAWS = 100
"""The cap of an election by default; a table against several rivals ends here."""
_NODES: Array = np.array([-4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4])
"""Log-odds of the error rates at which elections against several rivals are simulated."""
_RARE = -9.0
"""Log-odds from which on downwards the law of rare errors holds."""
_ROWS, _RIVALS = 500, 16
"""Number of elections for each, and of distinct rivals."""
_MAX_K = 8
"""The largest k of the simulation: from here on several rivals are to one as at this k."""
_EVEN = 0.0
"""Log-odds up to which losses are computed from elections that the right reply wins: no digit is lost where a loss is rare."""
_FLOOR = 1e-12
"""Least value of which a logarithm is taken."""


class RaceTable(NamedTuple):
    """Ends of elections of one k, by error rate and share of the first rival."""

    loss: Array
    """Chance that the right reply does not win, of the shape (error rates, shares)."""
    votes: Array
    """Expected number of votes, of the same shape."""


@lru_cache(maxsize=256)
def race_table(k: int, max_votes: int = MAX_DRAWS, others: float = OTHERS[0]) -> RaceTable:
    """Compute the ends of elections that are decided once a reply leads by k votes; an undecided one is lost.

    Against one rival they are exact; against several they are simulated, always with the same random numbers.

    Raises:
        InvalidUsage: k is below 1, or the cap below k.
    """
    check_whole("k", k)
    if max_votes < k:
        raise InvalidUsage(f"no election of {max_votes!r} votes is decided by a lead of k = {k!r}; raise the cap")
    end = race_end(ERRORS, FirstToAheadBy(k), max_votes)
    if k == 1:
        return _for_all_rivals(end)
    lost, held = _simulated_ends(min(k, _MAX_K), min(max_votes, MAX_DRAWS), others)
    losses, lengths = [end.lost], [end.draws]
    at = [_RARE, *_NODES]
    for share, ratio, longer in zip(RIVALS[1:], lost[1:] / lost[0], held[1:] / held[0], strict=True):
        # Where errors are rare, a rival wins if the first k votes are all for it: the chance of k equal wrong replies.
        rare = share**k + (1 - share) ** k * math.prod(each / (others + each) for each in range(1, k))
        ratios = np.log(np.maximum(np.concatenate([[rare], ratio]), _FLOOR))
        more_lost = np.exp(np.interp(LOGITS, at, ratios))
        losses.append(np.minimum(1.0, end.lost * more_lost))
        lengths.append(end.draws * np.interp(LOGITS, at, [1.0, *longer]))
    return RaceTable(np.stack(losses, 1), np.stack(lengths, 1))


@lru_cache(maxsize=64)
def least_loss(k: int, max_votes: int = MAX_DRAWS) -> Array:
    """Return the least loss in such an election over all measures of how much the other wrong replies differ."""
    return np.asarray(np.min([race_table(k, max_votes, others).loss for others in OTHERS], axis=0))


@lru_cache(maxsize=64)
def certified_table(level: float, max_votes: int = MAX_DRAWS) -> RaceTable:
    """Compute the ends of elections by the rule certify, exact against one rival: the worst case of several. An open one is lost."""
    return _for_all_rivals(race_end(ERRORS, Certify(level), max_votes))


def equal_rates(error: float, number: int) -> tuple[Array, Array]:
    """Return the error rates of equal elections, and the first rival's share in the wrong votes."""
    return np.full(number, error), np.ones(number)


def _for_all_rivals(end: RaceEnd[Array]) -> RaceTable:
    times = len(RIVALS)
    return RaceTable(np.stack([end.lost] * times, 1), np.stack([end.draws] * times, 1))


def _simulated_ends(k: int, max_votes: int, others: float) -> tuple[Array, Array]:
    """Return losses and lengths, of the shape (shares, error rates)."""
    ended, is_right, mirrored = [each[..., k - 1] for each in _simulated(others)]
    over = ended <= max_votes
    won = over & is_right
    votes = np.minimum(ended, max_votes).mean(2)
    odds = np.where(won, mirrored, 0.0).sum(2) / np.maximum(1, won.sum(2))
    undecided = 1 - over.mean(2)
    rare = undecided + (1 - undecided) * odds / (1 + odds)
    return np.where(_NODES <= _EVEN, rare, 1 - won.mean(2)), votes


@lru_cache(maxsize=len(OTHERS))
def _simulated(others: float) -> tuple[NDArray[Any], ...]:
    """Simulate elections; all shares have the same right votes, so that their ratios are known well.

    Returns, of the shape (shares, error rates, elections, ks), the number of the vote that ends each, above the cap if none does; whether
    it is right; and the chance of the paths on which a rival has the right reply's votes and wins, for each on which the right reply wins.
    """
    rng = np.random.default_rng(0)
    shape = (len(RIVALS), len(_NODES), _ROWS)
    first = np.repeat(RIVALS, len(_NODES) * _ROWS)[:, None]
    errors = np.tile(np.repeat(1 / (1 + np.exp(-_NODES)), _ROWS), len(RIVALS))
    # The shares of the others in the wrong votes: a stick of which each reply breaks off a random part.
    left = (1 - first) * np.cumprod(rng.random((len(first), _RIVALS - 2)) ** (1 / others), axis=1)
    bounds = np.concatenate([first, 1 - left, np.ones_like(first)], axis=1)
    odds = np.diff(bounds, axis=1, prepend=0.0) * (errors / (1 - errors))[:, None]
    odds[:, -1] = 0.0  # the rest is of replies that are given once
    counts = np.zeros((len(first), _RIVALS + 1), np.int64)  # the right reply's votes come last
    most = np.zeros(len(first), np.int64)  # the largest lead so far
    ended = np.full((len(first), _MAX_K), MAX_DRAWS + 1)
    is_right, mirrored = np.zeros((len(first), _MAX_K), np.bool_), np.zeros((len(first), _MAX_K))
    for vote in range(1, MAX_DRAWS + 1):
        right = np.tile(rng.random(shape[1] * shape[2]), shape[0]) >= errors
        wrong = rng.random(len(first))
        at = np.flatnonzero(most < _MAX_K)
        drawn = np.where(right[at], _RIVALS, (wrong[at, None] > bounds[at]).sum(1))
        counts[at, drawn] += 1
        counts[at, _RIVALS - 1] = np.minimum(counts[at, _RIVALS - 1], 1)
        count = counts[at, drawn]
        counts[at, drawn] = -1
        leads = count - counts[at].max(1) > most[at]  # only the reply that is drawn can lead by more than any before
        counts[at, drawn] = count
        new = at[leads]
        ended[new, most[new]], is_right[new, most[new]] = vote, drawn[leads] == _RIVALS
        with np.errstate(over="ignore", divide="ignore"):  # the right reply may have lost
            mirrored[new, most[new]] = (odds[new] ** (counts[new, -1:] - counts[new, :-1])).sum(1)
        most[new] += 1
    return tuple([each.reshape(*shape, _MAX_K) for each in (ended, is_right, mirrored)])
