"""What a measurement records of a step: which replies are right, what is wrong first in others, and how right rollouts are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from microagents import Call, ChainTask, InvalidUsage, Prompt, Reply, run
from microagents.replies.reply_forms import write
from microagents.replies.rollouts import Rollout
from microagents.studies.measuring import Measured, MeasuredStep, Measuring

LENGTH = 5
WRONG = -1


class Walker(Struct, frozen=True):
    place: int = 0
    steps_done: int = 0


class Stride(Reply, frozen=True):
    """A stride, and the place after it."""

    by: int
    to: int


class Walk(ChainTask[Walker, Stride]):
    """Walk by one; at the beginning, a stride of two is as right."""

    def start(self) -> Walker:
        return Walker()

    def steps(self) -> int:
        return LENGTH

    def done(self, state: Walker) -> bool:
        return state.steps_done == LENGTH

    def prompt(self, state: Walker) -> Prompt:
        return Prompt(user=f"{state.steps_done} {state.place}")

    def advance(self, state: Walker, reply: Stride) -> Walker:
        return Walker(place=reply.to, steps_done=state.steps_done + 1)

    def oracle(self, state: Walker) -> Stride | None:
        return stride(state.place)

    def correct(self, state: Walker, reply: Stride) -> bool:
        return reply == stride(state.place) or (not state.steps_done and reply == stride(state.place, 2))

    def flag(self, state: Walker, reply: Stride) -> str | None:
        return "stands_still" if reply.to == state.place else None


class Blind(Walk):
    def oracle(self, state: Walker) -> Stride | None:
        return None if state.steps_done else stride(state.place)


def stride(place: int, by: int = 1) -> Stride:
    return Stride(by=by, to=place + by)


Said = Callable[[int, int], Reply]
"""The reply to a step at a place, by seq."""


class Walks:
    """A model that says something else at one step."""

    def __init__(
        self, at: int = 0, said: Said = lambda place, _: stride(place), rollout: tuple[Stride, ...] | None = None
    ) -> None:
        self._at = at
        self._said = said
        self._rollout = rollout
        self.asked: list[tuple[str, str]] = []
        """Path and question of each call."""

    async def complete(self, call: Call) -> str:
        path = call.id.election.path
        number, place = map(int, call.prompt.user.split()[:2])
        self.asked.append((path, f"{number} {place}"))
        if issubclass(call.reply, Rollout):
            given = tuple(stride(place + ahead) for ahead in range(call.reply.horizon))
            return write(call.reply(steps=self._rollout if self._rollout is not None and number == self._at else given))
        return write(self._said(place, call.id.seq) if number == self._at else stride(place))


async def measured(model: Walks, task: Walk | None = None, **options: Any) -> list[MeasuredStep]:
    result = await run(task or Walk(), models=model, strategy=Measuring(**options), runs_dir=None)
    assert result.outcome == "completed"
    return sorted(msgspec.convert(result.value, Measured).steps, key=lambda each: each.number)


async def test_each_step_is_asked_in_the_oracles_state_whatever_is_said_before() -> None:
    model = Walks(0, lambda _, __: Stride(by=7, to=70))
    steps = await measured(model, draws=3, window=2)
    assert sorted(model.asked) == [
        (f"0/step/{number}/{block}", f"{number} {number}")
        for number in range(LENGTH)
        for block in ("0-2", "0-2", "2-3")
    ]
    assert [each.errors for each in steps] == [[True] * 3, *[[False] * 3] * (LENGTH - 1)]


@pytest.mark.parametrize(
    ("said", "mistakes"),
    [(stride(2), {}), (Stride(by=1, to=9), {"to": 10}), (Stride(by=5, to=3), {"by": 10})],
)
async def test_a_wrong_sample_is_counted_by_its_first_wrong_field_and_asked_more_often(
    said: Stride, mistakes: dict[str, int]
) -> None:
    step = (await measured(Walks(2, lambda _, __: said)))[2]
    assert (step.mistakes, step.drawn) == (mistakes, 10 if mistakes else 2)


async def test_several_replies_may_be_right_and_votes_are_told_apart() -> None:
    said = [stride(0), stride(0, 2), Stride(by=3, to=9), stride(0)]
    step = (await measured(Walks(0, lambda _, seq: said[seq % 2 if seq < 2 else seq]), draws=2))[0]
    assert (step.votes, step.right) == ((0, 1), (True, True))


async def test_rollouts_start_at_every_step_and_are_judged_up_to_the_end() -> None:
    steps = await measured(Walks(), rollouts=2, horizon=3)
    assert [each.rollouts for each in steps] == [((True,) * length,) * 2 for length in (3, 3, 3, 2, 1)]
    assert all(not each.rollouts for each in await measured(Walks()))


@pytest.mark.parametrize(
    ("at", "given", "verdicts"),
    [
        (1, (stride(1), Stride(by=1, to=9), stride(3)), (True, False, True)),
        (1, (stride(1),), (True, None, None)),
        (1, (Stride(by=5, to=6), stride(6), stride(7)), (False, False, False)),
        (0, (stride(0, 2), stride(2), stride(3)), (True, True, True)),
    ],
)
async def test_after_a_wrong_step_a_rollout_is_judged_in_the_oracles_state(
    at: int, given: tuple[Stride, ...], verdicts: tuple[bool | None, ...]
) -> None:
    steps = await measured(Walks(at, rollout=given), rollouts=1, horizon=3)
    assert steps[at].rollouts == (verdicts,)


async def test_an_oracle_that_knows_only_some_steps_is_named_with_the_first_that_it_does_not() -> None:
    with pytest.raises(InvalidUsage, match="Blind has no oracle for step 1"):
        await measured(Walks(), Blind())
