"""Products as sums: the graphs, contractions and cuts that Atom of Thoughts needs of a multiplication."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import prod
from random import Random

from microagents.replies.chat import Prompt
from microagents.replies.reply import Reply
from microagents.systems.questions.questions import (
    ATOMIC,
    Contraction,
    Decomposition,
    Subquestion,
    Subquestions,
    ToContract,
    ToDecompose,
    ToFollow,
    ToRevise,
    ToSolve,
    ToTrace,
    asked_in,
)
from microagents.tasks.multiplication import COMPOSITION_ERROR, MAX_ERROR, Multiplication, Product, answer_error

SUM_CUT = 4
"""Number of terms from which on a sum is cut in two."""


class Sums(Multiplication):
    """Multiply two numbers, by the sum of the products with the digits of one."""

    def expert_answer(self, problem: str) -> Product:
        return Product(product=sum(first * second for first, second in terms_in(problem)))

    def expert_decomposition(self, problem: str) -> Decomposition:
        """Cut a long sum in two; a product as in the base class."""
        terms = terms_in(problem)
        if len(terms) == 1:
            return super().expert_decomposition(problem)
        middle = len(terms) // 2
        if len(terms) < SUM_CUT:
            return ATOMIC
        return _cut_sum(terms[:middle], terms[middle:])

    def expert_subquestions(self, problem: str) -> Subquestions:
        """List the products with each digit of the shorter number, and their sum; of a sum, the sums of two terms."""
        terms = terms_in(problem)
        if len(terms) > 1:
            parts = [terms[place : place + 2] for place in range(0, len(terms), 2)]
            questions = [sum_of(part) for part in parts]
        else:
            longer, digits = _digits_in(problem)
            questions = [problem] if len(digits) == 1 else [f"What is {longer} * {digit}?" for digit in digits]
        answers = [self.expert_answer(question).product for question in questions]
        nodes = [Subquestion(question, str(answer), ()) for question, answer in zip(questions, answers, strict=True)]
        if len(nodes) > 1:
            factors = [1 if len(terms) > 1 else 10**place for place in range(len(answers))]
            whole = sum_of(list(zip(answers, factors, strict=True)))
            product = self.expert_answer(whole).product
            nodes.append(Subquestion(whole, str(product), tuple(range(len(nodes)))))
        return Subquestions(nodes=tuple(nodes))

    def expert_contraction(self, asked: ToContract) -> str:
        """Write the sum of what is known, and of what is left."""
        terms = terms_in(asked.problem)
        solved = asked.known or self.expert_subquestions(asked.problem).independent
        known = [int(each.answer) for each in solved]
        if len(terms) > 1:
            return sum_of([*((answer, 1) for answer in known), *terms[2 * len(known) :]])
        longer, digits = _digits_in(asked.problem)
        left = sum(digit * 10**place for place, digit in enumerate(digits) if place >= len(known))
        rest = [(longer, left)] if left else []
        return sum_of([*((answer, 10**place) for place, answer in enumerate(known)), *rest])

    def mistake(self, prompt: Prompt, right: Reply, rng: Random) -> Reply:
        """Change a number of a contraction, or lose a term of a sum; else as in the base class."""
        if isinstance(right, Contraction):
            (number, factor), *others = terms_in(right.question)
            return Contraction(question=sum_of([(number + rng.choice((1, 2, 10)), factor), *others]))
        asked = asked_in(prompt)
        if isinstance(right, Decomposition) and isinstance(asked, ToDecompose) and not right.is_atomic:
            terms = terms_in(asked.problem)
            if len(terms) > 1:
                return _cut_sum(terms[:1], terms[2:])
        return super().mistake(prompt, right, rng)

    def difficulty(self, prompt: Prompt, reply: type[Reply]) -> float:
        asked = asked_in(prompt)
        match asked:
            case ToSolve() | ToRevise():
                return _error_at(asked.problem)
            case ToFollow():
                return _error_of_all(each.question for each in asked.subquestions)
            case ToTrace():
                return _error_of_all(each.question for each in self.expert_subquestions(asked.problem).independent)
            case ToContract():
                return _composition_error(asked.problem)
            case _:
                return super().difficulty(prompt, reply)


def sum_of(terms: Iterable[tuple[int, int]]) -> str:
    return f"What is {' + '.join(f'{first} * {second}' for first, second in terms)}?"


def terms_in(problem: str) -> list[tuple[int, int]]:
    return [(int(first), int(second)) for first, second in re.findall(r"(\d+) \* (\d+)", problem)]


def _digits_in(problem: str) -> tuple[int, list[int]]:
    """The longer of the two factors, and the digits of the other, the last one first."""
    (factors,) = terms_in(problem)
    shorter, longer = sorted(factors, key=lambda number: len(str(number)))
    return longer, [int(digit) for digit in reversed(str(shorter))]


def _cut_sum(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> Decomposition:
    compose = "Multiply the first answer by 1 and add the second answer."
    return Decomposition(first=sum_of(first), second=sum_of(second), compose=compose)


def _composition_error(problem: str) -> float:
    """An error rate that grows with the digits of the two longest numbers."""
    base, a_digit = COMPOSITION_ERROR
    longest = sorted((len(str(number)) for term in terms_in(problem) for number in term), reverse=True)
    return min(MAX_ERROR, base + a_digit * sum(longest[:2]))


def _error_at(problem: str) -> float:
    terms = terms_in(problem)
    if len(terms) == 1:
        return answer_error(problem)
    return 1 - (1 - _composition_error(problem)) ** (len(terms) - 1)  # each sum of two is like a composition


def _error_of_all(problems: Iterable[str]) -> float:
    return 1 - prod(1 - _error_at(each) for each in problems)
