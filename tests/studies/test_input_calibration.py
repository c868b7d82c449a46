"""Calibrations on many inputs: problems, and chains of one step."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from microagents import InvalidUsage, Problem, Reply
from microagents.studies.calibration import CalibrationReport, calibrate, calibration_from
from microagents.task import Task
from microagents.tasks.drift import Drift
from microagents.tasks.multiplication import Multiplication

MODEL = "sim:gpt-4.1-mini@error=0.1,flag=0,alternatives=1"
CHAINS = [Drift(length=1)] * 300


class Answer(Reply, frozen=True):
    text: str


class Essay(Problem[Answer]):
    """A problem whose answers code cannot judge."""

    def statement(self) -> str:
        return "Write something."


def calibrated(tasks: Sequence[Task], **options: Any) -> CalibrationReport:
    return asyncio.run(calibrate(tasks, models=[MODEL], **options))


def test_an_answer_to_a_problem_is_a_step_that_its_check_judges() -> None:
    problems = [Multiplication(digits=1, by=1, instance=number) for number in range(150)]
    report = calibrated(problems, steps=100)
    found = report.models[0]
    assert (found.total, len(found.steps), report.source) == (150, 100, "150 inputs, each one step")
    for step in found.steps:
        assert step.drawn == (2 if (step.first_valid, step.first_wrong) == (2, 0) else 10)
    assert set(found.mistakes) == {"answer"}
    few = {each.number for each in calibrated(problems, steps=30).models[0].steps}
    assert few < {each.number for each in found.steps}


def test_a_chain_of_one_step_is_judged_by_its_oracle_and_promises_something_of_each_input() -> None:
    found = calibrated(CHAINS).models[0]
    assert found.p.low < 0.9 < found.p.high
    assert set(found.mistakes) == {"number"}
    again = calibration_from(Path("runs"), found.run_id, Drift())
    assert again.steps == found.steps
    assert again.promise(3, 1).chance == pytest.approx(again.promise(3, 2).chance ** 0.5)


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ([Drift(length=1), Drift(length=2)], "input 1 of Drift is not one step"),
        ([Essay()], "Essay has no method `correct`, so its answers cannot be judged"),
        ([], "there are no inputs"),
    ],
)
def test_inputs_that_are_not_one_judged_question_are_refused(tasks: list[Task], said: str) -> None:
    with pytest.raises(InvalidUsage, match=said):
        calibrated(tasks)
