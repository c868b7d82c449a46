"""The relay of steps: its experts lead to its truth, and its mistakes do not."""

from __future__ import annotations

from random import Random

import msgspec

from microagents.replies.data_prompts import prompt_of
from microagents.systems.questions.questions import ToSolve
from microagents.systems.swarm.steps import (
    Check,
    Done,
    StepResult,
    ToAssemble,
    ToCheck,
    ToCompress,
    ToPlan,
    ToWork,
)
from microagents.systems.swarm.steps import Plan as Steps
from microagents.work.prose import Summary
from tests.papers.relay import Relay, RelayTotal

TASK = Relay(length=8, reach=7)


def walked(task: Relay) -> list[Done]:
    done: list[Done] = []
    for number, step in enumerate(task.steps, 1):
        asked = ToWork(problem=task.statement(), plan=task.steps, number=number, step=step, recent=tuple(done))
        result = task.expert(prompt_of("", asked), StepResult)
        assert isinstance(result, StepResult)
        done.append(Done(number=number, step=step, result=result.result))
    return done


def test_the_experts_of_a_relay_lead_to_its_right_result() -> None:
    done = walked(TASK)
    assert [each.result for each in done] == [
        f"r{number} = {result}" for number, result in enumerate(TASK.right_results(), 1)
    ]
    whole = TASK.expert(
        prompt_of("", ToAssemble(problem=TASK.statement(), plan=TASK.steps, recent=tuple(done[-1:]))), RelayTotal
    )
    direct = TASK.expert(prompt_of("", ToSolve(problem=TASK.statement())), RelayTotal)
    assert whole == direct == RelayTotal(total=TASK.right_results()[-1])
    assert TASK.correct(RelayTotal(total=TASK.right_results()[-1])) is True
    assert TASK.expert(prompt_of("", ToPlan(problem=TASK.statement())), Steps) == Steps(steps=TASK.steps)


def test_a_summary_keeps_every_result_and_a_mistake_loses_one() -> None:
    done = walked(TASK)
    prompt = prompt_of("", ToCompress(problem="", plan=TASK.steps, done=done[1], summary=done[0].result))
    right = TASK.expert(prompt, Summary)
    assert right == Summary(summary=f"{done[0].result}; {done[1].result}")
    wrong = TASK.mistake(prompt, right, Random(1))
    assert isinstance(wrong, Summary)
    assert wrong.summary in (done[0].result, done[1].result)


def test_a_step_whose_fact_is_nowhere_is_unsure_and_a_check_finds_a_guess() -> None:
    number = next(place for place, step in enumerate(TASK.steps, 1) if place > 1)
    asked = ToWork(problem=TASK.statement(), plan=TASK.steps, number=number, step=TASK.steps[number - 1])
    result = TASK.expert(prompt_of("", asked), StepResult)
    assert isinstance(result, StepResult)
    assert result.flaw() == "unsure"
    guess = msgspec.Raw(msgspec.json.encode(StepResult(result=f"r{number} = 500", confidence=9)))
    check = TASK.expert(prompt_of("", ToCheck(question=asked, reply=guess)), Check)
    assert check == Check(passed=False, feedback="The number is not the one that this step leads to.")
