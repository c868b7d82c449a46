"""How a run follows a server whose limit moves: ``python -m tests.benchmarks.throttle [--limit 300 --limit 50 ...]``.

A server in a process of its own takes so many requests at a time, and refuses more with 429. Its limit moves once a minute. Printed are,
for each limit, the requests in flight from 30 s after the move on, and the share of the replies that were refusals.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import re
import time
from multiprocessing.connection import Connection
from random import Random
from statistics import fmean

from microagents import run
from microagents.base.errors import InvalidUsage
from microagents.tasks.drift import Drift, Place
from tests.benchmarks.harness import options_of

_NUMBER = re.compile(rb"Number: (\d+)")
SETTLE_S = 30.0
"""Time that the run has to find a limit."""
EVERY_S = 0.1
"""Time between two looks at the requests in flight."""


class LimitedServer(asyncio.Protocol):
    """One connection of a server with OpenAI's chat completions API that walks right."""

    limit = latency_s = 0.0
    in_flight = replies = refusals = 0
    random = Random(0)
    first: asyncio.Future[None]
    """Done once the first request has come."""

    def __init__(self) -> None:
        self._data = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, end, body = self._data.partition(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        if not end or found is None or len(body) < int(found[1]):
            return
        self._data = body[int(found[1]) :]
        server = LimitedServer
        if not server.first.done():
            server.first.set_result(None)
        if server.in_flight >= server.limit:
            server.refusals += 1
            self._answer(b"429 Too Many Requests", {"error": {"message": "too many requests"}})
            return
        server.in_flight += 1
        number = _NUMBER.search(body)
        assert number is not None
        asyncio.get_running_loop().call_later(
            server.latency_s * server.random.lognormvariate(0, 0.3), self._reply, int(number[1])
        )

    def _reply(self, number: int) -> None:
        LimitedServer.in_flight -= 1
        LimitedServer.replies += 1
        text = f"number = {Drift().oracle(Place(number=number)).number}"
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        self._answer(b"200 OK", {"choices": [choice], "usage": {"prompt_tokens": 50, "completion_tokens": 5}})

    def _answer(self, status: bytes, answer: object) -> None:
        body = json.dumps(answer).encode()
        head = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
        self._transport.write(head + body)


def serve(pipe: Connection, limits: list[int], minute_s: float, latency_s: float) -> None:
    """Serve all limits, one after the other; send the port, then a line for each limit."""

    async def served() -> None:
        server = LimitedServer
        server.latency_s, server.limit = latency_s, limits[0]
        listener = await asyncio.get_running_loop().create_server(LimitedServer, "127.0.0.1", 0, backlog=4096)
        pipe.send(listener.sockets[0].getsockname()[1])
        server.first = asyncio.get_running_loop().create_future()
        await server.first
        for limit in limits:
            server.limit, refusals, replies = limit, server.refusals, server.replies
            await asyncio.sleep(SETTLE_S)
            seen = []
            for _ in range(int((minute_s - SETTLE_S) / EVERY_S)):
                await asyncio.sleep(EVERY_S)
                seen.append(server.in_flight)
            refused, replied = server.refusals - refusals, server.replies - replies
            pipe.send((limit, fmean(seen), min(seen), refused, refused / (refused + replied)))
        pipe.send(server.refusals / (server.refusals + server.replies))
        await asyncio.to_thread(pipe.recv)

    asyncio.run(served())


async def follow(url: str, inputs: int, pipe: Connection) -> None:
    """Run until the server has tried all limits."""

    async def hear() -> None:
        before_s, used_s = time.monotonic(), time.process_time()
        while not isinstance(said := await asyncio.to_thread(pipe.recv), float):
            limit, mean, least, refused, share = said
            now_s, now_used_s = time.monotonic(), time.process_time()
            cores = (now_used_s - used_s) / (now_s - before_s)
            before_s, used_s = now_s, now_used_s
            counted = (
                f"in flight {mean:6.1f} ({mean / limit:.2f} of it, at least {least}); refused {refused} ({share:.2%})"
            )
            print(f"limit {limit:4}: {counted}; the run used {cores:.2f} of a core", flush=True)
        print(f"refused of all replies: {said:.2%}")

    hearing = asyncio.create_task(hear())
    working = asyncio.create_task(
        run([Drift(length=10_000)] * inputs, models=f"openai:m@base_url={url}/v1", runs_dir=None)
    )
    await asyncio.wait([hearing, working], return_when=asyncio.FIRST_COMPLETED)
    working.cancel()
    await asyncio.wait([working])
    await hearing


def main() -> None:
    """Print the figures of one run."""
    options = options_of(__doc__, limit=[300, 50, 500, 120], minute=60.0, latency=1.0, inputs=400)
    if options.minute <= SETTLE_S:
        raise InvalidUsage(f"--minute must be more than the {SETTLE_S:g} s that a run has to find the limit")
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(theirs, options.limit, options.minute, options.latency), daemon=True)
    server.start()
    asyncio.run(follow(f"http://127.0.0.1:{ours.recv()}", options.inputs, ours))
    ours.send(None)
    server.join()


if __name__ == "__main__":
    main()
