"""The real engine under faults, in virtual time: a link that delays, reorders, repeats and drops, and a process that dies at a moment.

Everything is drawn from a seed, so that what a seed did can be done again.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from random import Random
from typing import Self

from msgspec import Struct

from microagents.actors import Context, Deployment
from microagents.runtimes.dispatcher import Dispatcher
from microagents.runtimes.link import Link
from microagents.runtimes.local import LinkedRuntime, LoopLink


class Faults(Struct, frozen=True, kw_only=True):
    """What goes wrong, and how often."""

    seed: int
    dropped: float = 0.1
    """Share of batches that never arrive."""
    repeated: float = 0.05
    """Share of batches that arrive twice."""
    delay_s: float = 0.05
    """Median time of a batch on its way; being spread widely, it reorders them."""
    spread: float = 1.0
    """Standard deviation of the logarithm of that time."""
    kill_at_s: float | None = None
    """When the process is killed, as by kill -9, in seconds after the roles were started; None for never."""


class LossyLink(LoopLink):
    """Loses, repeats and delays batches between dispatchers on one event loop."""

    def __init__(self, sender: str, dispatchers: dict[str, Dispatcher], faults: Faults) -> None:
        super().__init__(sender, dispatchers)
        self._faults = faults
        self._random = Random(f"{faults.seed} {sender}")  # noqa: S311 - seeded on purpose

    def send(self, peer: str, batch: bytes) -> None:
        """Hand over some time later, or never, or twice."""
        random, faults = self._random, self._faults
        for _ in range(1 + (random.random() < faults.repeated)):
            after_s = faults.delay_s * random.lognormvariate(0, faults.spread)
            if random.random() >= faults.dropped:
                asyncio.get_running_loop().call_later(after_s, super().send, peer, batch)


class LossyRuntime(LinkedRuntime):
    """Two dispatchers behind such a link."""

    def __init__(self, context: Context, deployments: Sequence[Deployment], *, faults: Faults) -> None:
        self._faults = faults
        super().__init__(context, deployments)

    async def __aenter__(self) -> Self:
        if self._faults.kill_at_s is not None:
            asyncio.get_running_loop().call_later(self._faults.kill_at_s, os.kill, os.getpid(), signal.SIGKILL)
        return await super().__aenter__()

    def _link(self, sender: str, dispatchers: dict[str, Dispatcher]) -> Link:
        return LossyLink(sender, dispatchers, self._faults)
