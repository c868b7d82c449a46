"""What guessing ahead saves and wastes, in virtual time: ``python -m tests.benchmarks.speculation``.

The same chain on a simulated model with log-normal latency (sigma 0.5), three ways in one run: without votes (k = 1), voting step by step
(k = 3), and voting with guesses. Durations are virtual; decisions of the two that vote are the same, which is checked.
"""

from __future__ import annotations

import argparse
import asyncio
from statistics import median

from microagents import Result, run
from microagents.runtimes.testing.virtual import run_virtual
from microagents.tasks.drift import Drift


async def timed(task: Drift, model: str, *, k: int, seed: int, speculate: bool) -> tuple[float, Result]:
    """The virtual duration of a run in seconds, and its result."""
    result = await run(task, models=model, k=k, seed=seed, speculate=speculate, runs_dir=None)
    return asyncio.get_running_loop().time(), result


def main() -> None:
    """Print the ratios of durations and the share of wasted calls: medians, least and most."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    task = Drift(length=options.steps)
    for error in (0.0022, 0.0045):
        model = f"sim:perfect@error={error},latency=1.0,sigma=0.5"
        to_unvoted, to_voted, wasted = [], [], []
        for seed in range(options.seeds):
            unvoted_s, _ = run_virtual(timed(task, model, k=1, seed=seed, speculate=False))
            voted_s, voted = run_virtual(timed(task, model, k=3, seed=seed, speculate=False))
            ahead_s, ahead = run_virtual(timed(task, model, k=3, seed=seed, speculate=True))
            assert ahead.account.decisions_sha256 == voted.account.decisions_sha256
            to_unvoted.append(ahead_s / unvoted_s)
            to_voted.append(ahead_s / voted_s)
            wasted.append(ahead.account.wasted_calls / ahead.calls)
        print(f"p = {1 - error:.4f}, {options.steps:,} steps, {options.seeds} seeds")
        for name, values in (("time / unvoted chain", to_unvoted), ("time / step by step", to_voted), ("wasted calls", wasted)):
            print(f"  {name:<22} median {median(values):.4f}  min {min(values):.4f}  max {max(values):.4f}")


if __name__ == "__main__":
    main()
