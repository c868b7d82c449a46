"""Requests go on as they came, and the reply that comes back is one that the model gave, elected by what it does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from itertools import cycle
from typing import Any

import aiohttp
import openai
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from microagents.base.errors import InvalidUsage
from microagents.web.endpoint.callers import Caller
from microagents.web.endpoint.policy import Policy, ToolPolicy
from microagents.web.endpoint.server import Endpoint, Serving, serving
from tests.doubles.acting import Acting, Answer, Request, acting

ANY = Policy()
READ, DROP = ("read", {"path": "a.txt"}), ("drop", {"table": "users"})
TOOLS: Any = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}]
ASKED: dict[str, Any] = {"model": "any", "messages": [{"role": "user", "content": "Go on."}], "tools": TOOLS}


@asynccontextmanager
async def voted(
    answer: Answer, policy: Policy = ANY, *, option: str = "", **options: Any
) -> AsyncIterator[tuple[Acting, Serving]]:
    """Serve an endpoint before a double that speaks all wires."""
    options = {"callers": [Caller(policy=policy)], **options}
    async with acting(answer) as double:
        models = [f"openai:gpt@base_url={double.url}/v1{option}", f"anthropic:claude@base_url={double.url}{option}"]
        async with serving(Endpoint(models=models, **options)) as served:
            yield double, served


def saying(*said: Any) -> Answer:
    """Answer with one of these after the other."""
    turns = cycle(said)
    return lambda _: next(turns)


async def posted(
    served: Serving, path: str, body: object, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, Any], dict[str, str]]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"{served.url}/v1/{path}",
            data=BytesIO(data),
            headers={"content-type": "application/json", **(headers or {})},
        ) as response,
    ):
        return response.status, await response.json(), {k.lower(): v for k, v in response.headers.items()}


async def test_the_call_with_the_votes_wins_and_its_reply_comes_back_as_it_was_given() -> None:
    async with (
        voted(saying([DROP], [READ], [READ], [READ], [READ])) as (double, served),
        AsyncOpenAI(api_key="none", base_url=f"{served.url}/v1", max_retries=0) as client,
    ):
        reply = await client.chat.completions.create(**ASKED)
    (call,) = reply.choices[0].message.tool_calls or []
    assert (call.type == "function" and call.function.name, call.id) == ("read", "call_1_0")
    assert reply.choices[0].finish_reason == "tool_calls"
    assert reply.id == "chatcmpl-1-e1"
    assert len(double.requests) == 5  # four for it, one against it
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 10  # the winner's own
    extras: Any = reply.usage.model_extra
    assert extras["microagents"] == {
        "election": 1,
        "elected": True,
        "votes": "4 of 5",
        "samples": 5,
        "in_flight": 0,
        "input_tokens": 500,
        "output_tokens": 50,
        "cost_usd": None,
    }


async def test_the_body_goes_on_as_it_came_but_for_the_fields_that_are_named() -> None:
    messages = b'[ {"role":"user",   "content":"\\u00e9 1.0 1e2"} ]'
    body = b'{"model":"any","messages":%s,"unknown_field":{"b":1.50,"a":[ ]},"temperature":0,"seed":7,"store":true,"tools":[{}]}'
    async with voted(saying("done")) as (double, served):
        status, _, _ = await posted(
            served,
            "chat/completions?beta=true",
            body % messages,
            {"anthropic-beta": "x", "authorization": "Bearer theirs", "cookie": "c=1", "openai-beta": "y"},
        )
    assert status == 200
    first, second, third = double.requests
    for each in double.requests:
        assert messages in each.body
        assert b'"unknown_field":{"b":1.50,"a":[ ]}' in each.body
        assert (each.json["model"], each.json["store"], each.query) == ("gpt", False, "beta=true")
        assert each.headers["openai-beta"] == "y"
        assert "cookie" not in each.headers
        assert "theirs" not in str(each.headers)
    assert [(each.json["temperature"], each.json["seed"]) for each in (first, second, third)] == [
        (0, 7),
        (0.1, 8),
        (0.1, 9),
    ]


@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_each_wire_elects_calls_whole_and_streamed(path: str, *, is_streamed: bool) -> None:
    answers = saying([DROP], [READ, DROP], [DROP, READ], [READ, DROP], [DROP, READ])
    async with voted(answers) as (double, served):
        body = {"model": "m", "stream": is_streamed, "max_tokens": 100, "input": "x", "messages": [], "tools": []}
        if path.startswith("chat") and is_streamed:
            body["stream_options"] = {"include_usage": True}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{served.url}/v1/{path}", json=body) as response,
        ):
            text = await response.text()
            assert response.status == 200, text
            votes = response.headers["x-microagents-votes"]
    assert votes == "4 of 5"  # the order of parallel calls does not matter
    assert len(double.requests) == 5
    assert "_1_0" in text  # all items are of the first launched of the winners
    assert "_0_0" not in text
    assert "_2_0" not in text
    assert "-e1" in text
    assert '"microagents":' in text.replace(" ", "")


async def test_official_clients_read_the_stream_of_each_wire() -> None:
    async with (
        voted(saying([READ])) as (_, served),
        AsyncOpenAI(api_key="none", base_url=f"{served.url}/v1", max_retries=0) as client,
        AsyncAnthropic(api_key="none", base_url=served.url, max_retries=0) as anthropic,
    ):
        async with client.chat.completions.stream(model="m", messages=ASKED["messages"]) as chat:
            completion = await chat.get_final_completion()
        async with client.responses.stream(model="m", input="x") as responses:
            response = await responses.get_final_response()
        async with anthropic.messages.stream(model="m", max_tokens=9, messages=ASKED["messages"]) as messages:
            message = await messages.get_final_message()
    (call,) = completion.choices[0].message.tool_calls or []
    assert json.loads(call.function.arguments) == READ[1]
    assert completion.usage is None  # the client asked for none
    assert [each.type for each in response.output] == ["reasoning", "function_call"]
    assert [each.type for each in message.content] == ["thinking", "tool_use"]
    assert message.stop_reason == "tool_use"
    assert message.id.endswith("-e3")


async def test_texts_are_one_vote_and_have_the_wording_of_the_first() -> None:
    async with voted(saying("It is done.", "Done!", "I am ready.")) as (double, served):
        _, reply, _ = await posted(served, "chat/completions", ASKED)
        assert reply["choices"][0]["message"]["content"] == "It is done."
        assert len(double.requests) == 3


async def test_texts_vote_by_themselves_where_the_policy_says_so() -> None:
    policy = Policy(votes="text")
    async with voted(saying("four", "five", "four", "four  ", " four"), policy=policy) as (double, served):
        _, reply, _ = await posted(served, "chat/completions", ASKED)
    assert reply["choices"][0]["message"]["content"] == "four"
    assert len(double.requests) == 5


@pytest.mark.parametrize(("path", "form"), [
    ("chat/completions", {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}}),
    ("chat/completions", {"structured_outputs": {"json": {}}}),
    ("messages", {"output_config": {"format": {"type": "json_schema", "schema": {}}}}),
    ("messages", {"output_format": {"type": "json_schema", "schema": {}}}),
])  # fmt: skip
async def test_with_a_schema_the_value_votes(path: str, form: dict[str, Any]) -> None:
    texts = ('{"a": 1, "b": 2}', '{"a": 2}', '{"b": 2, "a": 1.0}', '{"a":1,"b":2}', '{"a":1,"b":2}')
    async with voted(saying(*texts)) as (double, served):
        _, reply, _ = await posted(served, path, {"model": "m", "max_tokens": 9, "messages": [], **form})
    assert json.dumps(texts[0]) in json.dumps(reply)
    assert len(double.requests) == 5


async def test_margins_are_the_tools_own_and_k_is_that_of_all_others() -> None:
    policy = Policy(tools={"read": ToolPolicy(effect="read_only"), "drop": ToolPolicy(effect="destructive")})
    for said, samples in (([READ], 1), ([DROP], 4), ([("other", {})], 3), ("the end", 3)):
        async with voted(saying(said), policy=policy) as (double, served):
            status, _, _ = await posted(served, "chat/completions", ASKED)
        assert (status, len(double.requests)) == (200, samples)


async def test_arguments_that_the_policy_ignores_cast_no_vote() -> None:
    calls = [[("read", {"path": "a.txt", "why": f"reason {number}"})] for number in range(3)]
    policy = Policy(tools={"read": ToolPolicy(ignore=("why",))})
    async with voted(saying(*calls), policy=policy) as (double, served):
        status, reply, _ = await posted(served, "chat/completions", ASKED)
    assert status == 200
    assert len(double.requests) == 3
    assert "reason 0" in json.dumps(reply)


async def test_a_vote_never_blocks_the_leader_is_answered_and_marked() -> None:
    different = [[("read", {"path": f"{number}"})] for number in range(100)]
    async with voted(saying(*different)) as (double, served):
        status, reply, headers = await posted(served, "chat/completions", ASKED)
        assert served.counts["not elected"] == 1
    assert status == 200
    assert len(double.requests) == 12  # four times the margin
    assert reply["id"] == "chatcmpl-0-e1-not-elected"
    assert headers["x-microagents-elected"] == "false"
    assert reply["usage"]["microagents"]["elected"] is False


async def test_only_a_declared_destructive_call_is_refused_and_says_how_to_free_it() -> None:
    different = [[("drop", {"table": "users", "why": f"{number}"})] for number in range(100)]
    policy = Policy(tools={"drop": ToolPolicy(effect="destructive")})
    async with voted(saying(*different), policy=policy) as (double, served):
        status, reply, headers = await posted(served, "chat/completions", ASKED)
    assert len(double.requests) == 16
    assert status == 409
    assert headers["x-should-retry"] == "false"
    assert "they differ in why" in reply["error"]["message"]
    assert '[tools.drop] ignore = ["why"]' in reply["error"]["message"]


@pytest.mark.parametrize(
    ("path", "field", "said"),
    [
        ("responses", {"background": True}, "background is not served"),
        ("responses", {"previous_response_id": "resp_1"}, "previous_response_id is not served"),
        ("responses", {"conversation": {"id": "c"}}, "conversation is not served"),
        ("chat/completions", {"n": 200, "stream": True}, "`int` <= 128 - at `$.n`"),
        ("chat/completions", {"n": 0}, "`int` >= 1 - at `$.n`"),
        ("responses", {"include": {"a": 1}}, "got `object` - at `$.include`"),
        ("chat/completions", {"temperature": "hot"}, "Expected `float | null`, got `str` - at `$.temperature`"),
    ],
)
async def test_what_cannot_be_voted_on_is_refused_by_name(path: str, field: dict[str, Any], said: str) -> None:
    async with voted(saying("x")) as (_, served):
        status, reply, _ = await posted(served, path, {**ASKED, **field})
    assert status == 400
    assert said in reply["error"]["message"]


async def test_two_choices_are_two_elections() -> None:
    async with voted(saying("x")) as (double, served):
        _, reply, headers = await posted(served, "chat/completions", {**ASKED, "n": 2})
    assert [each["index"] for each in reply["choices"]] == [0, 1]
    assert len(double.requests) == 6
    assert all("n" not in each.json for each in double.requests)
    assert reply["usage"]["completion_tokens"] == 20
    sums = reply["usage"]["microagents"]
    assert (sums["samples"], sums["votes"], headers["x-microagents-output-tokens"]) == (6, "3 of 3, 3 of 3", "60")


async def test_two_streamed_choices_are_two_elections_and_their_events_have_their_indexes() -> None:
    async with (
        voted(saying([READ])) as (double, served),
        AsyncOpenAI(api_key="none", base_url=f"{served.url}/v1", max_retries=0) as client,
    ):
        usage = {"include_usage": True, "include_obfuscation": False}
        async with client.chat.completions.stream(**ASKED, n=2, stream_options=usage) as stream:  # type: ignore[arg-type]
            ids = {event.chunk.id async for event in stream if event.type == "chunk"}
            completion = await stream.get_final_completion()
    assert ids == {completion.id}
    calls = [each.message.tool_calls or [] for each in completion.choices]
    assert [[json.loads(each.function.arguments) for each in made] for made in calls] == [[READ[1]]] * 2
    assert [each.finish_reason for each in completion.choices] == ["tool_calls"] * 2
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (100, 20)
    assert len(double.requests) == 6
    assert double.requests[0].json["stream_options"] == usage


@pytest.mark.parametrize(("line_end", "end"), [
    ("\n", "data: [DONE]\n\n"), ("\r\n", "data: [DONE]\r\n\r\n"), ("\n", "data:[DONE]\n\n"), ("\n", "data: [DONE]"), ("\n", ""),
])  # fmt: skip
async def test_streams_of_several_choices_are_joined_however_their_lines_end(line_end: str, end: str) -> None:
    choice = {"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}
    event = json.dumps({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]})
    async with (
        voted(saying(f"data: {event}{2 * line_end}{end}".encode())) as (_, served),
        AsyncOpenAI(api_key="none", base_url=f"{served.url}/v1", max_retries=0) as client,
    ):
        stream = await client.chat.completions.create(model="m", messages=[], n=2, stream=True)
        choices = [each.index async for chunk in stream for each in chunk.choices]
    assert choices == [0, 1]


async def test_the_mark_of_an_election_changes_no_argument_that_equals_the_id() -> None:
    use = {"type": "tool_use", "id": "t", "name": "read", "input": {"path": "1"}}
    body = {"id": "1", "content": [use], "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 1}}
    async with voted(saying(json.dumps(body).encode())) as (_, served):
        _, reply, _ = await posted(served, "messages", {"model": "m", "max_tokens": 9, "messages": []})
    assert (reply["id"], reply["content"]) == ("1-e1", [use])


async def test_a_choice_without_a_reply_fails_the_stream_of_all() -> None:
    async with voted(saying(400)) as (_, served):
        status, reply, _ = await posted(served, "chat/completions", {**ASKED, "n": 2, "stream": True})
    assert (status, reply["error"]["message"]) == (400, "the double answers 400")


async def test_a_providers_refusal_comes_back_in_its_own_words_and_is_not_asked_again() -> None:
    async with voted(saying(400)) as (double, served):
        status, reply, _ = await posted(served, "chat/completions", ASKED)
    assert (status, reply["error"]["message"]) == (400, "the double answers 400")
    assert len(double.requests) <= 3


@pytest.mark.slow
async def test_an_upstream_that_fails_ends_every_request_in_seconds_with_its_words_and_status() -> None:
    """Also those that wait unsent while others try it, and those of streams, whose clients know by the status to try again."""
    asked = {"model": "m", "max_tokens": 9, "messages": []}
    async with asyncio.timeout(20), voted(saying(500)) as (_, served):
        bodies = [{**asked, "metadata": {"user_id": str(number)}, "stream": number > 8} for number in range(16)]
        answers = await asyncio.gather(*[posted(served, "messages", body) for body in bodies])
    told = {(status, reply["error"]["message"]) for status, reply, _ in answers}
    assert told == {(500, "the double answers 500")}


async def test_one_failure_of_the_upstream_is_no_clients_matter() -> None:
    async with voted(saying(500, "x", "x", "x")) as (double, served):
        status, _, _ = await posted(served, "chat/completions", ASKED)
    assert status == 200
    assert len(double.requests) == 4


async def test_a_wire_that_no_model_speaks_is_refused_by_name() -> None:
    async with (
        acting(saying("x")) as double,
        serving(Endpoint(models=[f"openai:m@base_url={double.url}/v1"])) as served,
    ):
        for path in ("messages", "messages/count_tokens"):
            status, reply, _ = await posted(served, path, {"model": "m", "max_tokens": 9, "messages": []})
            assert (status, reply["type"]) == (400, "error")
            assert "no model here speaks this wire" in reply["error"]["message"]
        status, reply, _ = await posted(served, "embeddings", {"model": "m"})
        assert (status, served.base_urls) == (404, {"openai": f"{served.url}/v1"})
        assert reply["error"]["message"].endswith("is not served, but POST /v1/chat/completions and /v1/responses")


@pytest.mark.parametrize("spec", ["sim:perfect", "tiny:hanoi", "openai-decisions:m@base_url=http://127.0.0.1:9"])
async def test_models_without_a_wire_are_refused_at_the_start(spec: str) -> None:
    with pytest.raises(InvalidUsage, match=r"cannot be served|cannot be found|no file|reads"):
        async with serving(Endpoint(models=[spec])):
            pass


async def test_an_upstream_error_keeps_the_key_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def echo(request: Request) -> bytes:
        return json.dumps({"error": {"message": f"bad key {request.headers['authorization']}", "code": 400}}).encode()

    async with acting(echo) as double:
        monkeypatch.setenv("SECRET_OF_TEST", "sk-very-secret-key")
        model = f"openai:m@base_url={double.url}/v1,api_key_env=SECRET_OF_TEST"
        async with serving(Endpoint(models=[model])) as served:
            status, reply, _ = await posted(served, "chat/completions", ASKED)
    assert status == 400
    assert "very-secret" not in json.dumps(reply)


async def test_official_clients_raise_their_own_errors() -> None:
    async with (
        voted(saying(400)) as (_, served),
        AsyncOpenAI(api_key="none", base_url=f"{served.url}/v1") as client,
    ):
        with pytest.raises(openai.BadRequestError, match="the double answers 400"):
            await client.chat.completions.create(**ASKED)


async def test_counts_of_tokens_go_on_without_a_vote() -> None:
    async with voted(saying("x")) as (double, served):
        status, reply, _ = await posted(served, "messages/count_tokens", {"model": "m", "messages": []})
    assert (status, reply) == (200, {"input_tokens": 100})
    assert [each.path for each in double.requests] == ["/v1/messages/count_tokens"]
    assert double.requests[0].json["model"] == "claude"


async def test_models_are_listed() -> None:
    async with (
        voted(saying("x")) as (_, served),
        AsyncOpenAI(api_key="none", base_url=f"{served.url}/v1") as client,
        AsyncAnthropic(api_key="none", base_url=served.url) as anthropic,
    ):
        assert len((await client.models.list()).data) == 2
        assert len((await anthropic.models.list()).data) == 2


async def test_a_client_that_counts_on_stored_reasoning_gets_the_reasoning_itself() -> None:
    async with voted(saying("x"), k=1) as (double, served):
        for store in ({}, {"store": True}, {"store": False}, {"include": ["file_search_call.results"]}):
            assert (await posted(served, "responses", {"model": "m", "input": "x", **store}))[0] == 200
    assert all(each.json["store"] is False for each in double.requests)
    assert [each.json.get("include") for each in double.requests] == [
        ["reasoning.encrypted_content"],
        ["reasoning.encrypted_content"],
        None,
        ["file_search_call.results", "reasoning.encrypted_content"],
    ]


async def test_a_model_that_refuses_to_include_its_reasoning_is_asked_without_it() -> None:
    def answer(request: Request) -> bytes | str:
        if "include" in request.json:
            return json.dumps({"error": {"message": "Encrypted content is not supported with this model."}}).encode()
        return "x"

    async with voted(answer, k=1) as (double, served):
        assert (await posted(served, "responses", {"model": "m", "input": "x"}))[0] == 200
        assert (await posted(served, "responses", {"model": "m", "input": "y"}))[0] == 200
    assert len(double.requests) == 3
