"""One reply is owed once: to a client that gave up and asks again, and to no other."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp

from microagents.web.endpoint.server import Serving
from tests.doubles.acting import Acting
from tests.web.endpoint.test_forwarding import ASKED, posted, saying, voted

WAIT_S = 20


async def until(is_so: Any) -> None:
    async with asyncio.timeout(WAIT_S):
        while not is_so():  # noqa: ASYNC110 - of what a server in another task has come to
            await asyncio.sleep(0.005)


async def left(served: Serving, double: Acting, body: dict[str, Any], requests: int) -> None:
    """Ask, and leave once the double has this many requests."""
    async with aiohttp.ClientSession() as session:
        asking = asyncio.create_task(session.post(f"{served.url}/v1/chat/completions", json=body))
        await until(lambda: len(double.requests) >= requests)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    await until(lambda: served.debts.left == 1)


async def test_a_client_that_gives_up_and_asks_again_gets_the_election_that_it_began() -> None:
    async with voted(saying("x")) as (double, served):
        double.gate = asyncio.Event()
        await left(served, double, ASKED, 3)
        again = asyncio.create_task(posted(served, "chat/completions", ASKED))
        await until(lambda: not served.debts.left)
        double.gate.set()
        status, reply, _ = await again
        assert (status, len(double.requests)) == (200, 3)
        assert reply["usage"]["microagents"]["election"] == 1
        _, reply, _ = await posted(served, "chat/completions", ASKED)  # it was delivered, so this is another question
        assert reply["usage"]["microagents"]["election"] == 2


async def test_while_no_client_waits_no_further_sample_is_begun() -> None:
    different = [[("read", {"path": str(number)})] for number in range(100)]
    async with voted(saying(*different)) as (double, served):
        double.gate = asyncio.Event()
        await left(served, double, ASKED, 3)
        double.gate.set()
        await until(lambda: double.in_flight == 0)
        assert len(double.requests) == 3
        status, _, _ = await posted(served, "chat/completions", ASKED)
        assert (status, len(double.requests)) == (200, 12)


async def test_equal_requests_side_by_side_are_as_many_questions() -> None:
    async with voted(saying("x")) as (double, served):
        found = await asyncio.gather(*[posted(served, "chat/completions", ASKED) for _ in range(5)])
    assert sorted(reply["usage"]["microagents"]["election"] for _, reply, _ in found) == [1, 2, 3, 4, 5]
    assert len(double.requests) == 15


async def test_another_body_is_another_question() -> None:
    async with voted(saying("x")) as (double, served):
        double.gate = asyncio.Event()
        await left(served, double, ASKED, 3)
        double.gate.set()
        _, reply, _ = await posted(served, "chat/completions", {**ASKED, "user": "other"})
    assert reply["usage"]["microagents"]["election"] == 2


async def test_an_error_is_told_once_and_owed_to_nobody() -> None:
    async with voted(saying(400, 400, 400, "x", "x", "x")) as (_, served):
        assert (await posted(served, "chat/completions", ASKED))[0] == 400
        assert (await posted(served, "chat/completions", ASKED))[0] in (200, 400)
