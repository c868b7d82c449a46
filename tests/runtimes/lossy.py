"""A runtime with faults: a link that delays, reorders, repeats and drops batches, and a process that dies at a given time.

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
    """Faults of a run, and their rates."""

    seed: int
    """Seed of all random draws."""
    dropped: float = 0.1
    """Share of batches that never arrive."""
    repeated: float = 0.05
    """Share of batches that arrive twice."""
    delay_s: float = 0.05
    """Median delay of a batch, in seconds; delays differ widely, so batches overtake each other."""
    spread: float = 1.0
    """Standard deviation of the natural logarithm of the delay."""
    kill_at_s: float | None = None
    """Time at which this process is killed by SIGKILL, in seconds after the runtime is entered; None: never."""


class LossyLink(LoopLink):
    """A link between dispatchers on one event loop that drops, repeats and delays batches."""

    def __init__(self, sender: str, dispatchers: dict[str, Dispatcher], faults: Faults) -> None:
        super().__init__(sender, dispatchers)
        self._faults = faults
        self._random = Random(f"{faults.seed} {sender}")

    def send(self, peer: str, batch: bytes) -> None:
        """Deliver a batch after a random delay: once, twice or never."""
        random, faults = self._random, self._faults
        for _ in range(1 + (random.random() < faults.repeated)):
            after_s = faults.delay_s * random.lognormvariate(0, faults.spread)
            if random.random() >= faults.dropped:
                asyncio.get_running_loop().call_later(after_s, super().send, peer, batch)


class LossyRuntime(LinkedRuntime):
    """Two dispatchers in one process, with a lossy link between them."""

    def __init__(self, context: Context, deployments: Sequence[Deployment], *, faults: Faults) -> None:
        self._faults = faults
        super().__init__(context, deployments)

    async def __aenter__(self) -> Self:
        if self._faults.kill_at_s is not None:
            asyncio.get_running_loop().call_later(self._faults.kill_at_s, os.kill, os.getpid(), signal.SIGKILL)
        return await super().__aenter__()

    def _link(self, sender: str, dispatchers: dict[str, Dispatcher]) -> Link:
        return LossyLink(sender, dispatchers, self._faults)
