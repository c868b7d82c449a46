"""Pools: the samples of several models on the same steps, joined in turn as if one model gave them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, combinations

from microagents.studies.ceilings import in_common
from microagents.studies.measured import ModelMeasurement
from microagents.studies.measuring import FIRST, MeasuredStep

IN_TURN = "the models are asked in turn; a step that one has mostly wrong and another mostly right counts as lost, since they contest it"


def groups_of(models: Sequence[ModelMeasurement]) -> Iterator[tuple[ModelMeasurement, ...]]:
    """Yield every two models, and all if they are more."""
    yield from combinations(models, 2)
    if len(models) > 2:  # noqa: PLR2004
        yield tuple(models)


def pooled(models: Sequence[ModelMeasurement]) -> ModelMeasurement | None:
    """Join the samples of models at the steps that were sampled of all; None if there are none, or they are of different tasks."""
    common = in_common([each.steps for each in models])
    if not common or len({(each.total, each.of_inputs) for each in models}) > 1:
        return None
    costs = [each.call_usd for each in models if each.call_usd is not None]
    latencies = [each.latency for each in models if each.latency is not None]
    is_timed = len(latencies) == len(models)
    return ModelMeasurement(
        model=", ".join(each.model for each in models),
        run_id=", ".join(each.run_id for each in models),
        total=models[0].total,
        of_inputs=models[0].of_inputs,
        steps=tuple(map(_joined, common)),
        calls=len(models),
        input_tokens=round(sum(each.input_tokens / max(1, each.calls) for each in models)),
        output_tokens=round(sum(each.output_tokens / max(1, each.calls) for each in models)),
        cost_usd=sum(costs) if len(costs) == len(models) else None,
        latency=max(latencies, key=lambda each: each.p50) if is_timed else None,
    )


def _joined(steps: Sequence[MeasuredStep]) -> MeasuredStep:
    """Join equally many samples of each model of a step, in turn."""
    count = min(step.valid for step in steps)
    flagged = sum((step.drawn - step.valid) * count / step.valid for step in steps if step.valid)
    is_contested = any(2 * step.wrong > step.valid for step in steps) and any(
        2 * step.wrong < step.valid for step in steps
    )
    in_turn = list(chain.from_iterable([[step.names[step.votes[at]] for step in steps] for at in range(count)]))
    kinds = list(dict.fromkeys(in_turn))
    right = {name for step in steps for name, is_right in zip(step.names, step.right or (), strict=True) if is_right}
    return MeasuredStep(
        number=steps[0].number,
        drawn=len(in_turn) + max(round(flagged), 0 if count else 1),
        first_valid=min(FIRST, len(in_turn)),
        votes=tuple(map(kinds.index, in_turn)),
        right=tuple([name in right and not is_contested for name in kinds]),
        mistakes={},
        names=tuple(kinds),
    )
