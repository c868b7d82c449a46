"""Actors that ask each other as fast as they can: with typed messages, and with plain calls of Ray."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import ray

from microagents import Request, Role
from tests.benchmarks.asks import Double


class Hurry(Request[float], frozen=True):
    """Ask as fast as you can."""

    asks: int
    in_flight: int


class Hurrier(Role):
    """Asks from an actor of its own."""

    asks = (Double,)

    async def hurry(self, request: Hurry) -> float:
        """How many asks a second."""

        async def some(count: int) -> None:
            for number in range(count):
                await self.ask(Double(number=number), timeout_s=60.0)

        each = max(1, request.asks // request.in_flight)
        started = time.perf_counter()
        await asyncio.gather(*(some(each) for _ in range(request.in_flight)))
        return each * request.in_flight / (time.perf_counter() - started)


class PlainDoubler:
    """The same without us."""

    @ray.method(enable_task_events=False)
    async def double(self, number: int) -> int:
        """Twice a number."""
        return 2 * number


class PlainHurrier:
    """The same without us."""

    def __init__(self, doubler: Any) -> None:
        self._doubler = doubler

    async def hurry(self, asks: int, in_flight: int) -> float:
        """How many calls a second."""

        async def some(count: int) -> None:
            for number in range(count):
                await self._doubler.double.remote(number)

        each = max(1, asks // in_flight)
        started = time.perf_counter()
        await asyncio.gather(*(some(each) for _ in range(in_flight)))
        return each * in_flight / (time.perf_counter() - started)
