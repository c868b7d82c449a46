"""Plans of calibrations on many inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from microagents.actors.registry import TASKS
from microagents.base.errors import InvalidUsage
from microagents.base.messages import address_of
from microagents.base.user_code import called
from microagents.runs.plan import RunPlan
from microagents.runs.settings import OneModel
from microagents.runs.task_list import dump_options, tasks_of
from microagents.studies.sampling.calibration import chosen_among
from microagents.studies.sampling.input_calibration import InputCalibration
from microagents.studies.series import short_digest
from microagents.studies.study import plans_of
from microagents.systems.questions.problem import Problem
from microagents.task import ChainTask, Task


def plans_of_inputs(
    tasks: Sequence[Task], count: int, models: Sequence[OneModel], *, run_id: str | None, settings: Mapping[str, Any]
) -> dict[str, RunPlan]:
    """Build the plan of each model, by its spec: all ask the same random inputs, at most all.

    Raises:
        InvalidUsage: an input is not one question that code can judge.
    """
    given, seed = tasks_of(tasks), settings.get("seed", 0)
    numbers = sorted(chosen_among(len(given), min(count, len(given)), seed))
    chosen = [given[number] for number in numbers]
    for number, task in zip(numbers, chosen, strict=True):
        _check(number, task)
    strategy = InputCalibration(numbers=tuple(numbers), of=len(given))
    address = address_of(type(chosen[0]))
    asked = short_digest((address, [dump_options(each) for each in chosen], len(given), seed))
    prefix = run_id or f"calibrate-{TASKS.name_of(address).lower()}-{asked}"
    plans = plans_of("calibrate", chosen[0], strategy, models, run_id=prefix, settings=settings)
    return {spec: structs.replace(plan, tasks=chosen, listed=True) for spec, plan in plans.items()}


def _check(number: int, task: Task) -> None:
    name = type(task).__name__
    if isinstance(task, Problem):
        if type(task).correct is Problem.correct:
            raise InvalidUsage(f"{name} has no method `correct`, so its answers cannot be judged")
    elif not isinstance(task, ChainTask):
        raise InvalidUsage(f"{name} is neither a problem nor a chain, so its inputs cannot be calibrated")
    elif called(task.steps) != 1:
        raise InvalidUsage(
            f"input {number} of {name} is not one step, and a calibration of its first one would say nothing of the others; calibrate the "
            "steps of one input"
        )
    elif called(task.oracle, called(task.start)) is None:
        raise InvalidUsage(f"{name} has no oracle for input {number}, so its replies cannot be judged")
