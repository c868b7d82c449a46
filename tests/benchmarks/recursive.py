"""Recursive decomposition in figures: ``python -m tests.benchmarks.recursive``.

Solve rates over k (the picture of MAKER's figure 12) beside single calls and a Monte Carlo of the algorithm, and calls. The model is
simulated, its error rates are those of `microagents.tasks.multiplication`: this measures the plumbing, not a model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import comb
from statistics import mean, median
from typing import Any

from microagents import Result, run
from microagents.elections.laws import wilson_interval
from microagents.systems.questions.recursive import Recursive
from microagents.tasks.multiplication import Multiplication
from tests.benchmarks.algorithm4 import MonteCarlo
from tests.benchmarks.harness import options_of

MODEL = "sim:perfect"
"""Without flags and with the task's error rates, so that the Monte Carlo is as short as the algorithm."""
KS = (1, 2, 3, 5)
EXPECTED = 8000
"""Problems of the Monte Carlo at k = 1, where the rate is smallest; 1/k as many at another k. It has less noise than the engine's rate."""
FULL_TREE = (470, 564)
"""Calls of algorithm 4 at k = 2 and depth 5, where all of its 94 turns are held: three candidates, and two or three ballots."""
SURE = 0.99


async def solved(
    problems: Sequence[Multiplication], strategy: str | Recursive, seed: int, model: str = MODEL, **control: Any
) -> tuple[int, Result]:
    """How many are solved, and the run."""
    result = await run(list(problems), models=model, strategy=strategy, seed=seed, runs_dir=None, **control)
    return sum(value is not None and value["correct"] for value in result.value), result


def expected_range(trials: int, rate: float) -> tuple[int, int]:
    """Successes that so many trials have with probability `SURE` at least, half of the rest on each side."""
    chances = [comb(trials, each) * rate**each * (1 - rate) ** (trials - each) for each in range(trials + 1)]
    low = next(each for each in range(trials + 1) if sum(chances[: each + 1]) > (1 - SURE) / 2)
    high = next(each for each in range(trials, -1, -1) if sum(chances[each:]) > (1 - SURE) / 2)
    return low, high


async def rates(problems: int, seed: int) -> None:
    """The picture of figure 12."""
    print(
        f"{problems} problems each; Monte Carlo of {EXPECTED} / k problems, and the range of {SURE:.0%} of samples at its rate"
    )
    for digits in (5, 6):
        tasks = [Multiplication(digits=digits, instance=instance) for instance in range(problems)]
        for k in (0, *KS):
            right, result = await solved(tasks, Recursive(k=k) if k else "single-shot", seed)
            low, high = wilson_interval(right, problems, 0.95)
            print(
                f"{digits}x{digits} {f'k = {k}' if k else 'single':<6}  {right / problems:.3f} ({low:.3f} to {high:.3f})",
                end="",
            )
            print(f"  {result.calls / problems:>6.1f} calls a problem", end="")
            if k:
                chances = [
                    MonteCarlo(Multiplication(digits=digits, instance=problems + each), k, 5, seed)
                    for each in range(EXPECTED // k)
                ]
                rate = mean(each.solves() for each in chances)
                least, most = expected_range(
                    problems, (rate * len(chances) + 1) / (len(chances) + 2)
                )  # Laplace's rule: never 0 or 1
                inside = "inside" if least <= right <= most else "OUTSIDE"
                print(
                    f"  Monte Carlo {rate:.3f}, {mean(each.calls for each in chances):>6.1f} calls: {least / problems:.3f} to ",
                    end="",
                )
                print(f"{most / problems:.3f}, {inside}", end="")
            print(flush=True)


async def calls(problems: int, seed: int) -> None:
    """Calls of problems at k = 2 and depth 5, one by one."""
    for digits in (5, 6, 32):
        tasks = [Multiplication(digits=digits, instance=instance) for instance in range(problems)]
        each = [(await solved([task], Recursive(k=2, depth=5), seed))[1] for task in tasks]
        counted, turns = [result.calls for result in each], [result.account.steps for result in each]
        print(
            f"{digits}x{digits} digits, k = 2, depth 5: {median(turns):.0f} problems in the tree (63 in a full one), calls median ",
            end="",
        )
        print(
            f"{median(counted):.0f}, least {min(counted)}, most {max(counted)}; the algorithm takes {FULL_TREE[0]} to {FULL_TREE[1]}",
            flush=True,
        )


def main() -> None:
    """Print both tables."""
    options = options_of(__doc__, problems=1000, seed=0)
    asyncio.run(rates(options.problems, options.seed))
    asyncio.run(calls(max(1, options.problems // 50), options.seed))


if __name__ == "__main__":
    main()
