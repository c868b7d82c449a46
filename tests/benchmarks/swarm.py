"""The swarm on relays of 40 steps: ``python -m tests.benchmarks.swarm``.

Steps carried right, success, worker and judge calls a step, with and without compression, verification and escalation, each beside a
Monte Carlo that does not use the engine (`swarm_monte_carlo`). The rates of the model are those of `tests.papers.relay`, fixed before
the first run.

Then the two experiments of the document on the swarm, without verification: 3 workers beside 6, and workers of one persona, which differ by
temperature alone, beside workers of six. There a persona finds a fifth of the steps hard, and errs at nine of ten of these in one way.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from random import Random
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from msgspec import Struct, structs

from microagents import run
from microagents.journal.sharded import reader_of
from microagents.runs.inspection.runs import solution_of
from microagents.systems.swarm.notes import StepRecord, SwarmRecord
from microagents.systems.swarm.steps import StepResult
from microagents.systems.swarm.swarm import Swarm
from tests.benchmarks.harness import options_of
from tests.benchmarks.swarm_monte_carlo import Rates, Settings, swarmed
from tests.papers import relay
from tests.papers.relay import Relay

RATES = Rates(
    worker=relay.WORKER_ERROR,
    plan=relay.PLAN_ERROR,
    judge=relay.JUDGE_ERROR,
    verifier=relay.VERIFIER_ERROR,
    drop=relay.DROP_RATE,
    assembly=relay.ASSEMBLY_ERROR,
)
MODEL = "sim:perfect@flag=0"
ROWS: dict[str, dict[str, Any]] = {
    "whole swarm": {},
    "without escalation": {"workers": (2,)},
    "without verification": {"verify": False},
    "without compression": {"compress": False},
}
HARD = structs.replace(RATES, hard=0.2, hard_error=0.9)
BY_TEMPERATURE = {"personas": "worker: You do the step."}
EXPERIMENTS: dict[str, dict[str, Any]] = {
    f"{workers} workers, by {what}": {"workers": (workers,), "verify": False, **own}
    for what, own in (("temperature", BY_TEMPERATURE), ("role", dict[str, str]()))
    for workers in (3, 6)
}
SIGMAS_99 = 2.5758
TRIALS = 4_000


class Row(Struct, frozen=True, kw_only=True):
    """What is compared, a list with one value an input."""

    carried: list[float]
    """Share of the steps of the first loop whose numbers are right."""
    correct: list[float]
    workers: list[float]
    """Worker samples a turn of a step of the first loop."""
    judged: list[float]
    """Judge calls a turn."""


def needs(task: Relay) -> list[tuple[int, int | None]]:
    """What each step adds, and the step whose result it needs."""
    found = []
    for step in task.steps:
        more, before = re.findall(r"Add (\d+) to .*?(?:step (\d+)|number \d+)\.", step)[0]
        found.append((int(more), int(before) if before else None))
    return found


def expected(tasks: list[Relay], options: dict[str, Any], trials: int, rates: Rates) -> Row:
    """The Monte Carlo's row."""
    random, settings = Random(f"{options}"), Settings(**options | ({"personas": 1} if "personas" in options else {}))
    done = [
        (task, swarmed(needs(task), rates, settings, random))
        for task in tasks
        for _ in range(max(1, trials // len(tasks)))
    ]
    return Row(
        carried=[trial.carried / task.length for task, trial in done],
        correct=[float(trial.correct) for _, trial in done],
        workers=[trial.workers / task.length for task, trial in done],
        judged=[trial.judged / task.length for task, trial in done],
    )


async def measured(
    tasks: list[Relay], options: dict[str, Any], seed: int, rates: Rates, model: str | None = None, **control: Any
) -> Row:
    """The engine's row."""
    with TemporaryDirectory() as folder:
        models: Any = (
            {"": MODEL, "worker": f"{MODEL},hard={rates.hard},hard_error={rates.hard_error}"}
            if model is None
            else model
        )
        result = await run(
            tasks, models=models, strategy=Swarm(**options), seed=seed, runs_dir=folder, run_id="swarm", **control
        )
        with reader_of(Path(folder), "swarm") as reader:
            works = [solution_of(reader, number) for number in range(len(tasks))]
    assert all(isinstance(work, SwarmRecord) for work in works)
    steps = [work.loops[0].steps for work in works if isinstance(work, SwarmRecord)]
    return Row(
        carried=[_carried(task, each) for task, each in zip(tasks, steps, strict=True)],
        correct=[float(value is not None and value["correct"]) for value in result.value],
        workers=[
            sum(turn.workers for step in each for turn in step.turns) / task.length
            for task, each in zip(tasks, steps, strict=True)
        ],
        judged=[
            sum(turn.judged for step in each for turn in step.turns) / task.length
            for task, each in zip(tasks, steps, strict=True)
        ],
    )


def _carried(task: Relay, steps: Sequence[StepRecord]) -> float:
    right = 0
    for step, result in zip(steps, task.right_results(), strict=False):
        picked = next((turn.picked for turn in reversed(step.turns) if turn.picked is not None), None)
        right += (
            picked is not None and msgspec.json.decode(picked, type=StepResult).result == f"r{step.number} = {result}"
        )
    return right / task.length


def compare(name: str, found: Row, law: Row) -> bool:
    """Print one row; returns whether all of it is inside the interval."""
    inside = True
    print(name)
    for field in Row.__struct_fields__:
        ours, theirs = getattr(found, field), getattr(law, field)
        mean, sigma = fmean(theirs), stdev(theirs)
        half = SIGMAS_99 * sigma * sqrt(1 / len(ours) + 1 / len(theirs)) + 1e-9
        is_inside = abs(fmean(ours) - mean) <= half
        inside = inside and is_inside
        print(
            f"  {field:<8} {fmean(ours):7.3f}   Monte Carlo {mean:7.3f} +- {half:.3f}   {'inside' if is_inside else 'OUTSIDE'}"
        )
    return inside


def main() -> None:
    """Print the table."""
    options = options_of(__doc__, repeat=200, length=40, seed=1)
    tasks = [Relay(length=options.length, instance=number) for number in range(options.repeat)]
    print(f"{options.repeat} relays of {options.length} steps, seed {options.seed}; {RATES}; intervals of 99 %")
    inside = True
    for rates, rows in ((RATES, ROWS), (HARD, EXPERIMENTS)):
        for name, own in rows.items():
            inside &= compare(
                name, asyncio.run(measured(tasks, own, options.seed, rates)), expected(tasks, own, TRIALS, rates)
            )
    raise SystemExit(not inside)


if __name__ == "__main__":
    main()
