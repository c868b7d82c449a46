"""Sorting lists of integers: cut in halves, sort, merge."""

from __future__ import annotations

from functools import cached_property
from heapq import merge
from random import Random
from typing import Annotated, Self

import msgspec
from pydantic import Field

from microagents.replies.chat import Prompt
from microagents.replies.reply import Reply
from microagents.systems.questions.problem import WorkedProblem
from microagents.systems.questions.questions import (
    ATOMIC,
    Choice,
    Decomposition,
    ToCompose,
    ToDecompose,
    ToSolve,
    asked_in,
)

COMPOSE = "Merge the two sorted lists into one sorted list that keeps every number as often as it occurs."
ATOMIC_ITEMS = 2
"""Lists up to this length are sorted directly."""
CHOICE_ERROR = 0.05
HALVES_ERROR = (0.03, 0.004)
"""Error rates of the simulated model for cutting and merging: a base rate, and the increase per number, up to `MAX_ERROR`."""
MAX_ERROR = 0.15
ANSWER_ERROR = (0.03, 0.06)
"""Error rates for sorting directly: a base rate, and the increase per number beyond the second, up to `MAX_ANSWER_ERROR`."""
MAX_ANSWER_ERROR = 0.9


class Sorted(Reply, frozen=True):
    """The numbers in ascending order."""

    numbers: tuple[int, ...]


class Sorting(WorkedProblem[Sorted]):
    """Sort a list of integers in ascending order.

    The simulated model imitates a model that loses and swaps numbers. Its error rates are fixed.
    """

    n: Annotated[int, Field(ge=1, le=1000)] = 16
    """Length of the list."""
    instance: Annotated[int, Field(ge=0)] = 0
    """Number of the random list; each gives another list."""

    @cached_property
    def numbers(self) -> list[int]:
        """List to sort; numbers may occur more than once."""
        rng = Random(f"{self.n} {self.instance}")
        return [rng.randrange(-999, 1000) for _ in range(self.n)]

    def statement(self) -> str:
        return _to_sort(self.numbers)

    def correct(self, reply: Sorted) -> bool:
        return list(reply.numbers) == sorted(self.numbers)

    def variant(self, number: int) -> Self:
        return type(self)(**self.model_dump(exclude={"instance"}), instance=self.instance + number)

    def expert_answer(self, problem: str) -> Sorted:
        numbers = sorted(_numbers_in(problem))
        return Sorted(numbers=tuple(numbers))

    def expert_decomposition(self, problem: str) -> Decomposition:
        numbers = _numbers_in(problem)
        if len(numbers) <= ATOMIC_ITEMS:
            return ATOMIC
        middle = len(numbers) // 2
        return _cut(numbers[:middle], numbers[middle:])

    def expert_composition(self, asked: ToCompose) -> Sorted:
        halves = (
            msgspec.json.decode(each, type=Sorted).numbers for each in (asked.answer_to_first, asked.answer_to_second)
        )
        numbers = merge(*map(sorted, halves))
        return Sorted(numbers=tuple(numbers))

    def mistake(self, prompt: Prompt, right: Reply, rng: Random) -> Reply:
        """Give a list with a number lost, doubled or misplaced, a needless cut, or another candidate in a vote."""
        match right:
            case Sorted():
                numbers = list(right.numbers)
                at = rng.randrange(len(numbers))
                if at and numbers[at - 1] != numbers[at] and rng.randrange(2):
                    numbers[at - 1 : at + 1] = numbers[at], numbers[at - 1]
                    return Sorted(numbers=tuple(numbers))
                return Sorted(numbers=tuple(_one_wrong(numbers, rng)))
            case Decomposition() if right.is_atomic:
                asked = asked_in(prompt)
                assert isinstance(asked, ToDecompose)
                whole = _numbers_in(asked.problem)
                return _cut(whole, _one_wrong(whole, rng))
            case Decomposition():
                return _cut(_numbers_in(right.first), _one_wrong(_numbers_in(right.second), rng))
            case Choice() | _:
                return super().mistake(prompt, right, rng)

    def difficulty(self, prompt: Prompt, reply: type[Reply]) -> float:  # noqa: ARG002 - the prompt says what is wanted
        asked = asked_in(prompt)
        match asked:
            case ToSolve():
                least, more = ANSWER_ERROR
                return min(MAX_ANSWER_ERROR, least + more * max(0, len(_numbers_in(asked.problem)) - ATOMIC_ITEMS))
            case ToDecompose() | ToCompose():
                least, more = HALVES_ERROR
                return min(MAX_ERROR, least + more * len(_numbers_in(asked.problem)))
            case _:
                return CHOICE_ERROR


def _to_sort(numbers: list[int]) -> str:
    return f"Sort these integers in ascending order: {numbers}"


def _numbers_in(problem: str) -> list[int]:
    return msgspec.json.decode(problem[problem.index("[") :], type=list[int])


def _cut(first: list[int], second: list[int]) -> Decomposition:
    return Decomposition(first=_to_sort(first), second=_to_sort(second), compose=COMPOSE)


def _one_wrong(numbers: list[int], rng: Random) -> list[int]:
    """Lose or double one of the numbers."""
    at = rng.randrange(len(numbers))
    if len(numbers) > 1 and rng.randrange(2):
        return numbers[:at] + numbers[at + 1 :]
    return [*numbers[:at], numbers[at], *numbers[at:]]
