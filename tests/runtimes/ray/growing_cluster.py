"""A run with more lanes than its cluster has CPUs: writes what came of it into the file that is its argument.

In the place of the autoscaler stands a task that adds a node for each CPU that it finds asked for, where an autoscaler looks. Run as a
program.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from ray._private.ray_constants import AUTOSCALER_RESOURCE_REQUEST_CHANNEL
from ray.cluster_utils import Cluster
from ray.experimental.internal_kv import _internal_kv_get

from microagents import run
from microagents.runtimes.ray.runtime import RayRuntime
from microagents.tasks.drift import Drift
from tests.runtimes.ray.joining_node import MODEL
from tests.runtimes.ray.local_nodes import add_node, write_end

INPUTS = [Drift(length=6)] * 400
LANES = 3


def asked_cpus() -> int:
    """The CPUs that are asked for in all."""
    asked: list[dict[str, float]] = json.loads(_internal_kv_get(AUTOSCALER_RESOURCE_REQUEST_CHANNEL) or b"[]")
    return round(sum(each.get("CPU", 0) for each in asked))


async def end_of_a_run(cluster: Cluster) -> dict[str, Any]:
    """A run that is interrupted as soon as it has all lanes."""
    grown = asyncio.Event()
    lanes: list[int] = []
    add_lane = RayRuntime._add_lane

    async def noted(self: RayRuntime) -> None:
        lanes.append(self._lanes)
        await add_lane(self)
        if self._lanes == LANES:
            grown.set()

    RayRuntime._add_lane = noted  # type: ignore[method-assign]

    async def scale() -> None:
        while (asked := asked_cpus()) < LANES:  # noqa: ASYNC110 - an autoscaler looks, too
            await asyncio.sleep(0.1)
        for _ in range(asked - 1):
            add_node(cluster)

    scaling = asyncio.create_task(scale())
    result = await run(INPUTS, models=MODEL, k=2, runtime="ray", lanes=LANES, concurrency=4, interrupt=grown)
    await scaling
    return {"lanes": lanes, "outcome": result.outcome, "still_asked": asked_cpus()}


def main() -> None:
    """Write the lanes, the outcome and what is asked for in the end as JSON."""
    write_end(end_of_a_run)


if __name__ == "__main__":
    main()
