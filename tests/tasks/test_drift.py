"""The walk on a ring: every reply is legal, the walk goes on from any of them, and the expert reads only the prompt."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microagents.replies.chat import write
from microagents.replies.parsing import Malformed, parse
from microagents.tasks.drift import RING, Drift, Onward, Place


def test_the_expert_gives_for_every_number_what_the_oracle_gives() -> None:
    task = Drift()
    for number in range(RING):
        state = Place(number=number, steps_done=3)
        right = task.oracle(state)
        assert right == Onward(number=(17 * number + 5) % RING)
        assert task.expert(task.prompt(state), Onward) == right
        assert task.correct(state, right)


@given(st.integers(0, RING - 1), st.integers(0, 10**6))
def test_a_mistake_is_another_number_of_the_ring(number: int, seed: int) -> None:
    right = Onward(number=number)
    wrong = Drift().mistake(Drift().prompt(Place()), right, Random(seed))
    assert wrong.vote() != right.vote()
    assert parse(write(wrong), Onward) == wrong


def test_the_walk_goes_on_from_wherever_a_reply_leads_and_ends_after_its_length() -> None:
    task = Drift(length=3)
    state = task.start()
    for number in (7, 0, RING - 1):
        assert not task.done(state)
        state = task.advance(state, Onward(number=number))
        assert state.number == number
    assert task.done(state)
    assert task.steps() == 3


def test_two_places_with_one_number_put_the_same_question() -> None:
    task = Drift()
    assert task.prompt(Place(number=5, steps_done=1)) == task.prompt(Place(number=5, steps_done=9))


@pytest.mark.parametrize("text", ["number = 1.5", "number = true", 'number = "5"'])
def test_what_is_no_number_is_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        parse(text, Onward)
