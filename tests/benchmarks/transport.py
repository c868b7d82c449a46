"""What the transport between Ray actors carries: ``python -m tests.benchmarks.transport``.

Typed asks from one role's actor to another's against plain calls from one async actor to another, with the same payload and number in
flight, by turns in one process. Deadlines, duplicate filter and typed decoding are on; Ray's task events are off on both sides. Then
a chain whose every message crosses processes, and the same with its roles in one actor; and many chains at once, against one process.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import ray

from microagents import Context, Deployment, run
from microagents.runs.driver.execute import runtime_of
from microagents.tasks.hanoi import Hanoi
from tests.benchmarks.asks import Doubler, NoStrategy
from tests.benchmarks.first_steps import FirstSteps
from tests.benchmarks.harness import parser_of
from tests.benchmarks.hurriers import Hurrier, Hurry, PlainDoubler, PlainHurrier

SIDES = {1: 300, 300: 15_000, 3000: 30_000}
"""Asks a turn, by number in flight."""
APART = {role: {"num_replicas": 1} for role in ("makerconductor", "solver", "voter", "redflagger")}
"""Gives each role an actor of its own."""
PLAIN_SHARE = 10
"""Plain calls are so many times fewer, or a turn would take a minute."""


async def asks(turns: int) -> float:
    """Compare both sides; gives the latency of one ask alone, in seconds."""
    options = {"max_concurrency": 10_000, "enable_task_events": False, "num_cpus": 0}
    doubler = ray.remote(PlainDoubler).options(**options).remote()
    plain: Any = ray.remote(PlainHurrier).options(**options).remote(doubler)
    context = Context(run_id="transport", seed=0, tasks=[], strategy=NoStrategy())
    alone_s = 0.0
    async with runtime_of(
        "ray", context, [Deployment(role=Hurrier, num_replicas=1), Deployment(role=Doubler, num_replicas=1)]
    ) as roles:
        for in_flight, number in SIDES.items():
            fewer = number if in_flight == 1 else max(in_flight, number // PLAIN_SHARE)
            ours, theirs = [], []
            for turn in range(turns + 1):
                theirs.append(await plain.hurry.remote(fewer, in_flight))
                ours.append(await roles.messenger.ask(Hurry(asks=number, in_flight=in_flight)))
                if not turn:  # both warm up
                    ours.clear()
                    theirs.clear()
            ratio = median(one / other for one, other in zip(ours, theirs, strict=True))
            if in_flight == 1:
                alone_s = 1 / median(ours)
                print(f"one ask alone: {1000 * alone_s:.2f} ms; a plain call: {1000 / median(theirs):.2f} ms")
            else:
                print(
                    f"{in_flight:>5,} in flight: {median(ours):>9,.0f} asks a second ({min(ours):,.0f} to {max(ours):,.0f}), plain calls "
                    f"{median(theirs):>7,.0f} ({min(theirs):,.0f} to {max(theirs):,.0f}), {ratio:.1f} times"
                )
    return alone_s


async def step_s(runtime: Any, steps: int, **options: Any) -> float:
    """Seconds a step of one chain, from the second sitting's progress on."""
    began: list[tuple[float, int]] = []

    def watch(account: Any) -> None:
        if account.steps:
            began.append((time.perf_counter(), account.steps))

    result = await run(
        FirstSteps(disks=20, length=steps),
        models="sim:gpt-4.1-mini",
        runtime=runtime,
        runs_dir=None,
        speculate=False,
        on_progress=watch,
        **options,
    )
    assert result.outcome == "completed"
    (first_s, first), (last_s, last) = began[0], began[-1]
    return (last_s - first_s) / (last - first)


async def chains(turns: int, alone_s: float) -> None:
    """One chain, every message across processes, and with its roles together."""
    local = [await step_s("local", 5000) for _ in range(turns)]
    apart = [await step_s("ray", 1000, deploy=APART) for _ in range(turns)]
    together = [await step_s("ray", 5000) for _ in range(turns)]
    over = median(apart) - median(local)
    print(
        f"one chain, a step: {1e6 * median(local):.0f} us in one process; {1000 * median(apart):.2f} ms across actors: ",
        end="",
    )
    print(f"overhead {over / alone_s:.2f} times one ask; {1000 * median(together):.3f} ms colocated")


async def many(turns: int, inputs: int) -> None:
    """Many chains at once, on Ray and in one process."""
    tasks = [Hanoi(disks=8)] * inputs
    rates: dict[str, list[float]] = {"local": [], "ray": []}
    for _ in range(turns):
        for runtime, each in rates.items():
            result = await run(tasks, models="sim:gpt-4.1-mini", runtime=runtime, runs_dir=None)
            assert result.outcome == "completed"
            each.append(result.account.steps / result.wall_s)
    share = median(one / other for one, other in zip(rates["ray"], rates["local"], strict=True))
    print(
        f"{inputs:,} chains at once: {median(rates['local']):,.0f} steps a second in one process, {median(rates['ray']):,.0f} on Ray: ",
        end="",
    )
    print(f"{100 * share:.0f} %")


async def measured(turns: int, inputs: int) -> None:
    """All of it."""
    alone_s = await asks(turns)
    await chains(turns, alone_s)
    await many(min(turns, 2), inputs)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what was measured."""
    options = parser_of(__doc__, turns=5, inputs=1000).parse_args(arguments)
    ray.init("local", log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    asyncio.run(measured(options.turns, options.inputs))


if __name__ == "__main__":
    main()
