"""A run on a Ray cluster of three nodes, of which it loses one: writes how it ended into the file that is its argument.

A file, because Ray prints what it finds in the logs of the lost node to stdout, at any time. Run as a program.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from microagents import run
from microagents.journal.messages import Account
from microagents.runtimes.ray import starting
from microagents.tasks.drift import Drift

MODEL = "sim:perfect@error=0.4,flag=0.1,latency=0.03"
DEPLOY = {role: {"num_replicas": 2} for role in ("solver", "voter", "redflagger")}


async def end_of_a_run(cluster: Cluster, doomed: Any) -> list[str]:
    """A run that loses a node once it is under way."""
    lost = asyncio.Event()

    async def lose() -> None:
        await lost.wait()
        await asyncio.to_thread(cluster.remove_node, doomed, allow_graceful=False)

    def watch(account: Account) -> None:
        if account.decided > 5:
            lost.set()

    losing = asyncio.create_task(lose())
    result = await run(
        Drift(length=40), models=MODEL, k=2, runs_dir=None, runtime="ray", deploy=DEPLOY, on_progress=watch
    )
    await losing
    return [result.outcome, result.account.decisions_sha256, result.account.ballots_sha256]


def main() -> None:
    """Write outcome and digests as JSON."""
    starting.READY_S = 300.0
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    ray.init(cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    Path(sys.argv[1]).write_text(json.dumps(asyncio.run(end_of_a_run(cluster, nodes[0]))))
    ray.shutdown()
    cluster.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
