"""Test by betting: whether of two replies the one with more votes is likelier than the other. It may be read after each vote."""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from math import exp, lgamma, log, log1p

_MORE = 100
"""Votes beyond the rival's at which every level is reached that a rule can have, for the least rival."""


def log_wealth(votes: int, rival: int) -> float:
    """Return the logarithm of the wealth of one who bets on a reply, against a rival that is as likely or likelier.

    Each vote for either is an even bet. The stakes are a uniform mixture over the shares from 1/2 to 1 that the reply may have of these
    votes. If the rival is as likely or likelier, the wealth is a supermartingale that begins at 1: it ever reaches 1 / level with a
    chance of at most the level (Ville 1939).
    """
    bets = votes + rival
    # The part of the mixture above 1/2 is the chance that of bets + 1 fair coins at most `votes` show heads.
    term = exp(lgamma(bets + 2) - lgamma(rival + 1) - lgamma(bets + 2 - rival) - (bets + 1) * log(2))
    rest = 0.0
    for heads in range(rival, -1, -1):
        rest += term
        term *= heads / (bets + 2 - heads)
        if term < rest * 1e-17:
            break
    return (bets + 1) * log(2) + lgamma(votes + 1) + lgamma(rival + 1) - lgamma(bets + 2) + log1p(-rest)


@lru_cache(maxsize=65_536)
def sure_votes(rival: int, level: float) -> int:
    """Return the fewest votes with which a reply passes the test against a rival with so many."""
    tried = range(2 * rival + _MORE)
    return bisect_left(tried, x=True, lo=rival, key=lambda votes: log_wealth(votes, rival) >= -log(level))
