"""A run on three nodes, a lane each, of which one is killed: writes what came of it into the file that is its argument.

Ray has its usual settings, by which it misses a node after some fifteen seconds. Run as a program.
"""

from __future__ import annotations

import asyncio
import json
import logging

import ray
from ray.cluster_utils import Cluster
from structlog.testing import capture_logs

from microagents import run
from microagents.journal.messages import Account
from microagents.runtimes.ray import starting
from microagents.runtimes.ray.actor_group import ActorGroup
from tests.runtimes.ray.joining_node import INPUTS, MODEL
from tests.runtimes.ray.one_node import end_path


async def end_of_a_run(cluster: Cluster, doomed: str) -> dict[str, object]:
    """A run that loses the node of one of its lanes once it is under way."""
    lost = asyncio.Event()
    slots: dict[str, str | None] = {}
    start = ActorGroup.start

    async def noted(self: ActorGroup) -> None:
        await start(self)
        slots.update({name: slot.node for name, slot in self.slots.items()})

    ActorGroup.start = noted  # type: ignore[method-assign]

    async def lose() -> None:
        await lost.wait()
        (node,) = [each for each in cluster.worker_nodes if each.node_id == doomed]
        await asyncio.to_thread(cluster.remove_node, node, allow_graceful=False)

    def watch(account: Account) -> None:
        if account.decided > 5:
            lost.set()

    losing = asyncio.create_task(lose())
    with capture_logs() as logs:
        result = await run(
            INPUTS, models=MODEL, k=2, runs_dir=None, runtime="ray", lanes=3, concurrency=6, on_progress=watch
        )
    await losing
    return {
        "nodes": len({*slots.values()}),
        "doomed": [name for name, node in slots.items() if node == doomed],
        "deaths": [(log["replica"], log["cause"]) for log in logs if "died" in log["event"]],
        "digests": [result.outcome, result.account.decisions_sha256, result.account.ballots_sha256],
    }


def main() -> None:
    """Write the nodes of the lanes, the deaths and the digests as JSON."""
    path = end_path()
    starting.READY_S = 300.0
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    doomed, _ = [cluster.add_node(num_cpus=1) for _ in range(2)]
    ray.init(cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    path.write_text(json.dumps(asyncio.run(end_of_a_run(cluster, doomed.node_id))))
    ray.shutdown()
    cluster.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
