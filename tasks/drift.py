"""A walk on a ring of numbers, for tests of the engine: every reply is legal and determines the next question.

In Hanoi only one reply is legal, so an engine that counts wrongly may still decide the same. Here one wrong count changes all later steps.
"""

from __future__ import annotations

from random import Random
from typing import Annotated

from msgspec import Struct
from pydantic import Field

from microagents.replies.chat import Prompt
from microagents.replies.reply import Reply
from microagents.task import ChainTask

RING = 1009


class Place(Struct, frozen=True, kw_only=True):
    """A position of the walk."""

    number: int = 1
    steps_done: int = 0


class Onward(Reply, frozen=True):
    """The next place."""

    number: int


class Drift(ChainTask[Place, Onward]):
    """Walk from a number n to 17 n + 5 on a ring of 1009 numbers, again and again."""

    length: Annotated[int, Field(ge=1)] = 200
    """Number of steps."""

    def start(self) -> Place:
        return Place()

    def steps(self) -> int:
        return self.length

    def done(self, state: Place) -> bool:
        return state.steps_done == self.length

    def prompt(self, state: Place) -> Prompt:
        return Prompt(
            system=f"Multiply the number by 17, add 5, and give the remainder of a division by {RING}.",
            user=f"Number: {state.number}",
        )

    def advance(self, state: Place, reply: Onward) -> Place:
        return Place(number=reply.number, steps_done=state.steps_done + 1)

    def state_in(self, prompt: Prompt) -> Place:  # no prompt shows how many steps are done
        line = prompt.user.partition("\n")[0]
        return Place(number=int(line.removeprefix("Number: ")))

    def oracle(self, state: Place) -> Onward:
        return Onward(number=(state.number * 17 + 5) % RING)

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Onward:  # noqa: ARG002 - it has one kind of reply
        number = int(prompt.user.removeprefix("Number: "))
        return self.oracle(Place(number=number))

    def mistake(self, prompt: Prompt, right: Reply, rng: Random) -> Onward:  # noqa: ARG002 - the right reply is enough
        assert isinstance(right, Onward)
        return Onward(number=(right.number + rng.randrange(1, RING)) % RING)
