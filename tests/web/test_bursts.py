"""Bursts of connections to `view` and `serve`: as processes, with a common limit of open files, whose memory is bounded."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.cli.commands import WAIT_S, microagents
from tests.forking import COMMAND

pytestmark = pytest.mark.slow
CONNECTIONS = 1000
"""Ten times as many as the burst that was once answered in part."""
OPEN_FILES = 1024
"""A usual limit of Linux. The programs may not raise it."""
MOST_GROWTH_MB = 150


@contextmanager
def program(*words: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A command under the limit of open files, and the address in its first line."""
    command = ["bash", "-c", f'ulimit -n {OPEN_FILES} && exec "$@"', "bash", COMMAND, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://[0-9.:]+", process.stdout.readline())
        assert found is not None
        try:
            yield found[0], process
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(WAIT_S) == 0


def memory_mb(process: subprocess.Popen[str]) -> float:
    """Resident memory of a process."""
    status = Path(f"/proc/{process.pid}/status")
    if not status.exists():
        pytest.skip("needs the memory of processes in /proc")
    return int(re.search(r"VmRSS:\s+(\d+)", status.read_text())[1]) / 1024  # type: ignore[index]


async def answer(url: str, path: str) -> bytes:
    """The first line of the answer to a request on a connection of its own."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        return (await asyncio.wait_for(reader.read(), WAIT_S)).partition(b"\r\n")[0]
    finally:
        writer.close()


async def answers(url: str, path: str) -> Counter[bytes | type[BaseException]]:
    asked = [answer(url, path) for _ in range(CONNECTIONS)]
    found = await asyncio.gather(*asked, return_exceptions=True)
    return Counter(type(each) if isinstance(each, BaseException) else each for each in found)


@pytest.mark.parametrize("path", ["/", "/api/runs"])
def test_view_answers_a_burst(path: str) -> None:
    microagents("run", "drift", "--model", "sim:perfect", "--run-id", "r")
    with program("view", "--no-open") as (url, process):
        before = memory_mb(process)
        found = asyncio.run(answers(url, path))
        assert found.total() == CONNECTIONS
        assert found.keys() <= {b"HTTP/1.1 200 OK", b"HTTP/1.1 503 Service Unavailable"}, found
        assert found[b"HTTP/1.1 200 OK"] > CONNECTIONS / 2
        assert memory_mb(process) - before < MOST_GROWTH_MB


def test_serve_answers_a_burst_of_sockets() -> None:
    with program("serve", "--model", "openai:m@base_url=http://127.0.0.1:9/v1", "--port", "0", "--json") as (
        url,
        process,
    ):
        before = memory_mb(process)
        assert asyncio.run(answers(url, "/v1/models")) == {b"HTTP/1.1 200 OK": CONNECTIONS}
        assert memory_mb(process) - before < MOST_GROWTH_MB


def test_scraping_a_run_of_many_inputs_again_and_again_takes_no_more_memory() -> None:
    Path("many.jsonl").write_text('{"length": 1}\n' * 100_000)
    microagents("run", "drift", "--inputs", "many.jsonl", "--max-calls", "20", "--run-id", "r")  # a journal of few rows

    async def scrape(url: str, times: int) -> None:
        async with aiohttp.ClientSession() as session:
            for _ in range(times):
                async with session.get(f"{url}/metrics") as got:
                    assert b'microagents_run_id="r"' in await got.read()

    with program("view", "--no-open") as (url, process):
        asyncio.run(scrape(url, 10))
        before = memory_mb(process)
        asyncio.run(scrape(url, 100))
        assert memory_mb(process) - before < 40, "the books of one read take 8 MB"
