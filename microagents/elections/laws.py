"""Laws of a race between the right answer and one rival, equations 9, 12 and 16 of MAKER (arXiv 2511.09030); and confidence intervals.

One rival is the worst case: more of them share the wrong votes.

``p`` is the chance that one step of a valid reply is right, and ``k`` the margin that decides. Everything is
computed from the log-odds ln(p/(1-p)), so that no digit is lost for any number of steps. Laws take numbers that are in range; the `check_`
functions refuse those of users that are not.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from msgspec import Struct

from microagents.base.errors import InvalidUsage

_HALF = 0.5
_MAX_COUNT = 10**30
"""Upper limit of steps and of k: larger than any task, and small enough that nothing overflows."""


# -- chances -----------------------------------------------------------------------------------------------------------


def race_won(p: float, k: int) -> float:
    """Compute the chance that the right one of two candidates is the first to lead by k votes.

    MAKER, equations 9 and 12.

    Equation 12, for subtasks of m steps, has the same value: the steps that both candidates have right cancel.
    """
    return math.exp(ln_race_won(p, k))


def chance_of(loss: float, steps: float) -> float:
    """Compute the chance that none of the steps is lost, each with this chance."""
    if loss < 1:
        return math.exp(steps * math.log1p(-loss))
    return 0.0


# -- votes and calls ---------------------------------------------------------------------------------------------------


def expected_votes(p: float, k: int) -> float:
    """Estimate the votes until one of two candidates leads by k.

    K/(2p-1) * (1-r^k)/(1+r^k) with r = (1-p)/p, or k*k at p = 0.5.

    MAKER's equation 16 writes it as k(2 p_sub - 1)/(2p - 1). The short form k/(2p-1) is valid only for p_sub near 1.
    """
    half = abs(_log_odds(p)) / 2
    if half:
        return k * math.tanh(k * half) / math.tanh(half)
    return float(k) * k


# -- measured shares ----------------------------------------------------------------------------------------------------


def wilson_interval(successes: float, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Compute the confidence interval of the chance of success, given successes and trials.

    Wilson's score interval (1927).

    A trial may succeed in part: the interval of a mean of shares between 0 and 1 is then too wide rather than too narrow.

    Unlike the share plus or minus a number of standard deviations, it stays within [0, 1], and it is not empty if no trial or every trial
    succeeded.
    """
    z = -NormalDist().inv_cdf((1 - confidence) / 2)
    share, weight = successes / trials, z * z / trials
    middle = share + weight / 2
    reach = z * math.sqrt(share * (1 - share) / trials + weight / trials / 4)
    low = 0.0 if successes == 0 else (middle - reach) / (1 + weight)
    high = 1.0 if successes == trials else (middle + reach) / (1 + weight)
    return low, high


class Proportion(Struct, frozen=True, kw_only=True):
    """A share with its 95 % interval."""

    share: float
    low: float
    high: float


def proportion(found: float, trials: int) -> Proportion:
    """Return a share of trials with its interval."""
    low, high = wilson_interval(found, trials)
    return Proportion(share=found / trials, low=low, high=high)


def pass_k(successes: int, trials: int, k: int) -> float:
    """Estimate the chance that all of k trials of one task succeed (pass^k), without bias: C(c, k) / C(n, k).

    tau-bench (arXiv 2406.12045), section 4.
    """
    return math.comb(successes, k) / math.comb(trials, k)


def binomial_cdf(successes: int, trials: int, p: float) -> float:
    """Compute the probability of at most so many successes, each with a chance between 0 and 1."""
    ln_p, ln_rest, whole = math.log(p), math.log1p(-p), 0.0
    for each in range(successes, -1, -1):
        term = math.exp(ln_choose(trials, each) + each * ln_p + (trials - each) * ln_rest)
        whole += term
        if term < whole * 1e-17:  # below the most likely number each term is less than the one before
            break
    return whole


def ln_choose(total: int, chosen: int) -> float:
    """Compute the logarithm of the number of ways to choose some of a total."""
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)


# -- arithmetic and ranges ---------------------------------------------------------------------------------------------


def _log_odds(p: float) -> float:
    if p in (0, 1):
        if p:
            return math.inf
        return -math.inf
    # 2p - 1 is exact from 0.25 up, and the difference of logarithms loses nothing below.
    if p < _HALF / 2:
        return math.log(p) - math.log1p(-p)
    return 2 * math.atanh(2 * p - 1)


def ln_race_won(p: float, k: int) -> float:
    """Compute the logarithm of `race_won`."""
    lead = k * _log_odds(p)
    return min(lead, 0.0) - math.log1p(math.exp(-abs(lead)))


def check_chance(p: float) -> None:
    """Refuse a chance that is none.

    Raises:
        InvalidUsage: it is not from 0 to 1.
    """
    if not 0 <= p <= 1:
        raise InvalidUsage(f"p must be from 0 to 1, not {p!r}; give the share of valid replies that are right")


def check_majority(p: float) -> None:
    """Refuse a chance at which voting does not help against one rival.

    Raises:
        InvalidUsage: it is not above 0.5 and at most 1.
    """
    check_chance(p)
    if p <= _HALF:
        raise InvalidUsage(
            f"p must be above 0.5, not {p!r}: voting makes a model that is wrong more often than right wrong almost "
            "always, so take a stronger model or smaller steps"
        )


def check_target(target: float) -> None:
    """Refuse a target that is not a chance below 1.

    Raises:
        InvalidUsage: it is not above 0 and below 1.
    """
    if not 0 < target < 1:
        raise InvalidUsage(
            f"the target must be above 0 and below 1, not {target!r}; no margin makes success certain, ask for 0.99"
        )


def check_whole(name: str, value: int) -> None:
    """Refuse a count that is out of range.

    Raises:
        InvalidUsage: it is below 1, or larger than any task.
    """
    if not 1 <= value <= _MAX_COUNT:
        raise InvalidUsage(f"{name} must be a whole number from 1 to 10^30, not {value!r}")
