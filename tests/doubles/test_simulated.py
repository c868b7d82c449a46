"""The endpoint as clients see it: whole and streamed replies, errors, faults, and who may use it."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncIterator
from typing import Any, get_type_hints

import aiohttp
import openai
import pytest
from anthropic import AsyncAnthropic
from anthropic.types import message_create_params
from anthropic.types.beta import message_create_params as beta_message_create_params
from openai import AsyncOpenAI
from openai.types.chat import completion_create_params
from openai.types.responses import response_create_params

from microagents import Call, InvalidUsage, Prompt
from microagents.models.json_schema import strict_schema
from microagents.replies.chat import system_with_instructions
from microagents.tasks.drift import Drift, Onward
from microagents.web import listening
from tests.doubles.simulated import server
from tests.doubles.simulated.faults import Fault, FaultInjector
from tests.doubles.simulated.server import Endpoint, Serving, serving

TASK = Drift()
WAIT_S = 60.0
ASKED = TASK.prompt(TASK.start())
PROMPT = Prompt(system=system_with_instructions(ASKED.system, Onward, TASK.format), user=ASKED.user)
RIGHT = "number = 22"
CHAT: Any = [{"role": "system", "content": PROMPT.system}, {"role": "user", "content": PROMPT.user}]
TURNS: Any = [{"role": "user", "content": [{"type": "text", "text": PROMPT.user}]}]
WRONG = "sim:perfect@error=1,alternatives=1000000"
"""Each sample is another wrong reply."""


@pytest.fixture
async def served() -> AsyncIterator[Serving]:
    async with serving(Endpoint(model="sim:perfect", task=TASK)) as found:
        yield found


@pytest.fixture
async def chat(served: Serving) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(api_key="none", base_url=f"{served.url}/v1", max_retries=0) as client:
        yield client


@pytest.fixture
async def messages(served: Serving) -> AsyncIterator[AsyncAnthropic]:
    async with AsyncAnthropic(api_key="none", base_url=served.url, max_retries=0) as client:
        yield client


async def test_chat_gives_as_many_choices_as_asked_for_and_bills_the_prompt_once(chat: AsyncOpenAI) -> None:
    one = await chat.chat.completions.create(model="any", messages=CHAT)
    three = await chat.chat.completions.create(model="any", messages=CHAT, n=3)
    assert [(each.index, each.finish_reason) for each in three.choices] == [(0, "stop"), (1, "stop"), (2, "stop")]
    assert all(str(each.message.content).endswith(RIGHT) for each in three.choices)
    assert one.usage is not None
    assert three.usage is not None
    assert three.usage.prompt_tokens == one.usage.prompt_tokens > 0
    assert three.usage.completion_tokens > 1.5 * one.usage.completion_tokens
    assert three.model == "any"


@pytest.mark.slow
async def test_equal_requests_draw_one_sample_after_the_other_with_choices_or_without() -> None:
    async def drawn(*choices: int) -> list[str | None]:
        async with (
            serving(Endpoint(model=WRONG, task=TASK)) as served,
            AsyncOpenAI(api_key="none", base_url=f"{served.url}/v1") as client,
        ):
            replies = [await client.chat.completions.create(model="m", messages=CHAT, n=n) for n in choices]
        return [each.message.content for reply in replies for each in reply.choices]

    singly = await drawn(1, 1, 1, 1)
    assert len(set(singly)) == 4
    assert await drawn(1, 3) == singly


async def test_a_streamed_chat_has_every_choice_and_usage_if_asked_for(chat: AsyncOpenAI) -> None:
    whole = await chat.chat.completions.create(model="m", messages=CHAT, n=2)
    texts, finishes, usages = {0: "", 1: ""}, {}, []
    options: Any = {"include_usage": True}
    async for chunk in await chat.chat.completions.create(
        model="m", messages=CHAT, n=2, stream=True, stream_options=options
    ):
        usages += [chunk.usage] * (chunk.usage is not None)
        for each in chunk.choices:
            texts[each.index] += each.delta.content or ""
            finishes[each.index] = each.finish_reason
    assert all(text.endswith(RIGHT) for text in texts.values())
    assert finishes == {0: "stop", 1: "stop"}
    assert [each and each.prompt_tokens for each in usages] == [whole.usage and whole.usage.prompt_tokens]


@pytest.mark.slow
async def test_a_cut_off_reply_says_so_on_each_wire(chat: AsyncOpenAI, messages: AsyncAnthropic) -> None:
    asked: Any = {"model": "m", "max_tokens": 20}
    chosen = await chat.chat.completions.create(**asked, messages=CHAT)
    assert (chosen.choices[0].finish_reason, chosen.usage and chosen.usage.completion_tokens) == ("length", 20)
    response = await chat.responses.create(
        model="m", input=PROMPT.user, instructions=PROMPT.system, max_output_tokens=20
    )
    assert (response.status, response.incomplete_details and response.incomplete_details.reason) == (
        "incomplete",
        "max_output_tokens",
    )
    message = await messages.messages.create(**asked, messages=TURNS, system=PROMPT.system)
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 20)


@pytest.mark.slow
async def test_responses_are_whole_or_streamed(chat: AsyncOpenAI) -> None:
    asked: Any = {"model": "m", "input": PROMPT.user, "instructions": PROMPT.system}
    whole = await chat.responses.create(**asked)
    async with chat.responses.stream(**asked) as stream:
        streamed = await stream.get_final_response()
    for response in (whole, streamed):
        assert response.status == "completed"
        assert response.output_text.endswith(RIGHT)
        assert response.usage is not None
        assert response.usage.input_tokens > 0


async def test_messages_are_whole_or_streamed(messages: AsyncAnthropic) -> None:
    asked: Any = {
        "model": "m",
        "max_tokens": 1000,
        "messages": TURNS,
        "system": [{"type": "text", "text": PROMPT.system}],
    }
    whole = await messages.messages.create(**asked)
    async with messages.messages.stream(**asked) as stream:
        streamed = await stream.get_final_message()
    for message in (whole, streamed):
        (block,) = message.content
        assert getattr(block, "text", "").endswith(RIGHT)
        assert (message.stop_reason, message.usage.input_tokens > 0) == ("end_turn", True)


async def test_a_request_for_no_tokens_draws_nothing(messages: AsyncAnthropic, served: Serving) -> None:
    message = await messages.messages.create(model="m", max_tokens=0, messages=TURNS)
    assert (message.content, message.usage.output_tokens, served.samples) == ([], 0, 0)


async def test_both_sdks_list_the_model(chat: AsyncOpenAI, messages: AsyncAnthropic) -> None:
    assert [each.id async for each in chat.models.list()] == ["sim:perfect"]
    assert [each.id async for each in messages.models.list()] == ["sim:perfect"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"n": 0}, r"\$\.n"),
        ({"messages": []}, "a message of the user is missing"),
        ({"messages": [*CHAT, {"role": "assistant", "content": "22"}]}, "without earlier turns"),
        ({"messages": [{"role": "user", "content": "What is x?"}]}, "a question of Drift has them"),
    ],
)
async def test_what_is_not_served_is_refused_clearly(chat: AsyncOpenAI, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(openai.BadRequestError, match=said):
        await chat.chat.completions.create(**{"model": "m", "messages": CHAT, **changed})


async def test_what_is_no_json_is_refused(served: Serving) -> None:
    async with aiohttp.ClientSession() as session:
        for body, status in ((b"[" * 100_000, 400), (b"", 400)):
            async with session.post(
                f"{served.url}/v1/chat/completions", data=body, headers={"content-type": "application/json"}
            ) as got:
                assert (got.status, (await got.json())["error"]["type"]) == (status, "invalid_request_error")
        async with session.get(f"{served.url}/v1/nothing") as got:
            assert (got.status, (await got.json())["error"]["type"]) == (404, "not_found_error")


# -- parameters --------------------------------------------------------------------------------------------------------

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
ASKS: dict[str, dict[str, Any]] = {
    "chat": {"model": "m", "messages": CHAT},
    "responses": {"model": "m", "input": CHAT},
    "messages": {"model": "m", "messages": TURNS, "system": PROMPT.system, "max_tokens": 1000},
}
PARAMETERS = {
    "chat": (
        completion_create_params.CompletionCreateParamsBase,
        completion_create_params.CompletionCreateParamsStreaming,
    ),
    "responses": (
        response_create_params.ResponseCreateParamsBase,
        response_create_params.ResponseCreateParamsStreaming,
    ),
    "messages": (message_create_params.MessageCreateParamsBase, beta_message_create_params.MessageCreateParamsBase),
}
"""All parameters of the SDKs that are installed, so that one of a later version fails here until it is classified."""
HONOURED = {
    "chat": {
        "max_completion_tokens", "max_tokens", "messages", "model", "n", "stream", "stream_options", "temperature",
    },
    "responses": {"input", "instructions", "max_output_tokens", "model", "stream", "temperature"},
    "messages": {"max_tokens", "messages", "model", "stream", "system", "temperature"},
}  # fmt: skip
HARMLESS = {
    "chat": {
        *("metadata", "parallel_tool_calls", "prediction", "prompt_cache_key", "prompt_cache_options"),
        *("prompt_cache_retention", "safety_identifier", "store", "user"),
    },
    "responses": {
        *("max_tool_calls", "metadata", "parallel_tool_calls", "prompt_cache_key", "prompt_cache_options"),
        *("prompt_cache_retention", "safety_identifier", "store", "user"),
    },
    "messages": {"cache_control", "diagnostics", "metadata"},
}


async def asked(url: str, wire: str, **given: Any) -> tuple[int, Any]:
    """Status and JSON of the answer to a request with more parameters."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}{PATHS[wire]}", json={**ASKS[wire], **given}) as got,
    ):
        return got.status, await got.json()


def named_by(wire: str, body: Any) -> str:
    """The parameter that a refusal names, in the form of its wire."""
    error = body["error"]
    assert error["type"] == "invalid_request_error"
    if wire == "messages":
        return str(error["message"]).split("'")[1]
    assert error["code"] == "unsupported_parameter"
    return str(error["param"])


@pytest.fixture
async def real() -> AsyncIterator[str]:
    """Address of an endpoint whose model is not simulated."""
    async with serving(Endpoint(model=f"{__file__}:parrot")) as found:
        yield found.url


async def parrot(call: Call) -> str:
    """Answer with what of a request reached the model."""
    return f"{call.prompt.user} {call.max_output_tokens} {call.temperature}"


@pytest.mark.parametrize("wire", PATHS)
async def test_each_parameter_of_the_sdks_is_honoured_harmless_or_refused_by_name(real: str, wire: str) -> None:
    names = set[str]().union(*[get_type_hints(each).keys() for each in PARAMETERS[wire]])
    assert names >= HARMLESS[wire]
    plain = (await asked(real, wire))[1]
    for name in sorted(names - HONOURED[wire]):
        status, body = await asked(real, wire, **{name: "x"})
        if name in HARMLESS[wire]:
            assert (status, sorted(body)) == (200, sorted(plain)), name
        else:
            assert (status, named_by(wire, body)) == (400, name), name
        assert (await asked(real, wire, **{name: None}))[0] == 200, f"null asks for no {name}"


@pytest.mark.parametrize("wire", PATHS)
async def test_each_honoured_parameter_is_read(real: str, wire: str) -> None:
    for name in sorted(HONOURED[wire]):
        status, body = await asked(real, wire, **{name: {"of": "another type"}})
        assert (status, name in body["error"]["message"]) == (400, True), name


@pytest.mark.parametrize(
    ("wire", "given"),
    [
        ("chat", {"max_tokens": 77, "temperature": 0.5}),
        ("responses", {"max_output_tokens": 77, "temperature": 0.5}),
        ("messages", {"max_tokens": 77, "temperature": 0.5}),
    ],
)
async def test_the_limit_and_temperature_reach_the_model(real: str, wire: str, given: dict[str, Any]) -> None:
    assert " 77 0.5" in json.dumps((await asked(real, wire, **given))[1])


@pytest.mark.parametrize(
    ("wire", "given", "name"),
    [
        ("chat", {"tools": [{"type": "function"}]}, "tools"),
        ("chat", {"response_format": {"type": "json_object"}}, "response_format"),
        ("chat", {"logprobs": True}, "logprobs"),
        ("chat", {"no_such_parameter": 1}, "no_such_parameter"),
        ("chat", {"messages": [{"role": "user", "content": "a", "name": "Ann"}]}, "messages[0].name"),
        ("responses", {"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format"),
        ("responses", {"reasoning": {"summary": "auto"}}, "reasoning.summary"),
        ("messages", {"thinking": {"type": "adaptive"}}, "thinking"),
        ("messages", {"output_config": {"format": {"type": "json_schema", "schema": {}}}}, "output_config.format"),
    ],
)
async def test_a_request_beyond_replies_is_refused(real: str, wire: str, given: dict[str, Any], name: str) -> None:
    status, body = await asked(real, wire, **given)
    assert (status, named_by(wire, body)) == (400, name)


@pytest.mark.parametrize(
    ("wire", "given"),
    [
        ("chat", {"tools": [], "tool_choice": "auto", "response_format": {"type": "text"}, "top_p": 1, "logprobs": False}),
        ("responses", {"include": ["reasoning.encrypted_content"], "text": {"format": {"type": "text"}}, "tools": []}),
        ("responses", {"input": [{"type": "message", "role": "user", "content": "a"}], "store": False, "reasoning": {}}),
        ("messages", {"thinking": {"type": "disabled"}, "tool_choice": {"type": "auto"}, "stop_sequences": []}),
    ],
)  # fmt: skip
async def test_values_that_ask_for_nothing_are_taken(real: str, wire: str, given: dict[str, Any]) -> None:
    assert (await asked(real, wire, **given))[0] == 200


async def test_a_simulated_model_is_asked_with_the_effort_and_schema_of_a_real_one() -> None:
    class InJson(Drift):
        format = "json"

    task = InJson()
    system = system_with_instructions(ASKED.system, Onward, "json")
    messages = [{"role": "system", "content": system}, {"role": "user", "content": PROMPT.user}]
    named = {"name": "Onward", "strict": True, "schema": strict_schema(Onward)}
    form = {"type": "json_schema", "json_schema": named}
    async with serving(Endpoint(model="sim:perfect", task=task)) as served:
        given: dict[str, Any] = {"messages": messages, "reasoning_effort": "low", "service_tier": "flex"}
        assert (await asked(served.url, "chat", **given, response_format=form))[0] == 200
        other = {**form, "json_schema": {**named, "schema": {"type": "object"}}}
        status, body = await asked(served.url, "chat", **given, response_format=other)
        assert (status, named_by("chat", body)) == (400, "response_format")


# -- faults ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "error"), [("429", openai.RateLimitError)])
async def test_a_status_on_request_is_an_error_of_the_sdk(kind: str, error: type[Exception]) -> None:
    async with (
        serving(Endpoint(model="sim:perfect", task=TASK, faults=[Fault(kind=kind, share=1.0)])) as served,
        AsyncOpenAI(api_key="none", base_url=f"{served.url}/v1", max_retries=0) as client,
    ):
        with pytest.raises(error):
            await client.chat.completions.create(model="m", messages=CHAT)
    assert dict(served.faults) == {kind: 1}
    assert served.samples == 0


async def test_a_request_that_hangs_ends_with_its_client_or_the_server() -> None:
    async with serving(Endpoint(model="sim:perfect", task=TASK, faults=[Fault(kind="hang", share=1.0)])) as served:
        async with AsyncAnthropic(api_key="none", base_url=served.url, max_retries=0) as client:
            asking = asyncio.ensure_future(client.messages.create(model="m", max_tokens=9, messages=TURNS))
            while not served.faults:  # noqa: ASYNC110 - a counter tells nobody
                await asyncio.sleep(0)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        assert dict(served.faults) == {"hang": 1}


@pytest.mark.parametrize("text", ["429", "429:x", "429:nan", "200:0.5", "explode:0.5"])
def test_a_fault_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidUsage, match="write a fault as KIND:SHARE"):
        Fault.parse(text)


def test_faults_meet_shares_by_seed() -> None:
    # By a binomial law, one seed in 10^9 is further off; this one is not.
    faults = [Fault.parse("429:0.1"), Fault.parse("reset:0.02")]
    drawn, again = (
        [source.next() for _ in range(10_000)] for source in (FaultInjector(faults, 1), FaultInjector(faults, 1))
    )
    assert drawn == again
    assert abs(drawn.count("429") - 1000) < 200
    assert abs(drawn.count("reset") - 200) < 90
    with pytest.raises(InvalidUsage, match=r"must add up to at most 1, not 1\.2"):
        FaultInjector([Fault.parse("429:0.6"), Fault.parse("500:0.6")], 0)


# -- who may use it ----------------------------------------------------------------------------------------------------


async def test_a_token_is_needed_where_one_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []
    compare = hmac.compare_digest

    def comparing(sent: bytes, own: bytes) -> bool:
        compared.append(sent)
        return compare(sent, own)

    monkeypatch.setattr(hmac, "compare_digest", comparing)
    async with serving(Endpoint(model="sim:perfect", task=TASK, host="0.0.0.0", token="let me in")) as served:
        url = served.url.replace("0.0.0.0", "127.0.0.1")
        for key in ("", "let me", "let me in!", "l\u00e9t"):
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{url}/v1/models", headers={"x-api-key": key}) as got,
            ):
                assert got.status == 401
        assert len(compared) == 4, "in a time that tells nothing"
        async with (
            AsyncOpenAI(api_key="let me in", base_url=f"{url}/v1") as chat,
            AsyncAnthropic(api_key="let me in", base_url=url) as other,
        ):
            assert (
                [each.id async for each in chat.models.list()]
                == [each.id async for each in other.models.list()]
                == ["sim:perfect"]
            )


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5"])
async def test_without_a_token_no_other_machine_is_served(host: str) -> None:
    with pytest.raises(
        InvalidUsage,
        match="lets other machines use the model: name the environment variable of a token with --token-env",
    ):
        async with serving(Endpoint(model="sim:perfect", task=TASK, host=host)):
            pass


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"host": "evil.example"}, 403), ({"content-type": "text/plain"}, 400), ({"content-encoding": "gzip"}, 415)],
)
async def test_a_web_page_in_a_browser_of_this_machine_cannot_ask(
    served: Serving, headers: dict[str, str], status: int
) -> None:
    # A page may send text/plain to any address without asking, and its name may lead to 127.0.0.1.
    sent = {"content-type": "application/json", **headers}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{served.url}/v1/chat/completions", data=b"{}", headers=sent) as got,
    ):
        assert got.status == status
    assert served.requests == 0


async def test_a_port_that_is_taken_is_said(served: Serving) -> None:
    port = int(served.url.rpartition(":")[2])
    with pytest.raises(InvalidUsage, match=f"nothing can be served on 127.0.0.1 port {port}"):
        async with serving(Endpoint(model="sim:perfect", task=TASK, port=port)):
            pass


# -- any model ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_another_model_needs_no_task_and_its_failures_are_those_of_a_provider() -> None:
    async with (
        serving(Endpoint(model="sim:perfect", task=TASK, faults=[Fault(kind="429", share=0.5)])) as behind,
        serving(Endpoint(model=f"openai:m@base_url={behind.url}/v1")) as served,
        AsyncOpenAI(api_key="none", base_url=f"{served.url}/v1", max_retries=0) as client,
    ):
        asked = [client.chat.completions.create(model="m", messages=CHAT) for _ in range(20)]
        replies = await asyncio.gather(*asked, return_exceptions=True)
    good = [each for each in replies if not isinstance(each, BaseException)]
    assert all(str(each.choices[0].message.content).endswith(RIGHT) for each in good)
    assert {type(each) for each in replies if isinstance(each, BaseException)} == {openai.RateLimitError}
    assert len(good) == 20 - behind.faults["429"]


async def raw(served: Serving, sent: bytes, *, within_s: float = WAIT_S) -> bytes:
    """What the endpoint answers to bytes, until it closes the connection."""
    host, port = served.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(sent)
        return await asyncio.wait_for(reader.read(), within_s)
    finally:
        writer.close()


@pytest.mark.parametrize("host", ["::1", "evil.example", ""])
async def test_a_host_that_is_not_this_machine_or_no_host_is_refused(served: Serving, host: str) -> None:
    answer = await raw(served, f"GET /v1/models HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    assert answer.split(b"\r\n")[0] in {
        b"HTTP/1.1 403 Forbidden",
        b"HTTP/1.1 400 Bad Request",
        b"HTTP/1.0 400 Bad Request",
    }, answer


async def test_malformed_headers_are_refused_and_no_token_of_them_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    async with serving(Endpoint(model="sim:perfect", task=TASK, token="let me in")) as served:
        sent = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer let me in\r\nbad header\x00: \xff\r\n\r\n"
        assert b" 400 " in (await raw(served, sent)).split(b"\r\n")[0]
    assert "let me in" not in "".join(capfd.readouterr())


@pytest.mark.slow
async def test_a_connection_without_an_admitted_request_is_closed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "HEADERS_S", 0.2)
    async with serving(Endpoint(model="sim:perfect", task=TASK, token="let me in")) as served:
        assert await raw(served, b"GET /v1/mod") == b"", "closed, since its headers do not end"
        refused = await raw(served, b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 401 " in refused.split(b"\r\n")[0], "closed after the refusal, too, though it would stay open"


async def test_silent_connections_make_room_for_one_that_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "MAX_UNADMITTED", 8)
    monkeypatch.setattr(listening, "PRESSED_HEADERS_S", 0.2)
    async with serving(Endpoint(model="sim:perfect", task=TASK, token="let me in")) as served:
        host, port = served.url.removeprefix("http://").split(":")
        opened = [await asyncio.open_connection(host, int(port)) for _ in range(8)]
        async with AsyncOpenAI(api_key="let me in", base_url=f"{served.url}/v1", max_retries=0) as client:
            assert (await client.chat.completions.create(model="m", messages=CHAT)).choices
        assert await asyncio.wait_for(opened[0][0].read(), WAIT_S) == b"", "the oldest one was closed for it"
        for _, writer in opened:
            writer.close()


async def test_more_connections_than_there_is_room_for_are_all_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "MAX_UNADMITTED", 8)
    monkeypatch.setattr(listening, "connections_allowed", lambda: 16)
    asked = b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    async with serving(Endpoint(model="sim:perfect", task=TASK)) as served:
        answers = await asyncio.gather(*[raw(served, asked) for _ in range(80)])
    assert [answer.split(b"\r\n")[0] for answer in answers] == [b"HTTP/1.1 200 OK"] * 80


async def test_bodies_that_are_too_large_together_are_refused_until_there_is_room(
    served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_BYTES_IN_HAND", 100)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 90\r\n"
    host, port = served.url.removeprefix("http://").split(":")
    reader, held = await asyncio.open_connection(host, int(port))
    held.write(head + b"Expect: 100-continue\r\n\r\n")
    assert b" 100 " in await asyncio.wait_for(reader.readline(), WAIT_S), "its body is waited for"
    answer = await raw(served, head + b"Connection: close\r\n\r\n" + b" " * 90)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 5" in answer.lower()
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["type"] == "server_error"
    held.close()


@pytest.mark.slow
async def test_a_body_that_does_not_end_is_given_up(served: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "BODY_S", 0.2)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 99\r\n"
    assert b" 408 " in (await raw(served, head + b"Connection: close\r\n\r\n{")).split(b"\r\n")[0]
