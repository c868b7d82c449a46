"""A request that was answered leaves nothing in memory: neither until the garbage collector comes, nor for good."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import ref

import aiohttp
import pytest

from microagents.elections.election import Question
from microagents.roles.limits.held_leases import HeldLease
from microagents.roles.running_election import RunningElection
from microagents.web.endpoint.asked import ForwardedRequest
from microagents.web.endpoint.exchange import Exchange, ForwardedReply
from microagents.web.endpoint.server import Serving
from tests.web.endpoint.test_forwarding import ASKED, DROP, READ, saying, voted

OF_REQUESTS = (ForwardedRequest, Exchange, ForwardedReply, Question, RunningElection, HeldLease)
REQUESTS = 10


@pytest.fixture(autouse=True)
def _no_collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let only counts of references free objects, and list only those that are made from now on; keep no abandoned election."""
    monkeypatch.setattr("microagents.roles.voter.MAX_ABANDONED", 0)
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


async def asked(served: Serving, path: str, more: dict[str, Any], times: int = 1) -> None:
    async with aiohttp.ClientSession() as session:
        for _ in range(times):
            async with session.post(f"{served.url}/v1/{path}", json={**ASKED, **more}) as response:
                assert response.status == 200
                await response.read()


def containers() -> dict[int, Any]:
    found = [each for each in gc.get_objects() if isinstance(each, dict | set | list | deque)]
    # asyncio keeps some timers that were cancelled, and sqlite3 references to some cursors that are gone, about a hundred each.
    return {id(each): each for each in found if not isinstance(next(iter(each), None), asyncio.TimerHandle | ref)}


@pytest.mark.parametrize("more", [{}, {"stream": True}, {"n": 2}], ids=str)
async def test_an_answered_request_is_freed_at_once(more: dict[str, Any]) -> None:
    async with voted(saying([DROP], [READ], [READ], [READ], [READ])) as (_, served):
        for path in ("chat/completions", "responses", "messages"):
            await asked(served, path, more)
        left = Counter(type(each).__name__ for each in gc.get_objects() if isinstance(each, OF_REQUESTS))
    assert left == {}


async def test_nothing_has_an_entry_for_each_request(tmp_path: Path) -> None:
    async with voted(saying([READ]), k=1, runs_dir=tmp_path) as (double, served):
        await asked(served, "messages", {}, REQUESTS)
        before = containers()
        sizes = {key: len(each) for key, each in before.items()}
        await asked(served, "messages", {}, REQUESTS)
        double.requests.clear()
        grown = [each for key, each in before.items() if len(each) >= sizes[key] + REQUESTS]
    assert grown == []
