"""Replies in the dialects of servers cast the vote of the same reply in its wire's standard form, whole and streamed."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest

from microagents.actors.role import Context, Strategy
from microagents.base.errors import ModelUnavailable
from microagents.models.http.provider import HttpModel
from microagents.models.http.sending import Response
from microagents.models.model import open_model
from microagents.web.endpoint.asked import ForwardedRequest
from microagents.web.endpoint.exchange import Exchange, ForwardedReply
from microagents.web.endpoint.policy import Policy
from microagents.web.endpoint.wires import CHAT, RESPONSES, WIRES, Wire
from tests.doubles.dialects import EDITS, PLAIN, STREAMED, STREAMS, Call, Said, written
from tests.web.endpoint.test_forwarding import posted, saying, voted

ARGUMENTS = {"path": "a.txt", "lines": [1, 2], "text": '{"no": "object"}', "by": {"name": "Ann"}}
SAID = Said(calls=(Call("read", ARGUMENTS), Call("list", {}), Call("read", {**ARGUMENTS, "path": "b"})), text="I look.")
TYPES = {"path": "string", "lines": "array", "text": "string", "by": "object"}
PARAMETERS = {"type": "object", "properties": {name: {"type": kind} for name, kind in TYPES.items()}}
CASES = [(wire, stream) for wire in WIRES for stream in (None, *STREAMS[wire.name])]


@pytest.fixture(scope="module")
def provider() -> HttpModel:
    context = Context(run_id="r", seed=0, tasks=[], strategy=Strategy())
    model = open_model("openai:m@base_url=http://127.0.0.1:9/v1", context)
    assert isinstance(model, HttpModel)
    return model


def acts_of(wire: Wire, edit: str, stream: str | None, provider: HttpModel) -> Any:
    tool = {"name": "read", "description": "", "parameters": PARAMETERS, "input_schema": PARAMETERS}
    tools = [{"type": "function", **tool, "function": tool}]
    asked = {"model": "m", "stream": stream is not None, "messages": [], "tools": tools}
    request = ForwardedRequest.read(wire, json.dumps(asked).encode(), {}, "")
    dialect = edit if stream is None else f"{edit}.{stream}"
    found = written(wire.name, "openai", dialect, [SAID], asked)
    body = found if isinstance(found, bytes) else json.dumps(found).encode()
    answer = Response(status_code=200, headers=MappingProxyType({}), content=body)
    taken = Exchange(request, Policy(), None).taken(answer, provider)
    assert isinstance(taken, ForwardedReply), taken
    return json.loads(taken.acts)["calls"]


@pytest.mark.parametrize(("wire", "stream"), CASES, ids=lambda each: getattr(each, "name", each))
def test_a_dialect_casts_the_same_vote(wire: Wire, stream: str | None, provider: HttpModel) -> None:
    acts = [{"tool": call.name, "arguments": call.arguments} for call in SAID.calls]
    for edit in EDITS[wire.name]:
        assert acts_of(wire, edit, stream, provider) == acts, edit


def taken_of(wire: Wire, asked: bytes, content: object, provider: HttpModel, status: int = 200) -> Any:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    answer = Response(status_code=status, headers=MappingProxyType({}), content=body)
    exchange = Exchange(ForwardedRequest.read(wire, asked, {}, ""), Policy(votes="text"), None)
    return exchange.taken(answer, provider)


def test_a_wrapped_reply_casts_its_vote_and_goes_on_as_it_came(provider: HttpModel) -> None:
    chat = {"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": 11, "completion_tokens": 7}}
    native = {"message": {"content": "x"}, "done": True, "prompt_eval_count": 11, "eval_count": 7}
    for body in ({"data": chat}, [chat], native):
        taken = taken_of(CHAT, b"{}", body, provider)
        assert (json.loads(taken.acts)["calls"][0]["arguments"], taken.usage.output_tokens) == ({"text": "x"}, 7)
        assert json.loads(taken.body) == body
        several = taken_of(CHAT, b'{"n": 2}', body, provider)
        assert "in the form of its wire" in several.args[1]


@pytest.mark.parametrize(("status", "told"), [(200, 429), (400, 400)])
def test_a_wrapped_error_is_told_in_its_words(status: int, told: int, provider: HttpModel) -> None:
    for body in (
        [{"error": {"code": 429, "message": "slower"}}],
        {"data": {"error": {"code": 429, "message": "slower"}}},
    ):
        failed = taken_of(CHAT, b"{}", body, provider, status)
        assert (failed.args[1], failed.status) == ("slower", told)


def test_an_error_in_words_of_its_own_under_status_200_is_told_in_them(provider: HttpModel) -> None:
    failed = taken_of(CHAT, b"{}", {"code": 1302, "msg": "too many at once"}, provider)
    assert failed.args[1] == "too many at once"


async def test_choices_are_joined_also_where_counts_are_texts() -> None:
    counts = {"prompt_tokens": "11", "completion_tokens": "7"}
    body = json.dumps({"id": "c", "choices": [{"message": {"content": "x"}}], "usage": counts}).encode()
    async with voted(saying(body)) as (_, served):
        status, reply, _ = await posted(served, "chat/completions", {"messages": [], "n": 2})
    assert (status, len(reply["choices"]), reply["usage"]["total_tokens"]) == (200, 2, 25)


def test_a_redirect_says_what_to_do(provider: HttpModel) -> None:
    assert "give the final address" in taken_of(CHAT, b"{}", b"", provider, 308).args[1]


def test_a_stream_of_responses_that_breaks_off_within_an_item_casts_no_vote(provider: HttpModel) -> None:
    body = written("responses", "openai", "streamed without an end", [SAID], {"model": "m"})
    assert isinstance(body, bytes)
    broken, _, _ = body.rpartition(b"event: response.output_item.done")
    request = ForwardedRequest.read(RESPONSES, b"{}", {}, "")
    answer = Response(status_code=200, headers=MappingProxyType({}), content=broken)
    taken = Exchange(request, Policy(), None).taken(answer, provider)
    assert isinstance(taken, ModelUnavailable)
    assert taken.kind == "broken"


def test_the_plain_and_the_streamed_form_are_among_them() -> None:
    assert {stream for _, stream in CASES} >= {None, STREAMED}
    assert all(PLAIN in EDITS[wire.name] for wire in WIRES)
