"""Measurements of simulated models, made for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from msgspec import structs

from microagents import Measurement, measure
from microagents.models.model import ModelSpec
from microagents.models.simulation.simulated import SimulatedModel
from microagents.replies.chat import Prompt
from microagents.replies.reply_forms import system_with_instructions
from microagents.studies.measured import ModelMeasurement
from microagents.studies.measuring import MeasuredStep
from microagents.task import ChainTask, chain_types
from microagents.tasks.drift import Drift

TASK = Drift(length=1_000)
EASY = "sim:gpt-4.1-mini@error=0.02,alternatives=1"
HARD = "sim:gpt-4.1-mini@error=0.005,hard=0.02,hard_error=0.7"
WRONG = "sim:gpt-4.1-mini@error=0.7,alternatives=1"


def measured(*models: str, task: Any = TASK, **options: Any) -> Measurement:
    return asyncio.run(measure(task, models, **{"steps": 400, **options}))


def only(*models: str, **options: Any) -> ModelMeasurement:
    return measured(*models, **options).models[0]


def made(
    *, right: int = 1, wrong: int = 0, drawn: int = 10, steps: int = 100, total: int = 1_000, **known: Any
) -> ModelMeasurement:
    """A measurement whose steps are all alike: with wrong samples of one kind, and right ones of several."""
    votes = tuple([0] * wrong + [1 + number % right for number in range(drawn - wrong)])
    each = [
        MeasuredStep(number, drawn, 2, votes, (False, *[True] * right), {"number": wrong}, names=(*range(right + 1),))
        for number in range(steps)
    ]
    facts = {"model": "made:made", "calls": 1, "input_tokens": 1, "output_tokens": 1, "cost_usd": None, **known}
    return ModelMeasurement(run_id="made", total=total, steps=tuple(each), **facts)


def planted(error: Callable[[int], float], steps: int = 300) -> ModelMeasurement:
    """A measurement of all steps with these error rates by position."""
    rng, found = Random(0), list[MeasuredStep]()
    for number in range(steps):
        drawn = [rng.random() < error(number) for _ in range(2)]
        drawn += [rng.random() < error(number) for _ in range(8 if any(drawn) else 0)]
        found.append(MeasuredStep(number, len(drawn), 2, tuple(map(int, drawn)), (True, False), {}, names=(0, 1)))
    return structs.replace(made(total=steps), steps=tuple(found))


def hard_steps(spec: str, task: ChainTask[Any, Any], seed: int = 0) -> set[int]:
    """The steps that a simulated model finds hard."""
    model, state, found = SimulatedModel(ModelSpec.parse(spec), [task], seed), task.start(), set()
    _, reply = chain_types(type(task))
    for number in range(task.steps() or 0):
        asked = task.prompt(state)
        if model.is_hard(Prompt(system=system_with_instructions(asked.system, reply, task.format), user=asked.user)):
            found.add(number)
        state = task.advance(state, task.oracle(state))
    return found
