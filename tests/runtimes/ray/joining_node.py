"""A run of many inputs on a Ray cluster of one node, which another joins: writes how it ended into the file that is its argument.

Run as a program.
"""

from __future__ import annotations

import asyncio

from ray.cluster_utils import Cluster

from microagents import run
from microagents.journal.messages import Account
from microagents.runtimes.ray.runtime import RayRuntime
from microagents.tasks.drift import Drift
from tests.runtimes.ray.one_node import write_end

MODEL = "sim:perfect@error=0.4,flag=0.1,latency=0.03"
INPUTS = [Drift(length=25)] * 24


async def end_of_a_run(cluster: Cluster) -> list[object]:
    """A run that gets a node once it is under way, and ends only after that node has a lane."""
    begun, lanes = asyncio.Event(), [1]
    add_lane = RayRuntime._add_lane

    async def counted(self: RayRuntime) -> None:
        await add_lane(self)
        lanes.append(lanes[-1] + 1)

    RayRuntime._add_lane = counted  # type: ignore[method-assign]

    async def join() -> None:
        await begun.wait()
        cluster.add_node(num_cpus=1)  # in the main thread: it sets signal handlers

    def watch(account: Account) -> None:
        if account.decided > 5:
            begun.set()

    joining = asyncio.create_task(join())
    result = await run(INPUTS, models=MODEL, k=2, runs_dir=None, runtime="ray", concurrency=4, on_progress=watch)
    await joining
    return [result.outcome, result.account.decisions_sha256, result.account.ballots_sha256, lanes[-1]]


def main() -> None:
    """Write outcome, digests and the number of lanes as JSON."""
    write_end(end_of_a_run)


if __name__ == "__main__":
    main()
