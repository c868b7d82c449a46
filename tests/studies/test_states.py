"""Measurements in the states of a run, and what they tell where there is no oracle."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from microagents import ChainTask, InvalidUsage, Prompt, Reply, plan, run
from microagents.studies.measure import measure, measured_from
from microagents.studies.measured import ModelMeasurement
from microagents.studies.states import has_oracle, states_of_run
from microagents.task import Task
from microagents.tasks.drift import Drift
from microagents.tasks.multiplication import Multiplication

RUNS = Path("runs")
MODEL = "sim:gpt-4.1-mini@error=0.1,flag=0,alternatives=1"


class Sum(Reply, frozen=True):
    total: int


class Adding(ChainTask[list[int], Sum]):
    """A chain without an oracle."""

    count: int = 300

    def start(self) -> list[int]:
        return list(range(self.count))

    def done(self, state: list[int]) -> bool:
        return len(state) == 1

    def prompt(self, state: list[int]) -> Prompt:
        return Prompt(system="Add the two numbers.", user=f"{state[0]} and {state[1]}")

    def advance(self, state: list[int], reply: Sum) -> list[int]:
        return [reply.total, *state[2:]]

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Sum:  # noqa: ARG002 - it has one kind of reply
        return Sum(total=sum(int(number) for number in prompt.user.split(" and ")))


TASK = Adding()


def done(task: Any = TASK, *, model: str = "sim:perfect", **options: Any) -> None:
    asyncio.run(run(task, models=model, run_id="r", **options))


def agreed(model: str, **options: Any) -> ModelMeasurement:
    given = states_of_run(RUNS, "r", TASK)
    return asyncio.run(measure(TASK, model, states=given, **options)).models[0]


@pytest.mark.slow
def test_agreement_bounds_the_share_of_right_replies() -> None:
    done()
    found = agreed(MODEL)
    assert (found.total, len(found.steps), found.calls) == (299, 299, 598)
    assert found.agreement.low < 0.9**2 + 0.1**2 < found.agreement.high
    assert found.agreement.low < 0.9 < found.p_high
    assert found.as_decided is not None
    assert found.as_decided.low < 0.9 < found.as_decided.high


@pytest.mark.slow
def test_replies_that_are_wrong_in_the_same_way_agree_and_only_the_upper_bound_holds() -> None:
    done(Adding(count=60))
    found = agreed("sim:gpt-4.1-mini@error=0.99,flag=0,alternatives=1")
    assert found.agreement.share > 0.9
    assert found.agreement.low > 0.5
    assert found.p_high >= 0.01


@pytest.mark.slow
def test_agreement_promises_nothing() -> None:
    done()
    found = agreed(MODEL, steps=20)
    read = measured_from(RUNS, found.run_id)
    with pytest.raises(InvalidUsage, match="had no oracle, and agreement by itself promises nothing"):
        plan(TASK, [read], steps=100)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"known_inputs": True}])
def test_the_states_of_a_run_without_an_error_are_those_of_the_oracle(options: dict[str, Any]) -> None:
    task = Drift(length=100)
    done(task, **options)
    given = states_of_run(RUNS, "r", task)
    assert has_oracle(task, given)
    by_run = asyncio.run(measure(task, MODEL, steps=60, states=given))
    by_oracle = asyncio.run(measure(task, MODEL, steps=60))
    assert (by_run.source, by_oracle.source) == ("run 'r'", "the oracle")
    assert [each.errors for each in by_run.models[0].steps] == [each.errors for each in by_oracle.models[0].steps]
    assert measured_from(RUNS, by_run.models[0].run_id, task) == by_run.models[0]


@pytest.mark.parametrize(
    ("of", "task", "said"),
    [
        (Drift(length=3), TASK, "run 'r' is a run of drift, not of Adding, so its states are no states of Adding"),
        ([Drift(length=3)], Drift(), "run 'r' did not decide the steps of one chain, so it has no states"),
        (Multiplication(), Multiplication(), "run 'r' did not decide the steps of one chain"),
    ],
)
def test_a_run_without_states_of_the_task_is_refused(of: Any, task: Task, said: str) -> None:
    done(of)
    with pytest.raises(InvalidUsage) as refused:
        states_of_run(RUNS, "r", task)
    assert str(refused.value).startswith(said)
