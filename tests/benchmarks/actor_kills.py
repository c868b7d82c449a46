"""Every system with each role in an actor of its own, and actors killed at random: ``python -m tests.benchmarks.actor_kills [--kills 70]``.

A run ends with the decisions, ballots and outcome of an undisturbed one, whichever roles die, and however many at once. The systems are
those of `tests.baseline`, with a model that takes a while.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import chdir
from random import Random
from typing import Any

from microagents import Result, Task, run
from microagents.runs.strategies import strategy_of
from microagents.runtimes.ray import actor_group
from tests.baseline import SYSTEMS
from tests.benchmarks.harness import options_of
from tests.runtimes.ray.ray_processes import actors_of, kill

LATENCY = "latency=0.12"
"""Seconds of a reply: long enough that kills hit work."""
MOST_OF_A_RUN = 5
AT_ONCE = 0.3
"""Share of kills that take two actors."""
PAUSE_S = (0.1, 1.2)
WAIT_S = 150.0


def slowed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a system with models that take a while."""
    models = (given["models"],) if isinstance(given["models"], str) else given["models"]
    slower = tuple([f"{each}{',' if '@' in each else '@'}{LATENCY}" for each in models])
    return {**given, "models": slower}


async def disturbed(task: Any, given: Mapping[str, Any], random: Random, folder: str) -> tuple[Result, int]:
    """Run a system on Ray while actors are killed; returns its result and the number of kills."""
    begun, killed = asyncio.Event(), 0

    async def kill_now_and_then() -> None:
        nonlocal killed
        await begun.wait()
        while killed < MOST_OF_A_RUN:
            await asyncio.sleep(random.uniform(*PAUSE_S))
            there = await asyncio.to_thread(actors_of, os.getpid())
            for each in random.sample(there, min(len(there), 1 + (random.random() < AT_ONCE))):
                kill(each)
                killed += 1

    killing = asyncio.create_task(kill_now_and_then())
    try:
        async with asyncio.timeout(WAIT_S):
            result = await run(
                task,
                runtime="ray",
                runs_dir=folder,
                run_id=f"kills-{random.randrange(10**9)}",
                seed=1,
                on_progress=lambda account: begun.set() if account.calls else None,
                **given,
            )
    finally:
        killing.cancel()
    return result, killed


def digests(result: Result) -> tuple[str, str, str]:
    """What a run has decided."""
    return result.outcome, result.account.decisions_sha256, result.account.ballots_sha256


def roles_apart(task: Task | Sequence[Task], given: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Return the deployment of each role of a system in an actor of its own, and of its conductor in two."""
    first = task if isinstance(task, Task) else task[0]
    strategy = strategy_of(given.get("strategy"), first, {name: given[name] for name in ("k",) if name in given})
    movable = [each.role.__name__.lower() for each in strategy.deployments() if not each.in_driver]
    conductor = strategy.conductor.__name__.lower()
    return {**{name: {"num_replicas": 1} for name in movable}, conductor: {"num_replicas": 2}}


def main() -> None:
    """Run all systems in turn until there are enough kills."""
    options = options_of(__doc__, kills=70, seed=0, only="")
    actor_group.MAX_DEATHS = 1000  # kills are many here
    random, killed, runs, others = Random(options.seed), 0, 0, 0
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        names = [name for name in SYSTEMS if options.only in name]
        right = {}
        while killed < options.kills:
            for name in names:
                task, own = SYSTEMS[name]
                given = slowed(own)
                if name not in right:
                    right[name] = asyncio.run(run(task, runs_dir=None, seed=1, **given))
                began_s = time.monotonic()
                given["deploy"] = roles_apart(task, given)
                result, kills = asyncio.run(disturbed(task, given, random, folder))
                is_equal = digests(result) == digests(right[name])
                killed, runs, others = killed + kills, runs + 1, others + (not is_equal)
                said = "as undisturbed" if is_equal else f"DIFFERS: {digests(result)} for {digests(right[name])}"
                calls = f"{result.account.calls} calls for {right[name].account.calls}"
                print(f"{name}: {kills} kills, {time.monotonic() - began_s:.1f} s, {calls}, {said}", flush=True)
    print(f"{runs} runs, {killed} kills, {others} decide otherwise")
    sys.exit(bool(others))


if __name__ == "__main__":
    main()
