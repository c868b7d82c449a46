"""A small Monte Carlo of MAKER's algorithm 4, written without the framework: what solve rates and calls are to be expected.

It shares with the framework only what a model would know: the task's right and wrong replies, and how often it errs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from random import Random

import msgspec
from msgspec import Raw

from microagents import Reply
from microagents.replies.data_prompts import prompt_of
from microagents.replies.reply import A
from microagents.systems.questions.questions import (
    Asked,
    Choice,
    Decomposition,
    Labelled,
    ToChoose,
    ToCompose,
    ToDecompose,
    ToSolve,
)
from microagents.tasks.multiplication import Multiplication, Product

ALTERNATIVES = 3
"""Wrong replies of a question, as in the simulated model's profile."""


class MonteCarlo:
    """Solves a problem by the algorithm, with chance alone."""

    def __init__(self, task: Multiplication, k: int, depth: int, seed: int) -> None:
        self._task = task
        self._k = k
        self._depth = depth
        self._random = Random(f"{task!r} {k} {seed}")
        self.calls = 0

    def solves(self) -> bool:
        """Whether the answer is right."""
        return self._task.correct(Product(product=self._solve(self._task.statement(), ())))

    def _solve(self, problem: str, above: tuple[str, ...]) -> int:
        if len(above) < self._depth:
            path = (*above, problem)
            cut = self._elected(
                ToDecompose(problem=problem),
                Decomposition,
                lambda cut: cut.first not in path and cut.second not in path,
            )
            if cut is not None and not cut.is_atomic:
                answers = [self._solve(part, path) for part in (cut.first, cut.second)]
                first, second = (Raw(msgspec.json.encode(Product(product=each))) for each in answers)
                asked = ToCompose(
                    problem=problem,
                    first=cut.first,
                    answer_to_first=first,
                    second=cut.second,
                    answer_to_second=second,
                    compose=cut.compose,
                )
                return self._surely(asked)
        return self._surely(ToSolve(problem=problem))

    def _surely(self, asked: ToSolve | ToCompose) -> int:
        """The elected answer: every answer is valid."""
        elected = self._elected(asked, Product)
        assert elected is not None
        return elected.product

    def _elected(
        self, asked: ToSolve | ToDecompose | ToCompose, kind: type[A], is_valid: Callable[[A], bool] = lambda _: True
    ) -> A | None:
        """The elected candidate; None if no valid one is drawn. A cut that leads back to a problem above is not valid.

        A single valid one of several is not taken before one more is drawn.
        """
        drawn = [each for each in (self._draw(asked, kind) for _ in range(2 * self._k - 1)) if is_valid(each)]
        if len(drawn) == 1 < self._k:
            drawn += filter(is_valid, [self._draw(asked, kind)])
        if not drawn:
            return None
        copies = Counter(msgspec.json.encode(reply) for reply in drawn)
        if len(copies) == 1:
            return drawn[0]
        candidates = list(copies)
        votes: Counter[bytes] = Counter()
        question = ToChoose(
            question=asked,
            candidates=tuple(Labelled(label=str(place), reply=Raw(each)) for place, each in enumerate(candidates)),
        )
        for _ in range(2 * self._k - 1):
            named = candidates[int(self._draw(question, Choice).choice)]
            votes[named] += 1
            if votes[named] == self._k:
                break
        most = max(candidates, key=lambda each: (votes[each], copies[each], -candidates.index(each)))
        return msgspec.json.decode(most, type=kind)

    def _draw(self, asked: Asked, kind: type[A]) -> A:
        self.calls += 1
        rate, right, wrong = _replies(self._task, msgspec.json.encode(asked), kind)
        found = self._random.choice(wrong) if self._random.random() < rate else right
        assert isinstance(found, kind)
        return found


@cache
def _replies(task: Multiplication, asked: bytes, kind: type[Reply]) -> tuple[float, Reply, list[Reply]]:
    """How often the model errs on a question, its right reply, and its wrong ones."""
    prompt = prompt_of("", msgspec.json.decode(asked, type=Asked))
    right = task.expert(prompt, kind)
    wrong = [task.mistake(prompt, right, Random(asked + bytes([number]))) for number in range(ALTERNATIVES)]
    return task.difficulty(prompt, kind), right, wrong
