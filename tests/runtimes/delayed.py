"""A runtime with faults: a link that delays batches, and a process that dies at a given time.

All faults are drawn from a seed, so that in virtual time a seed repeats its faults exactly.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from random import Random
from typing import Self

from msgspec import Struct

from microagents.actors.role import Context, Deployment
from microagents.runtimes.dispatcher import Dispatcher
from microagents.runtimes.link import Link
from microagents.runtimes.local import LinkedRuntime, LoopLink


class Faults(Struct, frozen=True, kw_only=True):
    """Faults of a run."""

    seed: int
    """Seed of all random draws."""
    delay_s: float = 0.05
    """Median delay of a batch, in seconds; no batch overtakes another."""
    spread: float = 1.0
    """Standard deviation of the natural logarithm of the delay."""
    kill_at_s: float | None = None
    """Time at which this process is killed by SIGKILL, in seconds after the runtime is entered; None: never."""


class DelayedLink(LoopLink):
    """A link between dispatchers on one event loop that delays batches, and keeps their order."""

    def __init__(self, sender: str, receiver: Dispatcher, faults: Faults) -> None:
        super().__init__(sender, receiver)
        self._faults = faults
        self._random = Random(f"{faults.seed} {sender}")
        self._arrives_s = 0.0
        """When the last batch arrives."""

    def send(self, batch: bytes) -> None:
        """Deliver a batch after a random delay."""
        loop, faults = asyncio.get_running_loop(), self._faults
        after_s = faults.delay_s * self._random.lognormvariate(0, faults.spread)
        self._arrives_s = max(self._arrives_s, loop.time() + after_s)
        loop.call_at(self._arrives_s, self._receiver.receive, self._sender, batch)

    async def flush(self) -> None:
        """Wait until all batches have arrived."""
        arrived = asyncio.Event()
        asyncio.get_running_loop().call_at(self._arrives_s, arrived.set)
        await arrived.wait()


class DelayedRuntime(LinkedRuntime):
    """Two dispatchers in one process, with a link between them that delays."""

    def __init__(self, context: Context, deployments: Sequence[Deployment], *, faults: Faults) -> None:
        self._faults = faults
        super().__init__(context, deployments)

    async def __aenter__(self) -> Self:
        if self._faults.kill_at_s is not None:
            asyncio.get_running_loop().call_later(self._faults.kill_at_s, os.kill, os.getpid(), signal.SIGKILL)
        return await super().__aenter__()

    def _link(self, sender: str, receiver: Dispatcher) -> Link:
        return DelayedLink(sender, receiver, self._faults)
