"""Measurements of simulated models, made for tests."""

from __future__ import annotations

import asyncio
from typing import Any

from microagents import Measurement, measure
from microagents.studies.measured import ModelMeasurement
from microagents.studies.measuring import MeasuredStep
from microagents.tasks.drift import Drift

TASK = Drift(length=1_000)
EASY = "sim:gpt-4.1-mini@error=0.02,alternatives=1"
HARD = "sim:gpt-4.1-mini@error=0.005,hard=0.02,hard_error=0.7"
WRONG = "sim:gpt-4.1-mini@error=0.7"


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
        MeasuredStep(number, drawn, 2, votes, (False, *[True] * right), {"number": wrong}) for number in range(steps)
    ]
    facts = {"model": "made:made", "calls": 1, "input_tokens": 1, "output_tokens": 1, "cost_usd": None, **known}
    return ModelMeasurement(run_id="made", total=total, steps=tuple(each), **facts)
