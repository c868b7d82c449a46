"""Chains with slow models, in virtual time: ``python -m tests.benchmarks.speculation [--part guesses|hedges|hangs]``.

The same chain on a simulated model with log-normal latency (sigma 0.5), several ways in one run. Durations are virtual. Ways that differ in
time only take the same decisions, which is checked.

- guesses: voting (k = 3) with guesses, against no votes (k = 1) and against voting step by step.
- hedges: voting with guesses and 0, 1, 2 and 5 more calls in flight at each step, against no votes.
- hangs: one call in 200 hangs for two minutes; with and without replacing stragglers, against a model without hangs.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator
from statistics import median

import structlog

from microagents import Result, run
from microagents.runtimes.virtual import run_virtual
from microagents.systems import Maker
from microagents.tasks.drift import Drift
from tests.benchmarks.harness import options_of

MODEL = "sim:perfect@error={error},latency=1.0,sigma=0.5"
Figures = Iterator[tuple[str, float]]


def timed(steps: int, model: str, strategy: Maker, seed: int, *, resend: bool = True) -> tuple[float, Result]:
    """The virtual duration of a run in seconds, and its result."""

    async def running() -> tuple[float, Result]:
        result = await run(
            Drift(length=steps), models=model, strategy=strategy, seed=seed, runs_dir=None, resend_stragglers=resend
        )
        return asyncio.get_running_loop().time(), result

    return run_virtual(running())


def check_same(*results: Result) -> None:
    """Check that runs took the same decisions."""
    assert len({result.account.decisions_sha256 for result in results}) == 1


def guesses(steps: int, seed: int) -> Figures:
    """What guessing ahead saves and wastes."""
    for error in (0.0022, 0.0045):
        model = MODEL.format(error=error)
        unvoted_s, _ = timed(steps, model, Maker(k=1, speculate=False), seed)
        voted_s, voted = timed(steps, model, Maker(speculate=False), seed)
        ahead_s, ahead = timed(steps, model, Maker(), seed)
        check_same(voted, ahead)
        yield f"p = {1 - error:.4f}: time / unvoted chain", ahead_s / unvoted_s
        yield f"p = {1 - error:.4f}: time / step by step", ahead_s / voted_s
        yield f"p = {1 - error:.4f}: wasted calls", ahead.account.wasted_calls / ahead.calls


def hedges(steps: int, seed: int) -> Figures:
    """What more calls at each step save."""
    model = MODEL.format(error=0.0022)
    unvoted_s, _ = timed(steps, model, Maker(k=1, speculate=False), seed)
    _, plain = timed(steps, model, Maker(), seed)
    for number in (0, 1, 2, 5):
        hedged_s, hedged = timed(steps, model, Maker(hedge=number), seed)
        check_same(plain, hedged)
        yield f"hedge = {number}: time / unvoted chain", hedged_s / unvoted_s
        yield f"hedge = {number}: calls / without", hedged.calls / plain.calls


def hangs(steps: int, seed: int) -> Figures:
    """What replacing stragglers saves."""
    model = MODEL.format(error=0.0022)
    for name, strategy in (
        ("guessing ahead", Maker()),
        ("step by step", Maker(speculate=False)),
        ("unvoted", Maker(k=1, speculate=False)),
    ):
        without_s, _ = timed(steps, model, strategy, seed)
        with_s, with_ = timed(steps, f"{model},hang=0.005", strategy, seed)
        patient_s, patient = timed(steps, f"{model},hang=0.005", strategy, seed, resend=False)
        check_same(with_, patient)
        yield f"{name}: time / without hangs", with_s / without_s
        yield f"{name}: with --no-resend-stragglers", patient_s / without_s


PARTS = {"guesses": guesses, "hedges": hedges, "hangs": hangs}


def main() -> None:
    """Print medians, least and most over the seeds."""
    options = options_of(__doc__, part="guesses", steps=20_000, seeds=20)
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR)
    )  # a hang is logged each time
    figures: dict[str, list[float]] = defaultdict(list)
    for seed in range(options.seeds):
        for name, value in PARTS[options.part](options.steps, seed):
            figures[name].append(value)
    print(f"{options.steps:,} steps, {options.seeds} seeds")
    for name, values in figures.items():
        print(f"  {name:<34} median {median(values):.4f}  min {min(values):.4f}  max {max(values):.4f}")


if __name__ == "__main__":
    main()
