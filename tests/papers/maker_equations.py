"""The equations of MAKER (arXiv 2511.09030) about whole tasks: chance, samples and cost of all steps, with m steps a call."""

from __future__ import annotations

import math
from bisect import bisect_left

from microagents.base.errors import InvalidUsage
from microagents.elections.laws import (
    check_chance,
    check_majority,
    check_target,
    check_whole,
    expected_votes,
    ln_race_won,
)

_MIN_SHARE = 1e-100
"""Lower limit of the share of samples that count for either racer, so that nothing overflows."""


def p_full(p: float, k: int, steps: int, *, steps_per_call: int = 1) -> float:
    """Compute the chance that the right answer wins every election of the task; MAKER, equation 13.

    Raises:
        InvalidUsage: for steps below 1, or m outside [1, steps].
    """
    check_steps(steps, steps_per_call)
    return math.exp(steps / steps_per_call * ln_race_won(p, k))


def k_min(p: float, steps: int, target: float, *, steps_per_call: int = 1) -> int:
    """Find the smallest margin k whose `p_full` reaches the target; MAKER, equation 14.

    Found by bisection on equation 13. The closed form, ceil(ln(t^(-m/s) - 1) / ln((1-p)/p)), is off by one if rounding
    carries it across a whole number.

    Raises:
        InvalidUsage: for p outside (0.5, 1], target outside (0, 1), steps below 1, or m outside [1, steps].
    """
    check_majority(p)
    check_target(target)
    ks = range(2**62)
    return bisect_left(ks, x=True, lo=1, key=lambda k: p_full(p, k, steps, steps_per_call=steps_per_call) >= target)


def votes_per_sample(p: float, *, valid: float = 1.0, steps_per_call: int = 1) -> float:
    """Compute the share of samples that are valid and for the right answer or its rival: one given step of its m wrong.

    MAKER, equations 10 and 11.

    Raises:
        InvalidUsage: for p outside [0, 1], valid outside (0, 1], m below 1, or if such samples are too rare to count.
    """
    check_chance(p)
    check_whole("steps_per_call", steps_per_call)
    if not 0 < valid <= 1:
        raise InvalidUsage(
            f"valid must be above 0 and at most 1, not {valid!r}; give the share of replies without a red flag"
        )
    share = valid * math.pow(p, steps_per_call - 1)
    if share < _MIN_SHARE:
        raise InvalidUsage(
            f"with p={p!r} and valid={valid!r} no sample of {steps_per_call!r} steps will ever count; put fewer steps into a call"
        )
    return share


def expected_calls(p: float, k: int, steps: int, *, valid: float = 1.0, steps_per_call: int = 1) -> float:
    """Estimate the samples of the whole task: its elections, times the votes of each, over the votes per sample.

    Raises:
        InvalidUsage: for p outside (0.5, 1] and other arguments out of range, see `votes_per_sample` and `p_full`.
    """
    check_steps(steps, steps_per_call)
    check_majority(p)
    per_sample = votes_per_sample(p, valid=valid, steps_per_call=steps_per_call)
    return steps / steps_per_call * expected_votes(p, k) / per_sample


def cost_full(cost_usd: float, p: float, k: int, steps: int, *, valid: float = 1.0, steps_per_call: int = 1) -> float:
    """Price the whole task in US dollars, at ``cost_usd`` for a sample of one step; MAKER, equations 17 to 19.

    Equation 18 is the case m = 1, equation 19 the case valid < 1. The paper's short forms take p_sub for 1; this is
    exact.

    Raises:
        InvalidUsage: for a cost below 0, and for an argument out of range, see `expected_calls`.
    """
    _check_amount("cost_usd", cost_usd)
    return cost_usd * steps_per_call * expected_calls(p, k, steps, valid=valid, steps_per_call=steps_per_call)


def sample_price(input_tokens: int, output_tokens: int, *, input_usd: float, output_usd: float) -> float:
    """Price one sample in US dollars, from its tokens and the US dollars per token of each kind; MAKER, equation 20.

    Raises:
        InvalidUsage: for a count or a price below 0, or not finite.
    """
    _check_amount("input_tokens", input_tokens)
    _check_amount("output_tokens", output_tokens)
    _check_amount("input_usd", input_usd)
    _check_amount("output_usd", output_usd)
    return input_usd * input_tokens + output_usd * output_tokens


def _check_amount(name: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise InvalidUsage(f"{name} must be 0 or more and finite, not {value!r}")


def check_steps(steps: int, steps_per_call: int) -> None:
    """Refuse numbers of steps that are out of range.

    Raises:
        InvalidUsage: one is below 1, or a call has more steps than the task.
    """
    check_whole("steps", steps)
    check_whole("steps_per_call", steps_per_call)
    if steps_per_call > steps:
        raise InvalidUsage(
            f"steps_per_call must be at most steps={steps!r}, not {steps_per_call!r}; put fewer steps into a call"
        )
