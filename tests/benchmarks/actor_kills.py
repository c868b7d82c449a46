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
from itertools import cycle
from random import Random
from typing import Any

from microagents import Result, Task, run
from microagents.journal.messages import Account
from microagents.runs.strategies import strategy_of
from microagents.runtimes.ray import actor_group
from tests.baseline import SYSTEMS
from tests.benchmarks.harness import options_of
from tests.journal.walks import digests
from tests.runtimes.ray.ray_processes import actors_of, kill

LATENCY = "latency=0.12"
"""Seconds of a reply: long enough that kills hit work."""
MOST_OF_A_RUN = 5
AT_ONCE = 0.3
"""Share of kills that take two actors."""
PAUSE_S = (0.1, 1.2)
WAIT_S = 100.0


def slowed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a system with models that take a while."""
    models = (given["models"],) if isinstance(given["models"], str) else given["models"]
    slower = tuple([f"{each}{',' if '@' in each else '@'}{LATENCY}" for each in models])
    return {**given, "models": slower}


async def disturbed(task: Any, random: Random, **options: Any) -> tuple[Result, int]:
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

    def on_progress(account: Account) -> None:
        if account.calls:
            begun.set()

    killing = asyncio.create_task(kill_now_and_then())
    try:
        async with asyncio.timeout(WAIT_S):
            return await run(task, runtime="ray", on_progress=on_progress, **options), killed
    finally:
        killing.cancel()


def roles_apart(task: Task | Sequence[Task], given: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Return the deployment of each role of a system in an actor of its own, and of its conductor in two."""
    first = task if isinstance(task, Task) else task[0]
    strategy = strategy_of(given.get("strategy"), first, {name: given[name] for name in ("k",) if name in given})
    movable = [each.role.__name__.lower() for each in strategy.deployments() if not each.in_driver]
    conductor = strategy.conductor.__name__.lower()
    return {**{name: {"num_replicas": 1} for name in movable}, conductor: {"num_replicas": 2}}


def main() -> None:
    """Run the systems in turn until there are enough kills."""
    options = options_of(__doc__, kills=70, seed=0, only="")
    actor_group.MAX_DEATHS = 1000  # kills are many here
    random, killed, runs, others = Random(options.seed), 0, 0, 0
    right = dict[str, Result]()
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for name in cycle([each for each in SYSTEMS if options.only in each]):
            task, own = SYSTEMS[name]
            given = {**slowed(own), "seed": 1}
            if name not in right:
                right[name] = asyncio.run(run(task, runs_dir=None, **given))
            began_s, deploy = time.monotonic(), roles_apart(task, given)
            result, kills = asyncio.run(disturbed(task, random, deploy=deploy, runs_dir="runs", **given))
            both = [(each.outcome, *digests(each.account)) for each in (result, right[name])]
            is_equal = both[0] == both[1]
            killed, runs, others = killed + kills, runs + 1, others + (not is_equal)
            said = "as undisturbed" if is_equal else f"DIFFERS: {both[0]} for {both[1]}"
            calls = f"{result.account.calls} calls for {right[name].account.calls}"
            print(f"{name}: {kills} kills, {time.monotonic() - began_s:.1f} s, {calls}, {said}", flush=True)
            if killed >= options.kills:
                break
    print(f"{runs} runs, {killed} kills, {others} decide otherwise")
    sys.exit(bool(others) or not runs)


if __name__ == "__main__":
    main()
