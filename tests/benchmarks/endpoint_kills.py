"""The server of a voted endpoint, killed while clients ask, and at work for long: parts `kills` and `soak` of `endpoint`."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import aiohttp
import psutil

from microagents.journal.messages import Recalled
from microagents.journal.reading import SUFFIX, Reader
from tests.benchmarks.harness import WAIT_S, free_port
from tests.benchmarks.quick_server import quick_server
from tests.doubles.acting import Acting, Request, Said, acting

CLIENTS = 8
"""Clients that ask side by side, and again with the same bytes when the server is gone."""
MOST_BETWEEN = 40
"""Requests to the double between two kills, at most."""
LATENCY_S = 0.1
"""Seconds of a sample, at most."""
WRONG = 0.2
READINGS = 20
LEAST_SERVED = 0.95
MOST_GROWTH = 1.1
AT_ONCE = 32
"""Connections of the clients of a server at work."""
MORE_FILES = 4 * AT_ONCE
"""Open files that a moment may have more than another: each connection of a client, and three to the model."""
MOST_KEPT = 1_000
BODY: dict[str, Any] = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "Go on."}]}


@asynccontextmanager
async def server(model: str, folder: Path, port: int, k: int = 3) -> AsyncIterator[tuple[psutil.Process, str]]:
    """`microagents serve` in a process of its own, which is killed at the end of the block."""
    words = ["serve", "--model", model, "-k", str(k), "--port", str(port), "--runs-dir", str(folder), "--json"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "microagents", *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        ready = json.loads(await process.stdout.readline())
        yield psutil.Process(process.pid), ready["url"]
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()


async def measure_kills(kills: int) -> int:
    """Print what clients got and what was paid while the server was killed again and again; returns an exit code.

    It is 1 if a reply differs from its decision or was delivered before its decision was durable, or if more samples were paid twice than
    were in flight.
    """
    random, sent, in_flight = Random(kills), Counter[str](), 0
    delivered: dict[str, tuple[int, dict[str, Any], int]] = {}
    """By request, the number of the server, the sums and the value of the reply that its client got."""
    is_over, kill = False, 0

    async def answer(request: Request) -> Said:
        sent[request.json["user"]] += 1
        value = 1 if random.random() < WRONG else 0
        await asyncio.sleep(LATENCY_S * random.random())
        return [("act", {"value": value})]

    async with AsyncExitStack() as stack:
        double = await stack.enter_async_context(acting(answer))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port, runs = free_port(), list[str]()
        address = f"http://127.0.0.1:{port}/v1/chat/completions"

        async def client(number: int) -> None:
            for turn in range(10**9):
                name = f"{number}-{turn}"
                while name not in delivered and not is_over:
                    try:
                        async with session.post(address, json={**BODY, "user": name}) as response:
                            reply = await response.json()
                        (call,) = reply["choices"][0]["message"]["tool_calls"]
                        value = json.loads(call["function"]["arguments"])["value"]
                        delivered[name] = kill, reply["usage"]["microagents"], value
                    except aiohttp.ClientError:
                        await asyncio.sleep(0.02)
                if is_over:
                    return

        clients = [asyncio.create_task(client(number)) for number in range(CLIENTS)]
        for _ in range(kills):
            before = journals_in(folder)
            async with server(f"openai:m@base_url={double.url}/v1", folder, port) as (process, _):
                runs += journals_in(folder) - before
                wanted = len(double.requests) + random.randint(1, MOST_BETWEEN)
                async with asyncio.timeout(WAIT_S):
                    while len(double.requests) < wanted:  # noqa: ASYNC110 - of what clients come to
                        await asyncio.sleep(0.001)
                in_flight += await _stopped(process, double)
            kill += 1
        is_over = True
        await asyncio.gather(*clients)
        again = sum(sent[name] - sums["samples"] for name, (_, sums, _) in delivered.items())
        decided: dict[str, dict[str, int | None]] = {run: _winners(folder / run) for run in runs}
    found = [decided[runs[by]].get(f"0/request/{sums['election']}") for by, sums, _ in delivered.values()]
    differing = sum(one not in (None, value) for one, (_, _, value) in zip(found, delivered.values(), strict=True))
    early = found.count(None)
    print(
        f"{kills} kills, {len(delivered)} replies delivered: {differing} other than their decision, {early} before it was durable; "
        f"{again} samples paid twice, {in_flight} were in flight at the kills"
    )
    return int(differing > 0 or early > 0 or again > in_flight or not delivered)


async def _stopped(process: psutil.Process, double: Acting) -> int:
    """Stop a server where it stands, as its kill would; returns the number of its samples without a reply that it has read."""
    process.suspend()
    await asyncio.sleep(2 * LATENCY_S)  # what it has sent arrives at the double, and is answered
    assert not double.in_flight
    return _unread(int(double.url.rpartition(":")[2]))


def _unread(port: int) -> int:
    """Count the connections to a port of this machine whose client has bytes to read."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    waiting = [row[4].partition(":")[2] for row in rows if row[2].endswith(f":{port:04X}")]
    return sum(int(each, 16) > 0 for each in waiting)


def journals_in(folder: Path) -> set[str]:
    """Return the names of the journals in a folder."""
    return {each.name for each in folder.glob(f"*{SUFFIX}")}


def bytes_in(folder: Path) -> int:
    """Return the size of the files in a folder, without logs, which are written back into them."""
    return sum(each.stat().st_size for each in folder.iterdir() if not each.name.endswith("-wal"))


def _winners(journal: Path) -> dict[str, int | None]:
    """Return the values of the decisions in a journal."""
    with Reader(journal) as reader:
        decisions, _ = reader.of_input(0)
    return {path: _value(each) for path, each in decisions.items()}


def _value(decision: Recalled) -> int | None:
    if decision.value is None:
        return None
    value: int = json.loads(decision.value)["calls"][0]["arguments"]["value"]
    return value


class Reading(NamedTuple):
    """A server at work."""

    requests: int
    memory_mb: float
    files: int
    kept: int
    """Bytes of its journals, and of what it owes."""


async def measure_soak(minutes: float, rate: int) -> int:
    """Print memory, open files and bytes of a server at work for long, in parts of the time; returns an exit code.

    It is 1 if a request had another status than 200, fewer were answered than `LEAST_SERVED` of those that the rate asks for, or after
    the first quarter memory or open files grew, or a request left more than `MOST_KEPT` bytes. Memory grows by some 90 bytes a request
    until SQLite's cache of the journal is full, which has 8 MiB, after some 100,000 requests.
    """
    readings = list[Reading]()
    with quick_server() as upstream, tempfile.TemporaryDirectory() as name:
        async with (
            server(f"anthropic:m@base_url={upstream}", Path(name), 0) as (process, url),
            asyncio.TaskGroup() as group,
        ):
            began_s, asked, done = time.monotonic(), 0, Counter[int]()
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=AT_ONCE)) as session:

                async def ask(number: int) -> None:
                    body = {**BODY, "metadata": {"user_id": str(number)}}
                    async with session.post(f"{url}/v1/messages", json=body) as response:
                        await response.read()
                    done[response.status] += 1

                for reading in range(1, READINGS + 1):
                    while time.monotonic() - began_s < 60 * minutes * reading / READINGS:
                        while asked < rate * (time.monotonic() - began_s) and asked - done.total() < 10 * rate:
                            asked += 1
                            group.create_task(ask(asked))
                        await asyncio.sleep(0.01)
                    memory_mb, kept = process.memory_info().rss / 1e6, bytes_in(Path(name))
                    readings.append(Reading(done.total(), memory_mb, process.num_fds(), kept))
                    print(
                        f"{minutes * reading / READINGS:5.1f} min: {done.total()} requests, {dict(done)}; {memory_mb:.0f} MB, "
                        f"{readings[-1].files} open files, {kept / max(1, done.total()):.0f} bytes kept a request",
                        flush=True,
                    )
                while done.total() < asked:  # noqa: ASYNC110 - each ends by itself
                    await asyncio.sleep(0.01)
    first, last = readings[READINGS // 4 - 1], readings[-1]
    left = (last.kept - first.kept) / max(1, last.requests - first.requests)
    growth = last.memory_mb / first.memory_mb
    misses = {
        f"{done.total() - done[200]} requests with another status than 200": done[200] < done.total(),
        f"{last.requests} requests answered in {minutes:g} min": last.requests < LEAST_SERVED * rate * 60 * minutes,
        f"{growth:.2f} times the memory of the first quarter": growth > MOST_GROWTH,
        f"{last.files - first.files} more open files": last.files - first.files > MORE_FILES,
        f"{left:.0f} bytes kept a request": left > MOST_KEPT,
    }
    for what, is_missed in misses.items():
        print(f"{what}{': MISSED' if is_missed else ''}")
    return int(any(misses.values()))
