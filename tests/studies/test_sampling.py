"""What a study records of a step: which fields of each reply are right, what the majority says, and how right rollouts are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from microagents import Call, ChainTask, InvalidUsage, Prompt, Reply, run
from microagents.replies.chat import write
from microagents.replies.rollouts import Rollout
from microagents.studies.sampling.study import Studied, StudiedStep, Study

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


async def studied(model: Walks, **options: Any) -> list[StudiedStep]:
    result = await run(Walk(), models=model, strategy=Study(**options), runs_dir=None)
    assert result.outcome == "completed"
    found = msgspec.convert(result.value, Studied)
    assert found.fields == ("by", "to")
    return list(found.steps)


async def test_each_step_is_asked_as_often_as_wanted_and_in_the_oracles_state_whatever_is_said_before() -> None:
    model = Walks(0, lambda _, __: Stride(by=7, to=70))
    steps = await studied(model, samples=3, window=2)
    assert sorted(model.asked) == [
        (f"0/step/{number}/sample", f"{number} {number}") for number in range(LENGTH) for _ in range(3)
    ]
    assert [each.samples for each in steps] == [(0, 0, 0), *[(2, 2, 2)] * (LENGTH - 1)]


@pytest.mark.parametrize(
    ("said", "right_fields"),
    [(stride(2), 2), (Stride(by=1, to=9), 1), (Stride(by=5, to=3), 0), (Stride(by=5, to=9), 0)],
)
async def test_a_sample_counts_its_fields_up_to_the_first_wrong_one(said: Stride, right_fields: int) -> None:
    steps = await studied(Walks(2, lambda _, __: said), samples=2)
    assert steps[2].samples == (right_fields, right_fields)


async def test_where_several_replies_are_right_a_wrong_one_is_compared_with_the_one_that_begins_like_it() -> None:
    said = [stride(0), stride(0, 2), Stride(by=2, to=9), Stride(by=3, to=9)]
    steps = await studied(Walks(0, lambda _, seq: said[seq]), samples=4)
    assert steps[0].samples == (2, 2, 1, 0)


async def test_a_flagged_reply_counts_for_nothing_and_is_not_drawn_again() -> None:
    model = Walks(2, lambda place, seq: Stride(by=0, to=place) if seq == 1 else stride(place))
    steps = await studied(model, samples=3)
    assert steps[2].samples == (2, 2)
    assert len(model.asked) == 3 * LENGTH


async def test_the_majority_of_the_whole_and_of_each_field_given_those_before() -> None:
    # The stride is right in three of five; of these three, two give a wrong place. No whole reply has more votes than the wrong one.
    said = [stride(2), Stride(by=1, to=9), Stride(by=1, to=9), Stride(by=4, to=6), Stride(by=4, to=7)]
    (_, _, step, after, _) = await studied(Walks(2, lambda _, seq: said[seq]), samples=5)
    assert (step.majority, step.field_majorities) == (False, (True, False))
    assert (after.majority, after.field_majorities) == (True, (True, True))
    steps = await studied(Walks(2, lambda _, __: Stride(by=5, to=9)), samples=2)
    assert steps[2].field_majorities == (False, None), "no right first field"


async def test_rollouts_start_at_every_step_and_are_judged_up_to_the_end() -> None:
    steps = await studied(Walks(), samples=1, rollouts=2, horizon=3)
    assert [each.rollouts for each in steps] == [((True,) * length,) * 2 for length in (3, 3, 3, 2, 1)]
    assert all(not each.rollouts for each in await studied(Walks(), samples=1))


@pytest.mark.parametrize(
    ("given", "verdicts"),
    [
        ((stride(1), Stride(by=1, to=9), stride(3)), (True, False, True)),
        ((stride(1),), (True, None, None)),
        ((Stride(by=5, to=6), stride(6), stride(7)), (False, False, False)),
    ],
)
async def test_after_a_wrong_step_a_rollout_is_judged_in_the_oracles_state(
    given: tuple[Stride, ...], verdicts: tuple[bool | None, ...]
) -> None:
    steps = await studied(Walks(1, rollout=given), samples=1, rollouts=1, horizon=3)
    assert steps[1].rollouts == (verdicts,)


async def test_a_rollout_that_begins_with_another_right_reply_is_judged_along_its_own_way() -> None:
    steps = await studied(Walks(0, rollout=(stride(0, 2), stride(2), stride(3))), samples=1, rollouts=1, horizon=3)
    assert steps[0].rollouts == ((True, True, True),)


async def test_an_oracle_that_knows_only_some_steps_is_named_with_the_first_that_it_does_not() -> None:
    with pytest.raises(InvalidUsage, match="Blind has no oracle for step 1"):
        await run(Blind(), models=Walks(), strategy=Study(), runs_dir=None)
