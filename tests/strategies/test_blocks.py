"""Several steps of a chain in one question: decided as a whole, and flagged if any of them is unfit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from microagents import InvalidUsage, Result, resume, run
from microagents.journal.reading import reader_of
from microagents.replies.rollouts import rollout_of
from microagents.runs.inspection.decision import inspect_decision
from microagents.strategies import Maker
from microagents.task import flag_of
from microagents.tasks.drift import Drift, Onward, Place
from microagents.tasks.hanoi import Hanoi
from microagents.tasks.multiplication import Multiplication

NONE: Mapping[str, Any] = MappingProxyType({})
TASK = Hanoi(disks=6)
MODEL = "sim:gpt-4.1-mini@error=0.02"


async def blocks(task: Any = TASK, size: int = 4, *, strategy: Mapping[str, Any] = NONE, **options: Any) -> Result:
    result: Result = await run(task, strategy=Maker(steps_per_call=size, **strategy), **{"models": MODEL, **options})
    return result


@pytest.mark.parametrize("runtime", ["local", "linked", pytest.param("ray", marks=pytest.mark.slow)])
async def test_a_quarter_of_the_elections_solve_the_same_task(runtime: Any) -> None:
    result = await blocks(runtime=runtime)
    assert (result.outcome, result.account.steps, result.account.errors) == ("completed", 16, 0)
    assert result.value["moves"] == 63
    slow = await blocks(strategy={"speculate": False})
    assert slow.account.decisions_sha256 == result.account.decisions_sha256


async def test_a_stopped_walk_goes_on_as_if_it_had_not_stopped() -> None:
    whole = await blocks(run_id="whole")
    stopped = await blocks(run_id="stopped", max_calls=20)
    assert stopped.outcome == "stopped"
    resumed = await resume("stopped", max_calls=1000)
    assert (resumed.outcome, resumed.account.decisions_sha256) == ("completed", whole.account.decisions_sha256)


async def test_the_question_and_the_judgement_of_a_block_are_shown() -> None:
    await blocks(run_id="shown")
    with reader_of(Path("runs"), "shown") as reader:
        decision = inspect_decision(reader, "0/step/3")
    assert decision.user is not None
    assert "Number of moves to give: 4" in str(decision.system)
    assert len(decision.value["steps"]) == 4
    assert decision.correct


async def test_a_block_is_right_as_often_as_all_of_its_steps_are() -> None:
    error, size, steps = 0.05, 4, 8_000
    result = await blocks(
        Drift(length=steps), size, models=f"sim:perfect@error={error}", strategy={"k": 1, "known_inputs": True}
    )
    assert result.account.errors is not None
    wrong, rate, count = result.account.errors, 1 - (1 - error) ** size, steps // size
    assert abs(wrong - count * rate) <= 3.29 * math.sqrt(count * rate * (1 - rate))


class Fussy(Drift):
    """A drift that flags a step by the state before it."""

    def flag(self, state: Place, reply: Onward) -> str | None:
        """Flag what does not follow."""
        return None if reply == self.oracle(state) else "does_not_follow"


def test_a_block_is_flagged_if_any_of_its_steps_is() -> None:
    task, start = Fussy(length=3), msgspec.json.encode(Place())
    first, block = task.oracle(Place()), rollout_of(Onward, 3)
    second = task.oracle(task.advance(Place(), first))
    assert flag_of(task, block(steps=(first, second)), start) is None
    assert flag_of(task, block(steps=(first, first)), start) == "does_not_follow"


async def test_what_has_no_blocks_is_refused() -> None:
    with pytest.raises(InvalidUsage, match="has no steps"):
        await blocks(Multiplication(digits=2))
    with pytest.raises(ValueError, match="a ladder climbs single steps"):
        Maker(steps_per_call=4, ladder="judge")
