"""A Ray cluster of one node, for programs that let others join it while a run is done."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from microagents.runtimes.ray import runtime, starting


def end_path() -> Path:
    """Read the path of the file for the end of the run from the command line."""
    parser = argparse.ArgumentParser(description="Do a run on a cluster, for a test.")
    parser.add_argument("path", type=Path, help="file for how the run ended, as JSON")
    found: Path = parser.parse_args().path
    return found


def write_end(end_of_a_run: Callable[[Cluster], Awaitable[object]]) -> None:
    """Do a run on a new cluster, and write how it ended, as JSON, into the file that is the program's argument."""

    async def ended() -> object:
        return await end_of_a_run(cluster)

    path = end_path()
    starting.READY_S, runtime.GROW_EVERY_S = 300.0, 0.5
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    ray.init(cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    path.write_text(json.dumps(asyncio.run(ended())))
    ray.shutdown()
    cluster.shutdown()  # type: ignore[no-untyped-call]
