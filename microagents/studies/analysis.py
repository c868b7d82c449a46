"""The analysis of studies: pure functions on the judged replies of one model or of several (LEAD, sections 5.3 and 5.4).

A mean over steps has an interval over steps: steps differ, so the pooled samples of a few steps say little about others. The rate of one
step has an interval over its samples. All are Wilson's, of 95 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from msgspec import Struct

from microagents.elections.laws import wilson_interval
from microagents.studies.sampling.study import Studied

HARD = 0.5
"""Error rate above which voting decides a step wrong rather than right."""
HARDEST_SHARE = 0.1
"""Share of the steps that `RolloutAccuracy.hardest` is about."""


class Proportion(Struct, frozen=True, kw_only=True):
    """A share with its 95 % interval."""

    share: float
    low: float
    high: float


class StepErrors(Struct, frozen=True, kw_only=True):
    """Errors at one step."""

    step: int
    """Counted from 0."""
    wrong: int
    valid: int
    """Number of valid samples."""
    rate: Proportion | None
    """Share of the valid samples that are wrong; None if there are none."""


class Errors(Struct, frozen=True, kw_only=True):
    """Error rates of single steps (figure 3)."""

    mean: Proportion | None
    hard: int
    """Number of steps with a rate above one half."""
    surely_hard: int
    """Number of steps whose interval lies above one half."""
    ordinary: int
    """Number of all other steps: those with a rate of at most one half."""
    p: Proportion | None
    """Mean share of right samples at these: the ``p`` of a ladder."""
    steps: tuple[StepErrors, ...]

    def hardest(self, count: int) -> list[StepErrors]:
        """Return the steps with the highest rates above 0, the highest first."""
        wrong = [each for each in self.steps if each.wrong]
        return sorted(wrong, key=lambda each: (-each.wrong / each.valid, each.step))[:count]


class Accuracies(Struct, frozen=True, kw_only=True):
    """How right the steps are."""

    accuracy: Proportion | None
    """Mean over the steps."""
    by_step: tuple[float | None, ...]
    """Accuracies of the steps in their order; None without a valid prediction."""
    ranked: tuple[float, ...]
    """The same in rising order (figure 6)."""


class PositionAccuracy(Accuracies, frozen=True, kw_only=True):
    """Accuracies of steps from one position: asked by themselves, or inside a rollout (figure 7)."""

    position: int
    """0 for a step that is asked by itself, 1 for the first step of a rollout."""
    given_first: Proportion | None
    """The accuracy among rollouts whose first step is right; None for position 0."""
    missing: int
    """Number of predictions that rollouts which ended early do not give."""


class Hardest(Struct, frozen=True, kw_only=True):
    """Hardest tenth of the steps. One half of the single samples chooses them, the other half gives their accuracy."""

    steps: tuple[int, ...]
    alone: Proportion
    ahead: tuple[Proportion | None, ...]
    """Accuracy at these steps by position, from +1 on."""
    pooled: Proportion | None
    """The same over all positions."""


class RolloutAccuracy(Struct, frozen=True, kw_only=True):
    """Steps asked by themselves against steps of rollouts."""

    positions: tuple[PositionAccuracy, ...]
    pooled: Accuracies
    """What rollouts say of a step from all positions, each with the same weight."""
    hardest: Hardest | None
    """None with fewer than two samples a step."""


class Distances(Struct, frozen=True, kw_only=True):
    """Total variation distances between distributions of errors over steps (figure 5).

    Each is between halves of samples, so all have the same noise: of one model between its two halves, which is the baseline; of two
    models the mean over four pairs of halves. None if a half has no errors.
    """

    models: tuple[str, ...]
    errors: tuple[int, ...]
    """Number of wrong samples of each model."""
    matrix: tuple[tuple[float | None, ...], ...]


class FieldAccuracy(Struct, frozen=True, kw_only=True):
    """How often a field is right when all fields before it are (figures 4 and 10)."""

    name: str
    single: Proportion | None
    """Mean over steps of the share of samples."""
    majority: Proportion | None
    """Share of the steps at which the most frequent value is right."""
    errors_per_walk: float
    """Mean number of steps of a whole walk at which this is the first wrong field."""


class FieldAccuracies(Struct, frozen=True, kw_only=True):
    """Accuracy by field of the reply, and of the whole reply."""

    fields: tuple[FieldAccuracy, ...]
    whole: FieldAccuracy


def errors_in(studied: Studied) -> Errors:
    """Return the error rate of each step, and their mean."""
    steps = []
    for number, each in enumerate(studied.steps):
        valid, wrong = len(each.samples), _wrong(studied, each.samples)
        steps.append(StepErrors(step=number, wrong=wrong, valid=valid, rate=_rate(wrong, valid) if valid else None))
    rates = [each.rate for each in steps if each.rate is not None]
    ordinary = [1 - each.share for each in rates if each.share <= HARD]
    return Errors(
        mean=_mean([each.share for each in rates]),
        hard=sum(each.share > HARD for each in rates),
        surely_hard=sum(each.low > HARD for each in rates),
        ordinary=len(ordinary),
        p=_mean(ordinary),
        steps=tuple(steps),
    )


def lookahead_in(studied: Studied, horizon: int) -> RolloutAccuracy:
    """Accuracies by position."""
    alone = [_accuracy(studied, each.samples) for each in studied.steps]
    positions = [_position(0, alone, missing=0)]
    for position in range(1, min(horizon, len(studied.steps)) + 1):
        missing = 0
        by_step: list[float | None] = [None] * (position - 1)
        given_first: list[float | None] = []
        for start in studied.steps[: len(studied.steps) - position + 1]:
            said = [each[position - 1] for each in start.rollouts]
            missing += said.count(None)
            by_step.append(_true_share(said))
            given_first.append(_true_share([each[position - 1] for each in start.rollouts if each[0]]))
        positions.append(_position(position, by_step, missing=missing, given_first=_mean(_known(given_first))))
    said_of = [_known([each.by_step[step] for each in positions[1:]]) for step in range(len(studied.steps))]
    by_step = [fmean(each) if each else None for each in said_of]
    pooled = Accuracies(accuracy=_mean(_known(by_step)), by_step=tuple(by_step), ranked=tuple(sorted(_known(by_step))))
    return RolloutAccuracy(positions=tuple(positions), pooled=pooled, hardest=_hardest(studied, positions, pooled))


def distances_between(studied: Mapping[str, Studied]) -> Distances:
    """Return the distances between the errors of all models."""
    halves = [[_distribution(each, half) for half in (0, 1)] for each in studied.values()]
    matrix = []
    for row, mine in enumerate(halves):
        own = [_distance(mine[0], mine[1])]
        matrix.append(
            tuple(
                [
                    _all_or_none(own if row == column else [_distance(a, b) for a in mine for b in theirs])
                    for column, theirs in enumerate(halves)
                ]
            )
        )
    counts = [sum(_wrong(each, step.samples) for step in each.steps) for each in studied.values()]
    return Distances(models=tuple(studied), errors=tuple(counts), matrix=tuple(matrix))


def parts_in(studied: Studied) -> FieldAccuracies:
    """Accuracy by field."""
    fields = tuple([_part(studied, number) for number in range(len(studied.fields))])
    accuracies = [_accuracy(studied, each.samples) for each in studied.steps]
    whole = FieldAccuracy(
        name="whole reply",
        single=_mean(_known(accuracies)),
        majority=_mean([float(each.majority) for each in studied.steps if each.majority is not None]),
        errors_per_walk=sum(1 - each for each in _known(accuracies)),
    )
    return FieldAccuracies(fields=fields, whole=whole)


def _part(studied: Studied, field: int) -> FieldAccuracy:
    singles, majorities, errors = [], [], 0.0
    for step in studied.steps:
        drawn = [each for each in step.samples if each >= field]
        if drawn:
            singles.append(fmean(each > field for each in drawn))
            errors += step.samples.count(field) / len(step.samples)
        if (majority := step.field_majorities[field]) is not None:
            majorities.append(float(majority))
    return FieldAccuracy(
        name=studied.fields[field], single=_mean(singles), majority=_mean(majorities), errors_per_walk=errors
    )


def _position(
    position: int, by_step: Sequence[float | None], *, missing: int, given_first: Proportion | None = None
) -> PositionAccuracy:
    known = _known(by_step)
    return PositionAccuracy(
        position=position,
        accuracy=_mean(known),
        given_first=given_first,
        ranked=tuple(sorted(known)),
        by_step=tuple(by_step),
        missing=missing,
    )


def _hardest(studied: Studied, positions: Sequence[PositionAccuracy], pooled: Accuracies) -> Hardest | None:
    """Return the hardest steps. Steps that fail most by chance look harder than they are, so other samples give their accuracy."""
    chosen_by = [_accuracy(studied, each.samples[0::2]) for each in studied.steps]
    shown = [_accuracy(studied, each.samples[1::2]) for each in studied.steps]
    known = [
        (accuracy, step) for step, accuracy in enumerate(chosen_by) if accuracy is not None and shown[step] is not None
    ]
    steps = sorted([step for _, step in sorted(known)[: max(1, round(HARDEST_SHARE * len(known)))]])
    alone = _mean(_known([shown[step] for step in steps]))
    if alone is None:
        return None
    *ahead, over_all = [_mean(_known([each.by_step[step] for step in steps])) for each in (*positions[1:], pooled)]
    return Hardest(steps=tuple(steps), alone=alone, ahead=tuple(ahead), pooled=over_all)


def _distribution(studied: Studied, half: int) -> list[float] | None:
    """Return the share of each step in the errors of one half of the samples; None without errors."""
    wrong = [_wrong(studied, each.samples[half::2]) for each in studied.steps]
    return [each / sum(wrong) for each in wrong] if any(wrong) else None


def _distance(one: Sequence[float] | None, other: Sequence[float] | None) -> float | None:
    return None if one is None or other is None else sum(abs(a - b) for a, b in zip(one, other, strict=True)) / 2


def _all_or_none(values: Sequence[float | None]) -> float | None:
    known = _known(values)
    return fmean(known) if len(known) == len(values) else None


def _wrong(studied: Studied, samples: Sequence[int]) -> int:
    return sum(each < len(studied.fields) for each in samples)


def _accuracy(studied: Studied, samples: Sequence[int]) -> float | None:
    return 1 - _wrong(studied, samples) / len(samples) if samples else None


def _true_share(said: Sequence[bool | None]) -> float | None:
    given = [each for each in said if each is not None]
    return fmean(given) if given else None


def _known(values: Sequence[float | None]) -> list[float]:
    return [each for each in values if each is not None]


def _rate(hits: float, trials: int) -> Proportion:
    low, high = wilson_interval(hits, trials)
    return Proportion(share=hits / trials, low=low, high=high)


def _mean(shares: Sequence[float]) -> Proportion | None:
    """Return the mean of shares, one of each step, with its interval over the steps."""
    return _rate(min(sum(shares), len(shares)), len(shares)) if shares else None
