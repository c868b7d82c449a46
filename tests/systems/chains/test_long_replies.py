"""Chains by replies with many steps: all in one, or as many as a reply holds and then again from there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from microagents import Result, run
from microagents.base.errors import EndedEarly
from microagents.models.model import Call
from microagents.replies.reply_forms import write
from microagents.replies.rollouts import Rollout
from microagents.systems.chains.iterative_restart import IterativeRestart
from microagents.tasks.drift import Drift, Place

LENGTH = 30


class Steady:
    """A model that gives so many right steps in one reply; no number stands for a reply that cannot be read."""

    def __init__(self, steps_of: Callable[[int], int | None]) -> None:
        self.steps_of = steps_of
        self.calls = 0

    async def complete(self, call: Call) -> str:
        assert issubclass(call.reply, Rollout)
        self.calls += 1
        most = self.steps_of(int(call.id.election.path.rpartition("/")[2]))
        if most is None:
            return "I would rather not."
        task, state, said = Drift(), Place(number=int(call.prompt.user.split()[1])), []
        for _ in range(min(most, call.reply.horizon)):
            said.append(task.oracle(state))
            state = task.advance(state, said[-1])
        return write(call.reply(steps=tuple(said)))


async def walked(steps_of: Callable[[int], int | None], strategy: Any, **options: Any) -> Result:
    return await run(Drift(length=LENGTH), models=Steady(steps_of), strategy=strategy, **options)


async def test_a_single_shot_gives_all_steps_of_a_chain_and_its_result_in_one_reply() -> None:
    result = await walked(lambda _: LENGTH, "single-shot")
    assert (result.outcome, result.calls, result.account.steps, result.account.errors) == ("completed", 1, LENGTH, 0)
    assert result.value is not None


@pytest.mark.parametrize(
    ("steps", "why"),
    [(12, "it has 12 of 30 steps"), (None, "the last could not be read")],
    ids=["too few steps", "no step"],
)
async def test_a_single_shot_that_ends_early_has_no_result(steps: int | None, why: str) -> None:
    result = await walked(lambda _: steps, "single-shot")
    assert (result.outcome, result.value, result.calls) == ("undecided", None, 1)
    assert result.reason is not None
    assert why in result.reason


async def test_iterative_restart_goes_on_from_where_a_reply_ends() -> None:
    result = await walked(lambda _: 12, "iterative-restart")
    assert (result.outcome, result.calls, result.account.errors, result.account.steps) == ("completed", 3, 0, LENGTH)


async def test_iterative_restart_asks_again_after_a_reply_that_cannot_be_read_and_gives_up_after_three() -> None:
    mended = await walked(lambda number: None if number in (1, 2) else 20, "iterative-restart")
    assert (mended.outcome, mended.calls) == ("completed", 4)
    stuck = await walked(lambda number: None if number else 20, "iterative-restart")
    assert (stuck.outcome, stuck.calls) == ("undecided", 4)
    assert "the work is not done at the end of reply 4, at 0/rollout/3" in str(stuck.reason)


async def test_replies_are_kept_and_a_resumed_run_does_not_buy_them_again(tmp_path: Path) -> None:
    options: dict[str, Any] = {"strategy": IterativeRestart(horizon=5), "run_id": "r", "runs_dir": tmp_path}
    stopped, resumed = [
        await run(Drift(length=LENGTH), models="sim:perfect", **options, max_calls=most) for most in (2, None)
    ]
    assert (stopped.outcome, resumed.outcome, resumed.calls) == ("stopped", "completed", 6)


def test_the_error_of_replies_that_end_early_says_what_to_do() -> None:
    text = str(EndedEarly("0/rollout/0", 1, "it has 12 of 30 steps"))
    assert text.startswith(
        "the work is not done at the end of reply 1, at 0/rollout/0: it has 12 of 30 steps; all replies so far are kept"
    )
