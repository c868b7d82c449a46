"""The swarm on a relay of steps, written anew without the engine: only coins, and which facts a prompt shows.

A reply is 0 if it is right, else the number of one of a few equally likely wrong ones of its persona.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from msgspec import Struct

ALTERNATIVES = 3
"""Number of different wrong replies to a question, as in the simulated model."""


class Rates(Struct, frozen=True, kw_only=True):
    """The error rates of the model, by role."""

    worker: float
    plan: float
    judge: float
    verifier: float
    drop: float
    assembly: float
    hard: float = 0.0
    """Share of steps that a persona finds hard: each time it is asked it gives the same wrong reply at the rate ``hard_error``."""
    hard_error: float = 0.0


class Settings(Struct, frozen=True, kw_only=True):
    """The settings of the swarm."""

    workers: tuple[int, ...] = (2, 3, 5)
    retries: int = 2
    recent: int = 5
    compress: bool = True
    verify: bool = True
    loops: int = 3
    personas: int = 6
    """Number of different personas. Workers of one persona are asked the same, and differ by temperature alone."""


class Trial(Struct, kw_only=True):
    """One run."""

    carried: int = 0
    """Number of steps of the first loop whose number is the right one."""
    correct: bool = False
    workers: int = 0
    """Number of worker samples at the steps of the first loop."""
    judged: int = 0
    """Number of judge calls there."""


def swarmed(steps: Sequence[tuple[int, int | None]], rates: Rates, settings: Settings, random: Random) -> Trial:
    """One run.

    Args:
        steps: for each step what it adds, and the number of the step whose result it needs (from 1); None for the first.
        rates: the error rates.
        settings: the settings.
        random: the coins.
    """
    trial = Trial()
    answers: list[tuple[bool | None, int]] = []
    for loop in range(settings.loops):
        right, passed, unverified = _loop(steps, rates, settings, random, trial, is_first=loop == 0)
        answers.append((right, unverified))
        if passed:
            trial.correct = bool(right)
            return trial
    trial.correct = bool(min(answers, key=lambda each: (each[0] is None, each[1]))[0])
    return trial


def _loop(
    steps: Sequence[tuple[int, int | None]],
    rates: Rates,
    settings: Settings,
    random: Random,
    trial: Trial,
    *,
    is_first: bool,
) -> tuple[bool | None, bool, int]:
    """Whether the answer is right (None: there is none), whether it passed, and the number of steps that did not pass."""
    plan, _, _ = _turn(settings, rates, random, rate=rates.plan, is_given=True, personas=[False])
    count = len(steps) if plan == 0 else len(steps) - 1
    truths: dict[int, bool] = {}
    """Whether the number of a finished step is the right one."""
    summary: list[int] = []
    unverified = 0
    for number in range(1, count + 1):
        left_out = number - 1 - settings.recent
        if settings.compress and left_out > 0:
            summary.append(left_out)
            if random.random() < rates.drop:
                summary.remove(random.choice(summary))
        needs = steps[number - 1][1]
        is_given = needs is None or needs > left_out or needs in summary
        last: int | None = None
        passed = False
        hard = _hard(settings, rates, random)
        for _ in range(1 + settings.retries):
            picked, workers, judged = _turn(
                settings, rates, random, rate=rates.worker, is_given=is_given, personas=hard
            )
            if is_first:
                trial.workers += workers
                trial.judged += judged
            if picked is None:
                continue
            last = picked
            passed = not settings.verify or (picked == 0 and is_given) != (random.random() < rates.verifier)
            if passed:
                break
            hard = _hard(
                settings, rates, random
            )  # with the rejected result it is another question; without a result it is the same
        if last is None:  # no worker gave a valid result: the loop ends
            return None, False, unverified
        unverified += not passed
        truths[number] = last == 0 and is_given and (needs is None or truths[needs])
        if is_first:
            trial.carried += truths[number]
    whole, _, _ = _turn(
        settings, rates, random, rate=rates.assembly, is_given=True, personas=[False] * settings.personas
    )
    right = plan == 0 and whole == 0 and truths[count]
    return right, not settings.verify or right != (random.random() < rates.verifier), unverified


def _hard(settings: Settings, rates: Rates, random: Random) -> list[bool]:
    """For each persona, whether it finds a question hard."""
    return [random.random() < rates.hard for _ in range(settings.personas)]


def _turn(
    settings: Settings, rates: Rates, random: Random, *, rate: float, is_given: bool, personas: Sequence[bool]
) -> tuple[int | None, int, int]:
    """The picked reply, None where none is valid; and the numbers of worker samples and of judge calls.

    ``personas`` tells for each whether it finds the step hard. Without the result that a step needs, right workers say that they are unsure
    and are discarded; wrong ones guess.
    """
    copies: Counter[int] = Counter()
    drawn = judged = 0
    for size in settings.workers:
        for worker in range(drawn, size):
            persona = worker % len(personas)
            is_hard = personas[persona]
            wrong = ALTERNATIVES * persona + (1 if is_hard else random.randint(1, ALTERNATIVES))
            reply = wrong if random.random() < (rates.hard_error if is_hard else rate) else 0
            if reply or is_given:
                copies[reply] += 1
        drawn = size
        candidates, is_last = sorted(copies), size == settings.workers[-1]
        if len(candidates) == 1 and (copies.total() > 1 or size == 1):
            return candidates[0], drawn, judged
        if not candidates or (len(candidates) == 1 and is_last):
            continue
        judged += 1
        choices: list[int | None] = [*candidates] if is_last else [*candidates, None]
        # Without the right one among them the best is to ask for more, or, where that cannot be, any of them.
        best = 0 if copies[0] else random.choice(candidates) if is_last else None
        others = [each for each in choices if each != best]
        chosen = random.choice(others) if others and random.random() < rates.judge else best
        if chosen is not None:
            return chosen, drawn, judged
    return (next(iter(copies)) if copies else None), drawn, judged
