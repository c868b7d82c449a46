"""Many inputs against a slow server: ``python -m tests.benchmarks.load [--inputs 1000] [--steps 15] [--latency 2]``.

A server in a process of its own answers each request after the latency, and counts requests. The run has its default settings. Printed are
the calls that the run booked and that the server received, and the rate against the most that the connections allow.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import re
import time
from multiprocessing.connection import Connection

from microagents import run
from microagents.models.http.open_files import connections_allowed
from microagents.tasks.drift import Drift, Place

_NUMBER = re.compile(rb"Number: (\d+)")


class SlowServer(asyncio.Protocol):
    """One connection of a server with OpenAI's chat completions API that walks right."""

    received = 0
    latency_s = 0.0

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
        SlowServer.received += 1
        number = _NUMBER.search(body)
        assert number is not None
        asyncio.get_running_loop().call_later(SlowServer.latency_s, self._answer, int(number[1]))

    def _answer(self, number: int) -> None:
        text = f"number = {Drift().oracle(Place(number=number)).number}"
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        body = json.dumps({"choices": [choice], "usage": {"prompt_tokens": 50, "completion_tokens": 5}}).encode()
        self._transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        )


def serve(pipe: Connection, latency_s: float) -> None:
    """Serve until the parent says so; send the port, then the number of received requests."""

    async def served() -> None:
        SlowServer.latency_s = latency_s
        server = await asyncio.get_running_loop().create_server(SlowServer, "127.0.0.1", 0, backlog=4096)
        pipe.send(server.sockets[0].getsockname()[1])
        await asyncio.to_thread(pipe.recv)
        pipe.send(SlowServer.received)

    asyncio.run(served())


def main() -> None:
    """Print the figures of one run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--latency", type=float, default=2.0)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(theirs, options.latency), daemon=True)
    server.start()
    model = f"openai:m@base_url=http://127.0.0.1:{ours.recv()}/v1"
    began_s = time.monotonic()
    result = asyncio.run(run([Drift(length=options.steps)] * options.inputs, models=model, runs_dir=None))
    took_s = time.monotonic() - began_s
    ours.send(None)
    received = ours.recv()
    server.join()
    connections = connections_allowed()
    most = connections / options.latency
    print(
        f"{options.inputs:,} inputs x {options.steps} steps, a reply takes {options.latency:g} s: {result.outcome} in {took_s:.1f} s"
    )
    counted = f"calls booked {result.calls:,}, received {received:,}, wasted {result.account.wasted_calls:,}"
    print(f"  {counted}, repeated {result.account.repeated}")
    print(
        f"  rate {received / took_s:.1f} a second, {received / took_s / most:.2f} of what {connections} connections allow"
    )


if __name__ == "__main__":
    main()
