"""How many typed asks a second one event loop carries: ``python -m tests.benchmarks.asks``.

Within one dispatcher an ask awaits the handler directly; between two every envelope is encoded, batched and decoded. Both in one process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from statistics import median

from microagents import Conductor, Context, Deployment, Request, Role, Strategy
from microagents.runtimes.local import LinkedRuntime, LocalRuntime
from tests.benchmarks.harness import parser_of

IN_FLIGHT = 300


class Double(Request[int], frozen=True):
    """A small typed message."""

    number: int


class Doubler(Role):
    """Answers it."""

    async def double(self, request: Double) -> int:
        return 2 * request.number


class NoConductor(Conductor[object, "NoStrategy"]):  # type: ignore[type-var]
    """Asks are timed without elections around them."""


class NoStrategy(Strategy):
    """A strategy is part of every context."""

    conductor = NoConductor


async def asks_per_second(runtime: type[LocalRuntime], asks: int, in_flight: int) -> float:
    """Asks of one dispatcher to the role that answers them."""
    context = Context(run_id="asks", seed=0, tasks=[], strategy=NoStrategy())
    async with runtime(context, [Deployment(role=Doubler)]) as roles:

        async def some(count: int) -> None:
            for number in range(count):
                await roles.messenger.ask(Double(number=number))

        started = time.perf_counter()
        await asyncio.gather(*(some(asks // in_flight) for _ in range(in_flight)))
        return asks // in_flight * in_flight / (time.perf_counter() - started)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print asks a second: median, least and most."""
    options = parser_of(__doc__, turns=7).parse_args(arguments)
    sides: list[tuple[str, type[LocalRuntime], int]] = [
        ("one dispatcher, one at a time", LocalRuntime, 1),
        (f"one dispatcher, {IN_FLIGHT} at a time", LocalRuntime, IN_FLIGHT),
        ("two dispatchers, one at a time", LinkedRuntime, 1),
        (f"two dispatchers, {IN_FLIGHT} at a time", LinkedRuntime, IN_FLIGHT),
    ]
    for name, runtime, in_flight in sides:
        rates = [asyncio.run(asks_per_second(runtime, 30_000, in_flight)) for _ in range(options.turns)]
        print(
            f"{name:<32} median {median(rates):>9,.0f}  min {min(rates):>9,.0f}  max {max(rates):>9,.0f} asks a second"
        )


if __name__ == "__main__":
    main()
