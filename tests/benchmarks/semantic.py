"""Votes by meaning against exact votes, with a matcher that errs: ``python -m tests.benchmarks.semantic``.

A model is right with rate .6 and words its answer in one of four ways; a wrong answer is one of three, in as many wordings. The lead is
k = 3, the cap 60. Each row is beside a Monte Carlo that does not use the engine. The rates were fixed before the first run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import sqrt
from random import Random
from statistics import fmean, stdev
from typing import Any

import msgspec
from msgspec import Struct

from microagents import Call, Reply, run
from microagents.replies.reply_forms import write
from microagents.roles.matcher import Match, ToMatch
from microagents.systems import Maker
from microagents.systems.questions import Problem
from tests.benchmarks.harness import options_of

RIGHT = 0.6
WRONG = 3
"""Number of different wrong answers."""
WORDINGS = 4
K = 3
CAP = 60
SIGMAS_99 = 2.5758
TRIALS = 20_000
ERRORS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3)


class Said(Reply, frozen=True):
    """An answer in words."""

    answer: str


class Question(Problem[Said]):
    """A question with the right answer m0."""

    number: int = 0

    def statement(self) -> str:
        return f"Question {self.number}?"

    def correct(self, reply: Said) -> bool:
        return reply.answer.startswith("m0 ")


class Outcome(Struct, frozen=True, kw_only=True):
    """How one election ended."""

    right: bool
    samples: int
    matches: int


def said(random: Random) -> str:
    """An answer: its meaning and its wording."""
    meaning = 0 if random.random() < RIGHT else random.randint(1, WRONG)
    return f"m{meaning} w{random.randrange(WORDINGS)}"


def trial(random: Random, error: float | None) -> Outcome:
    """One election without the engine; exact votes without an error rate."""
    group: dict[str, int] = {}
    names: list[str] = []
    counted: list[str] = []
    matches = 0
    for samples in range(1, CAP + 1):
        answer = said(random)
        counted.append(answer)
        if answer not in group:
            alive = [] if error is None else sorted(set(group.values()))
            matches += len(alive)
            same = [each for each in alive if (names[each][:2] == answer[:2]) != (random.random() < (error or 0.0))]
            names.append(answer)
            group[answer] = min(same, default=len(names) - 1)
            for each, of in group.items():
                if of in same:
                    group[each] = min(same)
        votes = [group[each] for each in counted]
        tally = sorted((votes.count(each) for each in set(votes)), reverse=True)
        if tally[0] - (tally[1] if len(tally) > 1 else 0) >= K:
            leader = max(set(votes), key=votes.count)
            return Outcome(right=names[leader].startswith("m0"), samples=samples, matches=matches)
    return Outcome(right=False, samples=CAP, matches=matches)


async def measured(repeat: int, seed: int, error: float | None) -> tuple[list[bool], list[int], float]:
    """The same elections by the engine: for each whether it was right, and its comparisons; and the mean number of samples."""
    matches: dict[int, int] = {}

    async def answer(call: Call) -> str:
        return write(Said(answer=said(Random(f"{seed} {call.id.election.path} {call.id.seq}"))), "json")

    async def match(call: Call) -> str:
        of_input = call.id.election.input
        matches[of_input] = matches.get(of_input, 0) + 1
        one, other = (
            msgspec.json.decode(each, type=Said).answer
            for each in msgspec.json.decode(call.prompt.user, type=ToMatch).replies
        )
        errs = Random(f"{seed} {call.id.election.path}").random() < (error or 0.0)
        return write(Match(same=(one[:2] == other[:2]) != errs), "json")

    semantic = error is not None
    models: dict[str, Any] = {"": answer, "matcher": match} if semantic else {"": answer}
    strategy = Maker(k=K, max_draws=CAP, votes="semantic" if semantic else "exact")
    tasks = [Question(number=number) for number in range(repeat)]
    result = await run(tasks, models=models, strategy=strategy, seed=seed, runs_dir=None)
    right = [value is not None and value["correct"] for value in result.value]
    return right, [matches.get(number, 0) for number in range(repeat)], (result.calls - sum(matches.values())) / repeat


def inside(found: Sequence[float], law: Sequence[float]) -> str:
    """The mean of both, and whether they differ by more than chance."""
    half = SIGMAS_99 * sqrt(stdev(law) ** 2 * (1 / len(found) + 1 / len(law))) + 1e-9
    verdict = "inside" if abs(fmean(found) - fmean(law)) <= half else "OUTSIDE"
    return f"{fmean(found):7.3f} ({fmean(law):.3f} +- {half:.3f}, {verdict})"


def main() -> None:
    """Print a row for exact votes, and one for each error rate of the matcher."""
    options = options_of(__doc__, repeat=500, seed=1)
    for error in (None, *ERRORS):
        law = [trial(Random(f"{error} {number}"), error) for number in range(TRIALS)]
        right, matches, samples = asyncio.run(measured(options.repeat, options.seed, error))
        expected, spread = fmean(each.samples for each in law), stdev([each.samples for each in law])
        half = SIGMAS_99 * spread / sqrt(options.repeat)
        verdict = "inside" if abs(samples - expected) <= half else "OUTSIDE"
        name = "exact" if error is None else f"semantic, matcher wrong {error:.0%}"
        print(
            f"{name:<27} right {inside(right, [each.right for each in law])}  "
            f"samples {samples:6.2f} ({expected:.2f} +- {half:.2f}, {verdict})"
            + ("" if error is None else f"  comparisons {inside(matches, [each.matches for each in law])}")
        )


if __name__ == "__main__":
    main()
