"""Atom of Thoughts and its baselines, written anew without the engine: only coins, and questions of which nothing is known but their steps.

A question is a list of layers of steps. A right answer is 0, and every wrong one a number of its own; a question whose contraction went
wrong has a wrong number as its right answer. An answer that is drawn again is wrong in the same way each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count
from math import exp
from random import Random
from typing import Any, Literal

from msgspec import Struct

Wrong = Any
"""An answer: 0 if it is right. A wrong one names the question and the slip that led to it, which lead to it each time."""
Question = tuple[tuple[int, ...], Wrong]
"""The steps in its layers, and the right answer to it, which is wrong where the contraction was."""
Without = Literal["nothing", "decomposition", "guidance"]


class Rates(Struct, frozen=True, kw_only=True):
    """The error rates of the model, as the task states them."""

    answer: tuple[float, float]
    followed: float
    trace: float
    contraction: float
    unguided: float
    critique: float
    judge: float


class MonteCarlo:
    """One model, and questions of 2 to 5 layers of one or two steps, the last of one."""

    def __init__(self, rates: Rates, seed: str) -> None:
        self._rates = rates
        self._random = Random(seed)
        self._wrong = count(1)

    def layers(self) -> list[int]:
        """The numbers of steps in the layers of a random question."""
        depth = self._random.randint(2, 5)
        return [*(self._random.randint(1, 2) for _ in range(depth - 1)), 1]

    def chain(self, transitions: int, without: Without, *, writes: bool = False) -> tuple[bool, int, int]:
        """One question: whether it is solved, the accepted transitions, and those of them whose question has another answer."""
        layers, truth, accepted, strayed = self.layers(), 0, 0, 0
        steps_at_first = sum(layers)
        answer = self._answer(sum(layers), truth)
        for _ in range(transitions):
            steps = sum(layers)
            if without != "decomposition" and steps == 1:
                break
            following, next_truth = self._contracted(layers, truth, without)
            if not following:
                break
            candidates = [self._answer(sum(following), next_truth), answer]
            if without != "decomposition":
                candidates.append(
                    truth if self._random.random() < (1 - self._rates.followed) ** steps else next(self._wrong)
                )
            chosen = self._written(candidates, steps_at_first) if writes else self._judged(candidates)
            if chosen != candidates[0]:
                return chosen == 0, accepted, strayed
            layers, truth, answer, accepted, strayed = (
                following,
                next_truth,
                chosen,
                accepted + 1,
                strayed + (next_truth != 0),
            )
        return answer == 0, accepted, strayed

    def tree(self, branches: int, transitions: int) -> bool:
        """One question by a tree of transitions, each of which is walked by itself, and a vote of all leaves: whether it is solved."""
        question: Question = (tuple(self.layers()), 0)
        level, leaves = [(question, self._drawn(question))], list[Wrong]()
        for _ in range(transitions):
            following = []
            for state, answer in (each for each in level for _ in range(branches)):
                contracted, candidates = self._tried(state, answer)
                chosen = self._chosen(candidates)
                if contracted is None or chosen != candidates[0]:
                    leaves.append(chosen)
                else:
                    following.append((contracted, chosen))
            level = following
        leaves += [answer for _, answer in level]
        leader, _ = Counter(leaves).most_common(1)[0]
        return bool(leader == 0)

    def _drawn(self, question: Question) -> Wrong:
        layers, truth = question
        return (question, "answer") if self._random.random() < self._error(sum(layers)) else truth

    def _tried(self, state: Question, answer: Wrong) -> tuple[Question | None, list[Wrong]]:
        """The next question, and the answers among which the judge picks: the next one's comes first."""
        (first, *rest), truth = state
        if not rest:
            return None, [answer]
        slips = self._random.random() < self._rates.trace, self._random.random() < self._rates.contraction
        contracted: Question = (tuple(rest), (state, *slips) if any(slips) else truth)
        follows = self._random.random() < (1 - self._rates.followed) ** (first + sum(rest))
        return contracted, [self._drawn(contracted), truth if follows else (state, "followed"), answer]

    def _chosen(self, candidates: list[Any], worth: Callable[[Any], Any] = lambda each: each != 0) -> Any:
        """The judge's pick: the right candidate, or by mistake one of the others. Asked the same it errs in the same way."""
        distinct = sorted(set(candidates), key=repr)
        random = Random(repr(distinct))
        random.shuffle(distinct)
        best = min(distinct, key=worth)
        others = [each for each in distinct if each != best]
        return random.choice(others) if others and self._random.random() < self._rates.judge else best

    def most_frequent(self, samples: int) -> bool:
        """One question by the most frequent of many answers: whether it is solved."""
        rate = self._error(sum(self.layers()))
        drawn = Counter(int(self._random.random() < rate) for _ in range(samples))
        return drawn.most_common(1)[0][0] == 0

    def refined(self, rounds: int) -> bool:
        """One question by an answer that is criticized and revised: whether it is solved."""
        steps = sum(self.layers())
        answer = self._answer(steps, 0)
        for _ in range(rounds):
            if (answer != 0) == (self._random.random() < self._rates.critique):
                break
            answer = self._answer(steps, 0)
        return answer == 0

    def _error(self, steps: int) -> float:
        a, b = self._rates.answer
        return 1 - exp(-a * steps**b)

    def _answer(self, steps: int, truth: int) -> int:
        return next(self._wrong) if self._random.random() < self._error(steps) else truth

    def _contracted(self, layers: list[int], truth: int, without: Without) -> tuple[list[int], int]:
        """The layers that are left, and the right answer to what is left."""
        if without == "nothing":
            went_wrong = self._random.random() < self._rates.trace or self._random.random() < self._rates.contraction
            left = layers[1:]
        else:
            traced = without == "guidance" and self._random.random() < self._rates.trace / layers[0]
            went_wrong = traced or self._random.random() < self._rates.unguided
            left = [layers[0] - 1, *layers[1:]] if without == "guidance" and layers[0] > 1 else layers[1:]
        return left, next(self._wrong) if went_wrong else truth

    def _written(self, candidates: list[int], steps: int) -> int:
        """The answer of a judge that writes: where none is right it solves the question itself."""
        if len(set(candidates)) == 1:
            return candidates[0]
        rate = self._rates.judge if 0 in candidates else self._error(steps)
        return next(self._wrong) if self._random.random() < rate else 0

    def _judged(self, candidates: list[int]) -> int:
        distinct = list(dict.fromkeys(candidates))
        if len(distinct) == 1:
            return distinct[0]
        if 0 in distinct and self._random.random() >= self._rates.judge:
            return 0
        return self._random.choice([each for each in distinct if each != 0])
