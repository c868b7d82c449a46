"""Ceilings: the share of steps in which no vote, router or pool can be right, since no sample of any model is.

Of a policy that picks among the samples of some models, the share of right steps is at most one minus the share of steps that all samples
get wrong (arXiv 2606.27288). Correlations of two models do not tell that share, so it is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pvariance
from typing import NamedTuple

from msgspec import Struct

from microagents.base.errors import InvalidUsage
from microagents.elections.laws import Proportion, binomial_cdf
from microagents.studies.measuring import FIRST, MeasuredStep

LEVEL = 0.05
WHAT_HELPS = "another model, a check by code (`verify`), smaller steps, a ladder with another prompt, or a tool"
_HALVINGS = 60
"""Halvings of the interval in which a bound is sought."""


def least_share(found: int, trials: int, level: float = LEVEL) -> float:
    """Compute the lower bound of a chance, given successes in independent trials: one-sided and exact (Clopper and Pearson 1934)."""
    low, high = 0.0, found / trials
    for _ in range(_HALVINGS if found else 0):
        middle = (low + high) / 2
        if binomial_cdf(trials - found, trials, 1 - middle) < level:  # the chance of so many successes or more
            low = middle
        else:
            high = middle
    return low


def most_share(found: int, trials: int, level: float = LEVEL) -> float:
    """Compute the upper bound of a chance, like `least_share`."""
    return 1 - least_share(trials - found, trials, level)


class Ceiling(Struct, frozen=True, kw_only=True):
    """Limit of all that picks among the samples of some models."""

    models: tuple[str, ...]
    draws: int
    """Greatest number of draws of each model in a step that it holds for."""
    steps: int
    """Number of steps that were sampled of all these models."""
    missed: int
    """Number of these steps without a right sample."""
    most: float
    """Greatest share of steps like these in which a choice among so many draws is right, at 95 %; 1 if no step was missed."""
    most_missed: float
    """Greatest share of steps without a right sample, at 95 %."""
    unanimous: Proportion
    """Share of the steps in which all samples agree on one wrong reply."""
    effective: float | None
    """Number of independent votes that first votes, `FIRST` of each model, are worth; None if no first vote is wrong."""
    together: float | None = None
    """Of two models the share of steps at which a first vote of each is wrong; None of another number."""
    independent: float | None = None
    """The same if the errors of the one said nothing of the other's."""

    def sentence(self, total: int = 1) -> str:
        """Say that no choice is right in more of such steps; for a chain of so many also in all of them."""
        choice = f"vote, router or pool of these, with up to {self.draws:,} draws each,"
        if len(self.models) == 1:
            choice = f"vote or router of this model, with up to {self.draws:,} draws,"
        said = f"no {choice} is right in more than {self.most:.4f} of such steps (95 %)"
        if total == 1:
            return said
        return f"{said}, so in all {total:,} with a chance above {self.most**total:.2g}"


class _Drawn(NamedTuple):
    """The samples of a step, of one model."""

    missed: frozenset[str] | None
    """Parts of a vote that no sample has right, the whole one if it is named by no part; None for all parts."""
    wrong_names: frozenset[int] | None
    """The distinct replies; None if a sample is right."""
    first: tuple[bool, ...]
    """Whether each of the first votes is wrong."""


def in_common(steps: Sequence[Sequence[MeasuredStep]]) -> list[list[MeasuredStep]]:
    """Return the samples of each model at the steps that were sampled of all."""
    by_number = [{step.number: step for step in of_model} for of_model in steps]
    common = [number for number in by_number[0] if all(number in each for each in by_number)]
    return [[each[number] for each in by_number] for number in common]


def ceiling_of(models: Sequence[str], steps: Sequence[Sequence[MeasuredStep]]) -> Ceiling:
    """Count the steps that all samples of some models miss.

    A policy that draws less often is bounded, too. Steps with two right first samples were drawn no more often, and are not missed.

    Args:
        models: names of the models.
        steps: samples of each model.

    Raises:
        InvalidUsage: the models have no sampled step in common, or nothing judges their samples.
    """
    if any(step.right is None for of_model in steps for step in of_model):
        raise InvalidUsage(
            "no question has a known answer, so nothing tells which steps all samples get wrong; give an oracle or gold values"
        )
    drawn = [[*map(_drawn, of_step)] for of_step in in_common(steps)]
    if not drawn:
        raise InvalidUsage(f"{' and '.join(models)} were measured on different steps; measure them with one --seed")
    count, missed = len(drawn), sum(map(_is_missed, drawn))
    agreed = sum(map(_is_unanimous, drawn))
    bounds = [least_share(agreed, count, LEVEL / 2), most_share(agreed, count, LEVEL / 2)]
    together = independent = None
    if len(models) == 2:  # noqa: PLR2004
        together, independent = _both(drawn, 0, 1)
    return Ceiling(
        models=tuple(models),
        draws=min(max(step.drawn for step in of_model) for of_model in steps),
        steps=count,
        missed=missed,
        most=1 - least_share(missed, count),
        most_missed=most_share(missed, count),
        unanimous=Proportion(share=agreed / count, low=bounds[0], high=bounds[1]),
        effective=_effective(drawn),
        together=together,
        independent=independent,
    )


def _drawn(step: MeasuredStep) -> _Drawn:
    errors = step.errors
    missed = None
    if step.wrong_fields:
        missed = frozenset(name for name, (_, wrong) in step.wrong_fields.items() if wrong == step.valid)
    elif step.valid:
        missed = frozenset([""] if all(errors) else [])
    names = None
    if step.valid > 1 and all(errors):
        names = frozenset(step.names[vote] for vote in step.votes)
    return _Drawn(missed, names, tuple(errors[: step.first_valid]))


def _is_missed(drawn: Sequence[_Drawn]) -> bool:
    known = [each.missed for each in drawn if each.missed is not None]
    return not known or bool(frozenset.intersection(*known))


def _is_unanimous(drawn: Sequence[_Drawn]) -> bool:
    named = [each.wrong_names for each in drawn if each.wrong_names is not None]
    return len(named) == len(drawn) and len(frozenset.union(*named)) == 1


def _both(drawn: Sequence[Sequence[_Drawn]], one: int, other: int) -> tuple[float, float]:
    """Return the share of steps at which a first vote of each of two models is wrong, and the same if they were independent."""
    rates = [
        (fmean(each[one].first), fmean(each[other].first)) for each in drawn if each[one].first and each[other].first
    ]
    if not rates:
        return 0.0, 0.0
    mine, theirs = zip(*rates, strict=True)
    return fmean(left * right for left, right in rates), fmean(mine) * fmean(theirs)


def _effective(drawn: Sequence[Sequence[_Drawn]]) -> float | None:
    """Divide the variance of one vote by that of the mean of all first votes of a step (the design effect, Kish 1965)."""
    steps = [[each.first for each in step] for step in drawn if all(len(each.first) == FIRST for each in step)]
    if not steps:
        return None
    wrong = [fmean(map(fmean, of_model)) for of_model in zip(*steps, strict=True)]
    alone = fmean(share * (1 - share) for share in wrong)
    if not alone:
        return None
    variance = pvariance([fmean(map(fmean, step)) for step in steps])
    return min(float(FIRST * len(wrong)), max(1.0, alone / max(variance, 1e-12)))
