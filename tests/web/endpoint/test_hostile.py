"""Malformed and hostile requests and upstreams: each gets one sentence in the form of its wire, and the server goes on."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest

from microagents.base.errors import InvalidUsage
from microagents.web.endpoint.callers import Caller
from microagents.web.endpoint.policy import Policy
from microagents.web.endpoint.server import Endpoint, serving
from tests.web.endpoint.test_forwarding import ASKED, READ, posted, saying, voted

PATHS = ("chat/completions", "responses", "messages")
NESTED = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b'{"model": "m"',
        b"\xff\xfe",
        b'{"a": }',
        NESTED,
        b'{"max_tokens": "many"}',
        b'{"n": 1.5}',
    ],
    ids=lambda body: body[:20].decode("latin-1"),
)
async def test_a_body_that_is_no_request_is_refused_or_passed_on(body: bytes) -> None:
    async with voted(saying(400)) as (_, served):
        for path in PATHS:
            status, reply, _ = await posted(served, path, body)
            assert status == 400, path
            assert reply["error"]["message"]
            assert (await posted(served, path, {"model": "m", "messages": []}))[0] == 400  # it goes on


async def test_a_body_of_ten_megabytes_goes_on_whole() -> None:
    long = {**ASKED, "messages": [{"role": "user", "content": "x" * 10_000_000}]}
    async with voted(saying("x"), k=1) as (double, served):
        assert (await posted(served, "chat/completions", long))[0] == 200
        assert len(double.requests[0].body) > 10_000_000


@pytest.mark.parametrize(
    "body",
    [
        b"<html>no</html>",
        b"{}",
        b"null",
        b'{"choices": []}',
        b'{"choices": [null]}',
        b'{"choices": [{"message": {"tool_calls": [null, 7, {"function": 3}]}}]}',
        b'{"choices": [{"message": {"tool_calls": "x", "content": 7}}]}',
        b'{"choices": [{"message": {"content": ["\xf0\x9f"]}}]}',
        b'{"choices": [{"message": {"content": "\\ud800"}}], "usage": {"prompt_tokens": -1, "completion_tokens": 1e300}}',
        b'{"choices": [{"message": {"tool_calls": [{"function": {"name": "f", "arguments": "'
        + b"[" * 50_000
        + b'"}}]}}]}',
        NESTED,
        b"data: {\n\ndata: {}\n\n",
        b'data: {"choices": [{"delta": {"tool_calls": [7]}}]}\n\ndata: [DONE]\n\n',
        b'{"output": [null, 7, {"type": 3}, {"type": "function_call", "arguments": 7}]}',
        b'{"content": [null, {"type": "tool_use", "input": 7}, {"type": "text", "text": {}}], "usage": 3}',
    ],
    ids=lambda body: body[:40].decode("latin-1"),
)
async def test_a_reply_of_garbage_ends_in_an_answer(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("microagents.web.endpoint.served_elections.OUTAGE_S", 0.01)
    async with asyncio.timeout(60), voted(saying(body), k=1) as (_, served), aiohttp.ClientSession() as session:
        for path in PATHS:
            async with session.post(f"{served.url}/v1/{path}", json=ASKED) as response:
                assert response.status in (200, 502), path
        async with session.get(f"{served.url}/v1/models") as response:
            assert response.status == 200  # it goes on


@pytest.mark.parametrize(("body", "is_streamed"), [
    (b'data: {"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]}\n\n', False),
    (b'{"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}', True),
])  # fmt: skip
async def test_a_reply_in_a_form_that_the_client_cannot_read_is_an_error_and_bought_once(
    body: bytes, *, is_streamed: bool
) -> None:
    async with voted(saying(body), k=1) as (double, served):
        status, reply, _ = await posted(served, "chat/completions", {**ASKED, "stream": is_streamed})
    assert (status, len(double.requests)) == (502, 1)
    assert "which the client did not ask for and cannot read" in reply["error"]["message"]


async def test_a_reply_whose_text_is_none_is_asked_for_again() -> None:
    async with voted(saying(b'{"choices": [{"message": {"content": 7}}]}', "x"), k=1) as (double, served):
        assert (await posted(served, "chat/completions", ASKED))[0] == 200
    assert len(double.requests) == 2


async def test_pages_of_other_sites_other_names_and_other_types_are_refused() -> None:
    async with voted(saying("x")) as (double, served):
        for headers in (
            {"origin": "http://evil.example"},
            {"host": "evil.example"},
            {"content-type": "text/plain"},
            {"content-encoding": "gzip"},
            {"origin": "null"},
        ):
            status, reply, _ = await posted(served, "chat/completions", ASKED, headers)
            assert status in (400, 403, 415), headers
            assert reply["error"]["message"]
    assert double.requests == []


async def test_beyond_this_machine_there_is_no_endpoint_without_a_token() -> None:
    with pytest.raises(InvalidUsage, match="lets other machines use the models"):
        async with serving(Endpoint(models=["openai:m@base_url=http://127.0.0.1:9/v1"], host="0.0.0.0")):
            pass


async def test_a_wrong_token_is_refused_and_the_right_one_stays_here() -> None:
    callers = [Caller(token="right-token", policy=Policy())]
    async with voted(saying("x"), callers=callers) as (double, served):
        for headers in ({}, {"authorization": "Bearer wrong"}, {"x-api-key": "\xe9"}):
            assert (await posted(served, "chat/completions", ASKED, headers))[0] == 401
        for headers in ({"authorization": "Bearer right-token"}, {"x-api-key": "right-token"}):
            assert (await posted(served, "chat/completions", ASKED, headers))[0] == 200
    assert all("right-token" not in json.dumps(each.headers) for each in double.requests)


async def test_a_reply_cut_off_at_the_clients_own_cap_is_a_vote() -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "cut"}, "finish_reason": "length"}
    cut = json.dumps({"id": "c", "choices": [choice], "usage": {}}).encode()
    async with voted(saying(cut)) as (double, served):
        status, reply, _ = await posted(served, "chat/completions", ASKED)
    assert (status, reply["choices"][0]["finish_reason"], len(double.requests)) == (200, "length", 3)


async def test_many_clients_at_once_are_all_answered() -> None:
    async with voted(saying([READ]), k=1) as (_, served):

        async def one(number: int) -> int:
            status, _, _ = await posted(served, "chat/completions", {**ASKED, "user": str(number)})
            return status

        found = await asyncio.gather(*[one(number) for number in range(100)])
    assert found == [200] * 100


async def test_a_stream_that_is_read_slowly_is_whole_and_holds_up_no_other_client() -> None:
    long = 6_000_000  # more than the kernel takes for a client that does not read
    async with (
        voted(lambda asked: "x" * (long if asked.json.get("stream") else 1), k=1) as (_, served),
        aiohttp.ClientSession(read_bufsize=1024) as session,
        session.post(f"{served.url}/v1/chat/completions", json={**ASKED, "stream": True}) as response,
    ):
        assert (await posted(served, "chat/completions", ASKED))[0] == 200
        pieces = [piece async for piece in response.content.iter_chunked(65536)]
    assert b"".join(pieces).count(b"x") >= long
    assert b"[DONE]" in pieces[-1]
