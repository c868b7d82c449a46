"""Products of long numbers, the task of MAKER's recursive solver (figure 12): transformers are known to be weak at it."""

from __future__ import annotations

import re
from functools import cached_property, partial
from math import exp, prod
from operator import is_
from random import Random
from typing import Annotated, Self

import msgspec
from pydantic import Field, model_validator

from microagents.replies.chat import Prompt
from microagents.replies.reply import Reply
from microagents.systems.questions.problem import WorkedProblem
from microagents.systems.questions.questions import (
    ATOMIC,
    Choice,
    Decomposition,
    ToCompose,
    ToDecompose,
    ToRevise,
    ToSolve,
    asked_in,
)

MAX_DIGITS = 100
CHOICE_ERROR = 0.05
COMPOSITION_ERROR = (0.03, 0.004)
DECOMPOSITION_ERROR = (0.05, 0.01)
"""Error rates of the simulated model: a base rate, and the increase per digit of both numbers, up to `MAX_ERROR`."""
MAX_ERROR = 0.15
ANSWER_ERROR = (0.03, 0.00565, 1.623)
"""Least error rate of a direct answer, then a and b of the rate 1 - exp(-a n^b) for n products of digits: 0.65 for n = 25, 0.85 for 36."""


NOT_GIVEN = partial(is_, None)
Factor = Annotated[int, Field(ge=0, lt=10**MAX_DIGITS)]
RANDOM = (5, None, 0)
"""Defaults of the options that choose random numbers: digits, by and instance."""


class Product(Reply, frozen=True):
    """A product, as an exact integer."""

    product: int


class Multiplication(WorkedProblem[Product]):
    """Multiply two numbers: given ones, or random ones with a given number of digits.

    The simulated model imitates a model that multiplies badly. Its error rates are fixed: they test the engine, not a real model.
    """

    digits: Annotated[int, Field(ge=1, le=MAX_DIGITS)] = RANDOM[0]
    """Digits of the first number."""
    by: Annotated[int, Field(ge=1, le=MAX_DIGITS)] | None = None
    """Digits of the second number; the same as of the first if not given."""
    instance: Annotated[int, Field(ge=0)] = 0
    """Number of the random pair; each gives two other factors."""

    a: Factor | None = Field(default=None, exclude_if=NOT_GIVEN)
    """The first number; a random one if not given."""
    b: Factor | None = Field(default=None, exclude_if=NOT_GIVEN)
    """The second number; a random one if not given."""

    @model_validator(mode="after")
    def _is_one_question(self) -> Self:
        given = self.a is not None, self.b is not None
        if any(given) and not all(given):
            raise ValueError("give both numbers, a and b, or neither")
        if all(given) and (self.digits, self.by, self.instance) != RANDOM:
            raise ValueError(
                "the numbers a and b are given, so leave out digits, by and instance, which choose random ones"
            )
        return self

    @cached_property
    def factors(self) -> tuple[int, int]:
        """Two numbers to multiply."""
        if self.a is not None and self.b is not None:
            return self.a, self.b
        lengths = (self.digits, self.by or self.digits)
        rng = Random(f"{lengths} {self.instance}")  # noqa: S311 - seeded on purpose
        first, second = (rng.randrange(10 ** (length - 1), 10**length) for length in lengths)
        return first, second

    def statement(self) -> str:
        return _product_of(*self.factors)

    def correct(self, reply: Product) -> bool:
        first, second = self.factors
        return reply.product == first * second

    def variant(self, number: int) -> Self:
        """Return other random numbers; given ones stay."""
        if self.a is not None:
            return self
        return type(self)(**self.model_dump(exclude={"instance"}), instance=self.instance + number)

    def expert_answer(self, problem: str) -> Product:
        return Product(product=prod(_factors_in(problem)))

    def expert_decomposition(self, problem: str) -> Decomposition:
        """Cut the longer number in the middle. Two numbers of one digit are not cut."""
        first, second = sorted(_factors_in(problem), key=_digits)
        low = _digits(second) // 2
        if not low:
            return ATOMIC
        return _cut(first, second // 10**low, second % 10**low, 10**low)

    def expert_composition(self, asked: ToCompose) -> Product:
        high, low = (
            msgspec.json.decode(each, type=Product).product for each in (asked.answer_to_first, asked.answer_to_second)
        )
        return Product(product=high * _scale_in(asked.compose) + low)

    def mistake(self, prompt: Prompt, right: Reply, rng: Random) -> Reply:
        """Give a wrong digit or carry, a half that is lost, changed or shifted, or another candidate in a vote."""
        match right:
            case Product():
                place = 10 ** rng.randrange(max(1, _digits(right.product)))
                return Product(product=right.product + rng.choice((-1, 1, 2)) * place)
            case Decomposition() if right.is_atomic:
                first, second = _factors_in(_problem_in(prompt))
                return _cut(first, second, 0, 10)
            case Decomposition():
                first, high = _factors_in(right.first)
                _, low = _factors_in(right.second)
                scale = _scale_in(right.compose)
                return rng.choice(
                    (
                        _cut(first, high, low, scale * 10),
                        _cut(first, high, low // 10 + 1, scale),
                        _cut(first, high + 1, low, scale),
                    )
                )
            case Choice() | _:
                return super().mistake(prompt, right, rng)

    def difficulty(self, prompt: Prompt, reply: type[Reply]) -> float:  # noqa: ARG002 - the prompt says what is wanted
        asked = asked_in(prompt)
        match asked:
            case ToSolve() | ToRevise():
                return answer_error(asked.problem)
            case ToDecompose():
                return _error_by_digits(DECOMPOSITION_ERROR, asked.problem)
            case ToCompose():
                return _error_by_digits(COMPOSITION_ERROR, asked.problem)
            case _:
                return CHOICE_ERROR


def answer_error(problem: str) -> float:
    """Return the error rate of a direct answer to a product."""
    first, second = map(_digits, _factors_in(problem))
    least, a, b = ANSWER_ERROR
    return max(least, 1 - exp(-a * (first * second) ** b))


def _error_by_digits(rates: tuple[float, float], problem: str) -> float:
    """An error rate that grows with the digits of the two numbers."""
    base, a_digit = rates
    return min(MAX_ERROR, base + a_digit * sum(map(_digits, _factors_in(problem))))


def _product_of(first: int, second: int) -> str:
    return f"What is {first} * {second}?"


def _factors_in(problem: str) -> tuple[int, int]:
    ((first, second),) = re.findall(r"(\d+) \* (\d+)", problem)
    return int(first), int(second)


def _problem_in(prompt: Prompt) -> str:
    asked = asked_in(prompt)
    assert isinstance(asked, ToDecompose)
    return asked.problem


def _digits(number: int) -> int:
    return len(str(abs(number)))


def _cut(first: int, high: int, low: int, scale: int) -> Decomposition:
    return Decomposition(
        first=_product_of(first, high),
        second=_product_of(first, low),
        compose=f"Multiply the first answer by {scale} and add the second answer.",
    )


def _scale_in(compose: str) -> int:
    (scale,) = re.findall(r"\d+", compose)
    return int(scale)
