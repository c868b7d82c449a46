"""Ray clusters whose nodes are raylets on this machine, for programs in which nodes join or die while a run is done."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from microagents.runtimes.ray import runtime, starting

TRIES = 5
"""A node of Ray ends if its own helpers take 15 seconds to start, and after 30 is given up: too few on a machine that does much else."""


def add_node(cluster: Cluster) -> None:
    """Start a node with a CPU; in the main thread, since it sets signal handlers."""
    for left in reversed(range(TRIES)):
        try:
            cluster.add_node(num_cpus=1, include_dashboard=False)
        except Exception:  # Ray raises nothing more special
            if not left:
                raise
        else:
            return


@contextmanager
def local_nodes(number: int) -> Iterator[Cluster]:
    """A cluster of nodes with a CPU each, which this process is connected to."""
    cluster = Cluster()
    try:
        for _ in range(number):
            add_node(cluster)
        ray.init(cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()  # type: ignore[no-untyped-call]


def write_end(end_of_a_run: Callable[[Cluster], Awaitable[object]], nodes: int = 1) -> None:
    """Do a run on a new cluster, and write how it ended, as JSON, into the file that is the program's argument."""

    async def ended() -> object:
        return await end_of_a_run(cluster)

    parser = argparse.ArgumentParser(description="Do a run on a cluster, for a test.")
    parser.add_argument("path", type=Path, help="file for how the run ended, as JSON")
    path: Path = parser.parse_args().path
    starting.READY_S, runtime.GROW_EVERY_S = 300.0, 0.5
    with local_nodes(nodes) as cluster:
        path.write_text(json.dumps(asyncio.run(ended())))
