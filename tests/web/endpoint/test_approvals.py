"""Calls that wait for a person: the client waits for the reply, and a person answers by `microagents decide` or on the page."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, PermissionDeniedError

from microagents.runs.inspection.runs import decide, inspect_run
from microagents.web.endpoint.policy import Policy, ToolPolicy
from tests.cli.commands import COMPLETED, microagents
from tests.web.endpoint.test_forwarding import ASKED, DROP, READ, posted, saying, voted
from tests.web.endpoint.test_owed import left, until

CAREFUL = Policy(tools={"drop": ToolPolicy(approve=True)})
RUNS = Path("runs")


async def waiting() -> str:
    """Wait until a call waits for a person; returns its place."""
    found: list[Any] = []

    def is_there() -> bool:
        found[:] = inspect_run(RUNS, "served").waiting
        return bool(found)

    await until(is_there)
    assert [(each.call.tool, each.call.arguments) for each in found] == [DROP]
    return str(found[0].path)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_an_elected_call_waits_until_a_person_approves_it(*, is_streamed: bool) -> None:
    async with (
        voted(saying([READ, DROP]), CAREFUL, runs_dir=RUNS, run_id="served") as (double, served),
        AsyncOpenAI(api_key="none", base_url=f"{served.url}/v1", max_retries=0) as client,
    ):
        asking: Any = client.chat.completions.create(**ASKED, stream=is_streamed)
        asked = asyncio.ensure_future(asking)
        await until(lambda: len(double.requests) == 3)
        place = await waiting()
        assert place == "0/request/1/call/1/approval"
        assert not asked.done()
        shown = await asyncio.to_thread(microagents, "decide", "served", stdin="approve\n")
        assert shown.code == COMPLETED, shown.err
        assert "may this call be made? drop" in shown.out
        reply: Any = await asked
        text = "".join([str(each) async for each in reply]) if is_streamed else str(reply)
    assert "users" in text
    assert microagents("show", "served").code == COMPLETED


async def test_a_rejected_call_is_an_error_with_the_persons_words_that_no_client_repeats() -> None:
    async with (
        voted(saying([DROP]), CAREFUL, runs_dir=RUNS, run_id="served") as (double, served),
        AsyncOpenAI(api_key="none", base_url=f"{served.url}/v1") as client,
    ):
        asked = asyncio.ensure_future(client.chat.completions.create(**ASKED))
        await until(lambda: len(double.requests) == 3)
        await asyncio.to_thread(decide, RUNS, "served", await waiting(), "reject not on a Friday")
        with pytest.raises(PermissionDeniedError, match="a call of drop was not approved: not on a Friday"):
            await asked
        assert len(double.requests) == 3


async def test_each_call_of_a_reply_waits_for_its_own_approval() -> None:
    calls = [("drop", {"table": name}) for name in ("users", "orders")]
    async with voted(saying(calls), CAREFUL, runs_dir=RUNS, run_id="served") as (_, served):
        asking = asyncio.create_task(posted(served, "chat/completions", ASKED))
        for number, words in enumerate(["approve", "reject not that one"]):
            place = f"0/request/1/call/{number}/approval"
            await until(lambda place=place: [each.path for each in inspect_run(RUNS, "served").waiting] == [place])
            await asyncio.to_thread(decide, RUNS, "served", place, words)
        status, reply, _ = await asking
    assert (status, "not that one" in reply["error"]["message"]) == (403, True)


async def test_a_client_that_asks_again_gets_the_reply_that_was_approved_meanwhile() -> None:
    async with voted(saying([DROP]), CAREFUL, runs_dir=RUNS, run_id="served") as (double, served):
        await left(served, double, ASKED, 3)
        await asyncio.to_thread(decide, RUNS, "served", await waiting(), "approve")
        assert (await posted(served, "chat/completions", ASKED))[0] == 200
        assert len(double.requests) == 3


async def test_a_call_that_nobody_answers_is_rejected_and_waits_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("microagents.web.endpoint.day_run.APPROVAL_S", 0.05)
    async with voted(saying([DROP]), CAREFUL, runs_dir=RUNS, run_id="served") as (_, served):
        status, reply, headers = await posted(served, "chat/completions", ASKED)
        assert (status, headers["x-should-retry"]) == (403, "false")
        assert "no one has approved it" in reply["error"]["message"]
    assert inspect_run(RUNS, "served").waiting == ()


async def test_a_person_sees_long_arguments_whole() -> None:
    call = ("drop", {"table": "long " * 100})
    async with voted(saying([call]), CAREFUL, runs_dir=RUNS, run_id="served") as (double, served):
        await left(served, double, ASKED, 3)
        await until(lambda: inspect_run(RUNS, "served").waiting)
        (found,) = inspect_run(RUNS, "served").waiting
    assert found.call.arguments == call[1]


async def test_other_calls_wait_for_nobody() -> None:
    async with voted(saying([READ]), CAREFUL) as (_, served):
        assert (await posted(served, "chat/completions", ASKED))[0] == 200
