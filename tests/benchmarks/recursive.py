"""Recursive decomposition in figures: ``python -m tests.benchmarks.recursive``.

Solve rates over k (the picture of MAKER's figure 12) beside single calls and a Monte Carlo of the algorithm; calls; how long a problem
takes in virtual time beside its critical path; digests over seeds of the virtual loop, and over kills. The model is simulated, its error
rates are those of `microagents.tasks.multiplication`: this measures the plumbing, not a model.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from functools import cache
from math import comb
from statistics import mean, median
from typing import Any

import msgspec

from microagents import Deployment, Result, run
from microagents.elections.election import Ballot
from microagents.elections.laws import wilson_interval
from microagents.journal.messages import Recalled
from microagents.runtimes.virtual import run_virtual
from microagents.systems.questions.recursive import Recursive
from microagents.tasks.multiplication import Multiplication
from tests.benchmarks.algorithm4 import MonteCarlo
from tests.benchmarks.kills import kill
from tests.benchmarks.timed_solver import TimedSolver, digests_of, timed_run, with_times

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


class Timed(Recursive):
    """The strategy with such a solver."""

    def deployments(self) -> list[Deployment]:
        return with_times(super().deployments())


class CriticalPath:
    """The least time that a problem can take with unlimited concurrency: turns that need each other, one after the other."""

    def __init__(self, rows: dict[str, Recalled], took_s: dict[tuple[str, int], float], k: int) -> None:
        self._rows = rows
        self._took_s = took_s
        self._k = k

    def of(self, at: str) -> float:
        """Seconds from the problem at a place to its answer."""
        if f"{at}/compose" not in self._rows:
            return self._turn(f"{at}/decompose") + self._turn(f"{at}/answer")
        return self._turn(f"{at}/decompose") + max(self.of(f"{at}/1"), self.of(f"{at}/2")) + self._turn(f"{at}/compose")

    def _turn(self, path: str) -> float:
        """All candidates at once, then ballots: at first as many as may decide, then one for each that did not."""
        row = self._rows.get(path)
        if row is None:
            return 0.0
        proposed_s = max(self._took_s[path, ballot.seq] for ballot in row.ballots)
        vote = self._rows.get(f"{path}/vote")
        return proposed_s if vote is None else proposed_s + self._vote(f"{path}/vote", vote)

    def _vote(self, path: str, vote: Recalled) -> float:
        launched_s = [0.0] * self._k
        counts: dict[bytes, int] = {}
        counted_s = 0.0
        for ballot in vote.ballots:
            assert isinstance(ballot, Ballot)
            counted_s = max(counted_s, launched_s[ballot.seq] + self._took_s[path, ballot.seq])
            counts[ballot.value] = counts.get(ballot.value, 0) + 1
            needed = min(self._k - max(counts.values()), 2 * self._k - 1 - ballot.seq - 1)
            launched_s += [counted_s] * (ballot.seq + 1 + needed - len(launched_s))
        return counted_s


async def timed(task: Multiplication, k: int, seed: int) -> tuple[float, float]:
    """The virtual duration of a run, and its critical path, in seconds."""
    took_s, rows = await timed_run(task, models=f"{MODEL}@latency=1.0,sigma=0.5", strategy=Timed(k=k), seed=seed)
    return took_s, CriticalPath(rows, TimedSolver.took_s, k).of("0/solve")


def durations(problems: int, seed: int) -> None:
    """Durations beside critical paths."""
    for k in (2, 5):
        ratios = []
        for instance in range(problems):
            took_s, ideal_s = run_virtual(timed(Multiplication(digits=5, instance=instance), k, seed))
            ratios.append(took_s / ideal_s)
        print(
            f"5x5, k = {k}, {problems} problems: virtual duration / critical path median {median(ratios):.4f}, most {max(ratios):.4f}",
            flush=True,
        )


@cache
def _undisturbed(seed: int) -> tuple[str, str]:
    return digests_of(asyncio.run(run(Multiplication(digits=5), models=MODEL, k=2, seed=seed, runs_dir=None)))


def orders(seeds: int, seed: int) -> None:
    """Digests over orders of events."""
    found = {
        digests_of(
            run_virtual(
                run(Multiplication(digits=5), models=MODEL, k=2, seed=seed, runs_dir=None, runtime=runtime), seed=each
            )
        )
        for each in range(seeds)
        for runtime in ("local", "linked")
    }
    assert found == {_undisturbed(seed)}, json.dumps(msgspec.to_builtins(found))
    print(
        f"{seeds} seeds of the virtual loop, on one dispatcher and on two: digests as on the ordinary loop", flush=True
    )
    on_ray = asyncio.run(run(Multiplication(digits=5), models=MODEL, k=2, seed=seed, runs_dir=None, runtime="ray"))
    assert digests_of(on_ray) == _undisturbed(seed)
    print("the same on Ray, a process for each role", flush=True)


def main() -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=1000, help="of each size at each k (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=200, help="of the virtual loop (default: %(default)s)")
    parser.add_argument("--kills", type=int, default=30, help="(default: %(default)s)")
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="of the simulated model, of the Monte Carlo and of the kills (default: %(default)s)",
    )
    options = parser.parse_args()
    asyncio.run(rates(options.problems, options.seed))
    asyncio.run(calls(max(1, options.problems // 50), options.seed))
    durations(max(1, options.problems // 50), options.seed)
    orders(options.seeds, options.seed)
    kill(options.kills, options.seed, ("multiplication",))


if __name__ == "__main__":
    main()
