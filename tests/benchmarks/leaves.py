"""Asks that a driver answers, beside the requests that the same processes send: ``python -m tests.benchmarks.leaves``.

Processes on Ray, each an actor, first ask one role of the driver as fast as they can, then send requests to a server that costs next to
nothing, both with as many in flight, by turns. A leave for each call is worth it if the driver answers three times the requests.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from statistics import median

from microagents import Context, Deployment, Request, Role
from microagents.runs.driver.execute import runtime_of
from tests.benchmarks.asks import Doubler, NoStrategy
from tests.benchmarks.hurriers import Hurrier, Hurry
from tests.benchmarks.provider_parts.rate import model_rate
from tests.benchmarks.quick_server import quick_server

PROCESSES = (2, 4, 8)
IN_FLIGHT = 3_000
ASKS, REQUESTS = 60_000, 12_000


class Send(Request[float], frozen=True):
    """Send requests as fast as you can."""

    url: str
    requests: int
    in_flight: int


class Sender(Role):
    """Sends requests from an actor of its own."""

    async def send(self, request: Send) -> float:
        """Requests a second."""
        return (await model_rate(request.url, request.in_flight, request.requests)).per_s


async def compared(processes: int, turns: int) -> tuple[list[float], list[float]]:
    """Asks and requests a second of all processes together, by turn."""
    context = Context(run_id="leaves", seed=0, tasks=[], strategy=NoStrategy())
    deployed = [
        Deployment(role=Hurrier, num_replicas=processes, colocate="a"),
        Deployment(role=Sender, num_replicas=processes, colocate="a"),
        Deployment(role=Doubler, in_driver=True),
    ]
    each, asks, requests = IN_FLIGHT // processes, list[float](), list[float]()
    async with runtime_of("ray", context, deployed) as roles:
        with quick_server() as server:
            for _ in range(turns + 1):
                hurry = [Hurry(asks=ASKS // processes, in_flight=each) for _ in range(processes)]
                asks.append(sum(await asyncio.gather(*[roles.messenger.ask(one) for one in hurry])))
                send = [Send(url=f"{server}/v1", requests=REQUESTS // processes, in_flight=each) for _ in hurry]
                requests.append(sum(await asyncio.gather(*[roles.messenger.ask(one) for one in send])))
    return asks[1:], requests[1:]  # the first turn warms up


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both rates and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5, help="turns of each side (default: %(default)s)")
    turns = parser.parse_args(arguments).turns
    for processes in PROCESSES:
        asks, requests = asyncio.run(compared(processes, turns))
        ratios = [one / other for one, other in zip(asks, requests, strict=True)]
        print(
            f"{processes} processes: {median(asks):>7,.0f} asks a second, {median(requests):>6,.0f} requests: "
            f"{median(ratios):.1f} times ({min(ratios):.1f} to {max(ratios):.1f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
