"""A run of many inputs on a Ray cluster of one node, which another joins: writes how it ended into the file that is its argument.

Run as a program.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from ray.cluster_utils import Cluster

from microagents import run
from microagents.journal.inbox import leave_request
from microagents.journal.messages import Account
from microagents.journal.reading import journal_of
from microagents.journal.requests import Ask, PauseRun, ResumeRun, request_of
from microagents.runtimes.ray.runtime import RayRuntime
from microagents.tasks.drift import Drift
from tests.runtimes.ray.local_nodes import add_node, write_end

MODEL = "sim:perfect@error=0.4,flag=0.1,latency=0.03"
INPUTS = [Drift(length=12)] * 24
RUNS = Path("runs")


async def end_of_a_run(cluster: Cluster) -> list[object]:
    """A run that gets a node once it is under way. It is paused until that node has a lane, however long this takes."""
    begun, grown = asyncio.Event(), asyncio.Event()
    add_lane = RayRuntime._add_lane

    async def noted(self: RayRuntime) -> None:
        await add_lane(self)
        grown.set()

    RayRuntime._add_lane = noted  # type: ignore[method-assign]

    def ask(what: Ask) -> None:
        leave_request(journal_of(RUNS, "joined"), request_of(what))

    async def join() -> None:
        await begun.wait()
        ask(PauseRun())
        add_node(cluster)
        await grown.wait()
        ask(ResumeRun())

    def watch(account: Account) -> None:
        if account.decided > 5:
            begun.set()

    joining = asyncio.create_task(join())
    result = await run(
        INPUTS, models=MODEL, k=2, runs_dir=RUNS, run_id="joined", runtime="ray", concurrency=4, on_progress=watch
    )
    await joining
    return [result.outcome, result.account.decisions_sha256, result.account.ballots_sha256]


def main() -> None:
    """Write outcome and digests as JSON."""
    write_end(end_of_a_run)


if __name__ == "__main__":
    main()
