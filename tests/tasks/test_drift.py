"""The walk on a ring: every reply is legal, the walk goes on from any of them, and the expert reads only the prompt."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize("text", ["number = 1.5", "number = true", 'number = "5"'])
def test_what_is_no_number_is_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        parse(text, Onward)
