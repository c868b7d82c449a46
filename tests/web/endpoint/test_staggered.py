"""When samples begin: with the first event of the first, whose prompt is then in the provider's cache; or more of them than can decide."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from microagents.base.errors import InvalidUsage
from microagents.web.endpoint.callers import Caller
from microagents.web.endpoint.policy import Policy, ToolPolicy
from microagents.web.endpoint.server import Endpoint, serving
from tests.doubles.acting import Request, Said, acting
from tests.web.endpoint.test_caps import DEAR, SAMPLE_USD
from tests.web.endpoint.test_forwarding import ANY, ASKED, READ, posted, saying, voted
from tests.web.endpoint.test_owed import until


@pytest.mark.parametrize(("stagger", "begun"), [("", 3), (",stagger=off", 3), (",stagger=on", 1)])
async def test_the_other_samples_wait_for_the_first_to_begin(stagger: str, begun: int) -> None:
    async with voted(saying("x"), option=stagger) as (double, served):
        double.gate = asyncio.Event()
        asking = asyncio.create_task(posted(served, "chat/completions", {**ASKED, "stream": False}))
        await until(lambda: double.in_flight == begun)
        double.gate.set()
        assert (await asking)[0] == 200
    assert len(double.requests) == 3


async def test_a_first_sample_that_fails_lets_the_others_begin() -> None:
    async with asyncio.timeout(20), voted(saying(500, "x", "x", "x"), option=",stagger=on") as (_, served):
        assert (await posted(served, "chat/completions", ASKED))[0] == 200


async def test_stagger_is_on_off_or_auto() -> None:
    with pytest.raises(InvalidUsage, match="stagger='yes' is not on, off or auto"):
        async with voted(saying("x"), option=",stagger=yes"):
            pass


@pytest.mark.parametrize(("marks", "begun"), [({"cache_control": {"type": "ephemeral"}}, 1), ({}, 3)])
async def test_auto_waits_where_the_client_has_the_prompt_cached_and_reading_it_is_cheaper(
    marks: dict[str, Any], begun: int
) -> None:
    name = "anthropic:claude-haiku-5-5"
    rates = {"input": 1.0, "output": 5.0, "cached": 0.1, "cache_write": 1.25}
    text = {"type": "text", "text": "It goes on. " * 300, **marks}
    tools = [{"name": "read", "input_schema": {"type": "object"}}]
    body = {"model": "any", "max_tokens": 9, "messages": [{"role": "user", "content": [text]}], "tools": tools}
    async with acting(saying("x")) as double:
        models = [f"{name}@base_url={double.url}"]
        endpoint = Endpoint(models=models, settings={"prices": {name: rates}}, callers=[Caller(policy=ANY)])
        async with serving(endpoint) as served:
            double.gate = asyncio.Event()
            asking = asyncio.create_task(posted(served, "messages", body))
            await until(lambda: double.in_flight == begun)
            double.gate.set()
            assert (await asking)[0] == 200
    assert len(double.requests) == 3


async def test_a_hedge_begins_at_once_and_ends_behind_the_reply_with_its_cost() -> None:
    held = asyncio.Event()

    async def answer(request: Request) -> Said:
        if request.json["seed"] >= 3:
            await held.wait()
        return [READ]

    async with asyncio.timeout(20), voted(answer, Policy(hedge=2), option=DEAR) as (double, served):
        status, _, headers = await posted(served, "chat/completions", {**ASKED, "seed": 0})
        assert (status, headers["x-microagents-votes"], headers["x-microagents-in-flight"]) == (200, "3 of 3", "2")
        assert served.caps.cost_usd == pytest.approx(3 * SAMPLE_USD)
        held.set()
        await until(lambda: served.caps.cost_usd == pytest.approx(len(double.requests) * SAMPLE_USD))
    assert len(double.requests) == 5


async def test_a_call_that_one_vote_decides_has_no_hedge() -> None:
    policy = Policy(hedge=2, tools={"read": ToolPolicy(effect="read_only")})
    async with voted(saying([READ]), policy) as (double, served):
        await posted(served, "chat/completions", ASKED)
    assert len(double.requests) == 1
