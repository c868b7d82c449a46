"""A run on three nodes, a lane each, of which one is killed: writes what came of it into the file that is its argument.

Ray has its usual settings, by which it misses a node after some fifteen seconds. Run as a program.
"""

from __future__ import annotations

import asyncio

from ray.cluster_utils import Cluster
from structlog.testing import capture_logs

from microagents import run
from microagents.journal.messages import Account
from microagents.runtimes.ray.actor_group import ActorGroup
from tests.runtimes.ray.joining_node import INPUTS, MODEL
from tests.runtimes.ray.local_nodes import write_end


async def end_of_a_run(cluster: Cluster) -> dict[str, object]:
    """A run that loses the node of one of its lanes once it is under way."""
    doomed, _ = cluster.worker_nodes
    lost = asyncio.Event()
    slots: dict[str, str | None] = {}
    start = ActorGroup.start

    async def noted(self: ActorGroup) -> None:
        await start(self)
        slots.update({name: slot.node for name, slot in self.slots.items()})

    ActorGroup.start = noted  # type: ignore[method-assign]

    async def lose() -> None:
        await lost.wait()
        await asyncio.to_thread(cluster.remove_node, doomed, allow_graceful=False)

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
        "doomed": [name for name, node in slots.items() if node == doomed.node_id],
        "deaths": [(log["replica"], log["cause"]) for log in logs if "died" in log["event"]],
        "digests": [result.outcome, result.account.decisions_sha256, result.account.ballots_sha256],
    }


def main() -> None:
    """Write the nodes of the lanes, the deaths and the digests as JSON."""
    write_end(end_of_a_run, nodes=3)


if __name__ == "__main__":
    main()
