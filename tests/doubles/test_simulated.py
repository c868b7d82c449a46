"""The double as clients see it: whole and streamed replies, faults, and connections that its server has in common with the product."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from microagents import InvalidUsage, Prompt
from microagents.replies.reply_forms import system_with_instructions
from microagents.tasks.drift import Drift, Onward
from microagents.web import listening
from tests.doubles.simulated.faults import Fault, FaultInjector
from tests.doubles.simulated.server import Endpoint, Serving, serving

TASK = Drift()
WAIT_S = 60.0
ASKED = TASK.prompt(TASK.start())
PROMPT = Prompt(system=system_with_instructions(ASKED.system, Onward, TASK.format), user=ASKED.user)
RIGHT = "number = 22"
CHAT: Any = [{"role": "system", "content": PROMPT.system}, {"role": "user", "content": PROMPT.user}]
TURNS: Any = [{"role": "user", "content": [{"type": "text", "text": PROMPT.user}]}]


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


# -- connections -------------------------------------------------------------------------------------------------------


async def test_a_port_that_is_taken_is_said(served: Serving) -> None:
    port = int(served.url.rpartition(":")[2])
    with pytest.raises(InvalidUsage, match=f"nothing can be served on 127.0.0.1 port {port}"):
        async with serving(Endpoint(model="sim:perfect", task=TASK, port=port)):
            pass


async def raw(served: Serving, sent: bytes, *, within_s: float = WAIT_S) -> bytes:
    """What the endpoint answers to bytes, until it closes the connection."""
    host, port = served.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(sent)
        return await asyncio.wait_for(reader.read(), within_s)
    finally:
        writer.close()


@pytest.mark.slow
async def test_a_connection_without_a_whole_request_is_closed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "HEADERS_S", 0.2)
    async with serving(Endpoint(model="sim:perfect", task=TASK)) as served:
        assert await raw(served, b"GET /v1/mod") == b"", "closed, since its headers do not end"


async def test_silent_connections_make_room_for_one_that_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "MAX_UNADMITTED", 8)
    monkeypatch.setattr(listening, "PRESSED_HEADERS_S", 0.2)
    async with serving(Endpoint(model="sim:perfect", task=TASK)) as served:
        host, port = served.url.removeprefix("http://").split(":")
        opened = [await asyncio.open_connection(host, int(port)) for _ in range(8)]
        async with AsyncOpenAI(api_key="none", base_url=f"{served.url}/v1", max_retries=0) as client:
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
