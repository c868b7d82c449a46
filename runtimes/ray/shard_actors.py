"""Shards of a run in Ray actors, one each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

import ray
from ray.exceptions import RayActorError, RayError

from microagents.base.aio import finish
from microagents.base.errors import PeerLost
from microagents.base.user_code import extend_import_path, import_folders, work_in
from microagents.runtimes.ray.calls import cause_of
from microagents.runtimes.ray.cluster import Cluster, aside, connect, disconnect
from microagents.runtimes.ray.links import future_of

T = TypeVar("T")
Work = Callable[[Path, int, threading.Event], T]
"""Does a shard of the run with a journal, until it ends or the event is set."""


class _Actor(Generic[T]):
    """Does one shard in a thread, while another one hears of its end."""

    def __init__(self, folders: Sequence[str], working: str) -> None:
        self._ended = threading.Event()
        work_in(working)
        extend_import_path(folders)

    def do(self, work: Work[T], whole: Path, shard: int) -> T:
        return work(whole, shard, self._ended)

    def interrupt(self) -> None:
        self._ended.set()


class ShardActors(Generic[T]):
    """Does each shard in an actor of its own, which ends with this process.

    Args:
        shards: the number of shards. Together they reserve as many CPUs, or all that there are.
        work: does a shard. Actors import it.
    """

    def __init__(self, shards: int, work: Work[T]) -> None:
        cpus = ray.cluster_resources().get("CPU", 1.0)
        self._options = {"num_cpus": min(1.0, cpus / shards), "max_concurrency": 2, "enable_task_events": False}
        self._work = work
        self._actors: dict[int, Any] = {}

    async def do(self, whole: Path, shard: int) -> T:
        """Do a shard to its end.

        Raises:
            PeerLost: its actor died.
        """
        kind: Any = ray.remote(_Actor)
        actor = self._actors[shard] = kind.options(**self._options).remote(import_folders(), str(Path.cwd()))
        try:
            found: T = await future_of(actor.do.remote(self._work, whole, shard))
        except RayActorError as error:
            raise PeerLost(f"shard {shard}", cause_of(error)) from None
        finally:
            del self._actors[shard]
            with suppress(RayError):
                ray.kill(actor)
        return found

    def interrupt(self) -> None:
        """Let all shards end after their calls in flight."""
        for actor in self._actors.values():
            actor.interrupt.remote()


@asynccontextmanager
async def shard_actors(cluster: Cluster, shards: int, work: Work[T]) -> AsyncIterator[ShardActors[T]]:
    """Connect to a cluster for the shards of a run.

    Raises:
        InvalidUsage: no cluster answers, or it has no authentication.
    """
    await asyncio.to_thread(connect, cluster)
    try:
        yield ShardActors(shards, work)
    finally:
        await finish(lambda: aside(disconnect))
