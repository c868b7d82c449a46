"""The strict double: it refuses what real servers refuse, and its replies are read by the SDKs of their providers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from copy import deepcopy
from typing import Any

import aiohttp
import pytest
from anthropic import AsyncAnthropic
from msgspec import Struct
from openai import AsyncOpenAI

from tests.doubles.dialects import Call, Said
from tests.doubles.histories import Heard, seal
from tests.doubles.strict_wires import StrictWires, strict_wires

SAID = Said(calls=(Call("look_up", {"order": 7}), Call("orders", {})), text="I look.", reasoning="7 it is")
PATHS = {"chat": "/chat/completions", "responses": "/responses", "messages": "/v1/messages"}


@pytest.fixture
async def server() -> AsyncIterator[StrictWires]:
    async with strict_wires(lambda _: SAID) as server:
        yield server


def function(name: str, arguments: object = '{"order": 7}') -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def chat_call(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "type": "function", "function": function("look_up"), **more}


def chat_result(name: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": name, "content": "paid"}


def use(name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": "look_up", "input": {"order": 7}}


def result(name: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": name, "content": "paid"}


def item(number: int, mark: str = "r1") -> dict[str, Any]:
    place = {"id": f"fc_{mark}_{number}", "call_id": f"call_{number}"}
    return {"type": "function_call", **place, **function("look_up")}


def output(number: int) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"call_{number}", "output": "paid"}


SCHEMA = {"type": "object", "properties": {"order": {"type": "integer"}}}
USER = {"role": "user", "content": "Pay order 7 back."}
TEXT = {"type": "text", "text": "I look."}
THOUGHT = {"type": "thinking", "thinking": "7 it is", "signature": seal("m", "7 it is")}
REASONING = {"type": "reasoning", "id": "rs_r1", "summary": [], "encrypted_content": seal("m", "rs_r1")}
CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "You work on a goal."},
        USER,
        {"role": "assistant", "content": None, "tool_calls": [chat_call("callNr001"), chat_call("callNr002")]},
        chat_result("callNr001"),
        chat_result("callNr002"),
    ],
    "tools": [{"type": "function", "function": {"name": "look_up", "description": "Looks.", "parameters": SCHEMA}}],
}
RESPONSES: dict[str, Any] = {
    "model": "m",
    "input": [USER, REASONING, item(0), item(1), output(0), output(1)],
    "tools": [{"type": "function", "name": "look_up", "parameters": SCHEMA}],
}
MESSAGES: dict[str, Any] = {
    "model": "m",
    "max_tokens": 64,
    "messages": [
        USER,
        {"role": "assistant", "content": [THOUGHT, TEXT, use("c1"), use("c2")]},
        {"role": "user", "content": [result("c1"), result("c2"), TEXT]},
    ],
    "tools": [{"name": "look_up", "description": "Looks.", "input_schema": SCHEMA}],
}
WHOLE: Mapping[str, Mapping[str, Any]] = {"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES}
LEFT_OUT = object()


class Broken(Struct, frozen=True):
    """A whole body with changes, by their places."""

    changes: Mapping[str, object]
    words: str
    family: str = "openai"

    def body(self, wire: str) -> dict[str, Any]:
        found: Any = deepcopy(WHOLE[wire])
        for place, value in self.changes.items():
            *above, last = [int(part) if part.isdecimal() else part for part in place.split(".")]
            inside = found
            for part in above:
                inside = inside[part]
            if value is LEFT_OUT:
                del inside[last]
            else:
                inside[last] = value
        return dict(found)


REPLY = {"role": "assistant", "content": None}
OF_TOOL, OF_CALL = "tools.0.function", "messages.2.tool_calls.0"
ARGUMENTS = f"{OF_CALL}.function.arguments"
SIGNED = {"extra_content": {"google": {"thought_signature": seal("m", "look_up")}}}
FORGED = {"google": {"thought_signature": "abc"}}
BROKEN: Mapping[str, Mapping[str, Broken]] = {
    "chat": {
        "a call without its result": Broken({"messages.4": LEFT_OUT}, "did not have response messages: callNr002"),
        "a user between call and results": Broken({"messages.3": USER}, "did not have response messages: callNr001"),
        "a result of no call": Broken({"messages.2": {**REPLY, "content": "Hm."}}, "must be a response to"),
        "a call that is answered twice": Broken({"messages.4": chat_result("callNr001")}, "must be a response to"),
        "two calls of one id": Broken({"messages.2.tool_calls.1": chat_call("callNr001")}, "id of an earlier call"),
        "empty arguments": Broken({ARGUMENTS: ""}, "one object"),
        "arguments as an object": Broken({ARGUMENTS: {}}, "function.arguments"),
        "arguments that are encoded twice": Broken({ARGUMENTS: '"{}"'}, "one object"),
        "an unknown field of a call": Broken({f"{OF_CALL}.index": 0}, "`index`"),
        "a name with a dot": Broken({f"{OF_CALL}.function.name": "shop.look_up"}, "does not match pattern"),
        "an empty list of calls": Broken({"messages": [USER, {**REPLY, "tool_calls": []}, USER]}, "length >= 1"),
        "a reply without anything": Broken({"messages": [USER, REPLY, USER]}, "expected a string, got null"),
        "a reply at the end": Broken({"messages": [USER, {**REPLY, "content": "Hm."}]}, "last role"),
        "no tools": Broken({"tools": []}, "length >= 1"),
        "a tool in the form of responses": Broken({"tools.0": RESPONSES["tools"][0]}, "$.tools[0]"),
        "reasoning where there is none": Broken({"messages.2.reasoning_content": "7"}, "reasoning_content"),
        "an id of Mistral of ten characters": Broken({f"{OF_CALL}.id": "callNr0011"}, "length of 9", "mistral"),
        "a user behind a result of Mistral": Broken(
            {"messages": [*CHAT["messages"], USER]}, "'user' after role 'tool'", "mistral"
        ),
        "a reply of DeepSeek without reasoning": Broken({}, "Missing `reasoning_content`", "deepseek"),
        "another's reasoning": Broken({"messages.2.reasoning_content": "8"}, "not the one", "deepseek"),
        "a call of Gemini without its signature": Broken({}, "no valid thought_signature", "gemini"),
        "a forged signature": Broken({f"{OF_CALL}.extra_content": FORGED}, "no valid thought_signature", "gemini"),
        "a schema with $schema": Broken({f"{OF_TOOL}.parameters.$schema": "x"}, "$schema", "gemini"),
        "a closed schema": Broken({f"{OF_TOOL}.parameters.additionalProperties": False}, "additionalP", "gemini"),
        "a list of types": Broken({f"{OF_TOOL}.parameters.properties.order.type": ["null"]}, "type", "gemini"),
        "a name that begins with a digit": Broken({f"{OF_TOOL}.name": "7up"}, "does not match pattern", "gemini"),
    },
    "responses": {
        "a call without its output": Broken({"input.5": LEFT_OUT}, "No tool output found for function call call_1"),
        "a user between call and outputs": Broken({"input.4": USER}, "No tool output found for function call call_0"),
        "an output of no call": Broken({"input.5": output(2)}, "No tool call found"),
        "a call that is answered twice": Broken({"input.5": output(0)}, "No tool call found"),
        "an item without its reasoning": Broken({"input.1": USER}, "without its required 'reasoning' item: 'rs_r1'"),
        "reasoning without its item": Broken({"input.2.id": LEFT_OUT}, "without its required following item"),
        "reasoning without its content": Broken({"input.1.encrypted_content": LEFT_OUT}, "nothing is stored"),
        "forged reasoning": Broken({"input.1.encrypted_content": "abc"}, "could not be verified"),
        "an item with the id of a call": Broken({"input.2.id": "call_0"}, "^fc_"),
        "empty arguments": Broken({"input.2.arguments": ""}, "one object"),
        "a tool in the form of chat": Broken({"tools": CHAT["tools"]}, "$.tools[0]"),
    },
    "messages": {
        "a call without its result": Broken({"messages.2.content.1": LEFT_OUT}, "immediately after: c2"),
        "results in two messages": Broken(
            {"messages.2.content": [result("c1")], "messages": [*MESSAGES["messages"], MESSAGES["messages"][2]]},
            "unexpected `tool_use_id`",
        ),
        "a text before the results": Broken({"messages.2.content": [TEXT, result("c1"), result("c2")]}, "immediately"),
        "a result of no call": Broken({"messages.2.content.1": result("c3")}, "unexpected `tool_use_id`"),
        "two calls of one id": Broken({"messages.1.content.3": use("c1")}, "must be unique"),
        "an input as a text": Broken({"messages.1.content.2.input": "{}"}, "Expected `object`"),
        "an empty text beside calls": Broken({"messages.1.content.1.text": ""}, "content[1].text"),
        "white space beside calls": Broken({"messages.1.content.1.text": "\n"}, "content[1].text"),
        "an empty message": Broken({"messages.0.content": ""}, "content"),
        "a forged signature": Broken({"messages.1.content.0.signature": "abc"}, "Invalid `signature`"),
        "thinking that was changed": Broken({"messages.1.content.0.thinking": "8"}, "Invalid `signature`"),
        "no thinking while it thinks": Broken(
            {"thinking": {"type": "enabled"}, "messages.1.content.0": LEFT_OUT}, "Expected `thinking`"
        ),
        "an unknown field": Broken({"messages.1.content.2.index": 0}, "`index`"),
        "a reply first": Broken({"messages.0": LEFT_OUT}, "begin and end with a user"),
        "a tool of no object": Broken({"tools.0.input_schema": {}}, "must have type 'object'"),
    },
}


async def asked(server: StrictWires, wire: str, body: Mapping[str, Any], family: str = "openai") -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session:
        answer = await session.post(server.base_url(wire, family) + PATHS[wire], json=body)
        return answer.status, await answer.json()


@pytest.mark.parametrize("wire", BROKEN)
async def test_a_broken_history_is_refused_in_the_words_of_its_provider(server: StrictWires, wire: str) -> None:
    for kind, broken in BROKEN[wire].items():
        status, found = await asked(server, wire, broken.body(wire), broken.family)
        assert status == 400, kind
        if broken.family == "gemini":
            (found,) = found
        error = found if broken.family == "mistral" else found["error"]
        assert broken.words in error["message"], kind
        assert (found.get("type") == "error") == (wire == "messages")


FAMILIES: Mapping[str, Mapping[str, object]] = {
    "openai": {},
    "mistral": {},
    "deepseek": {"messages.2.reasoning_content": seal("m", "look_up", "look_up")},
    "gemini": {OF_CALL: chat_call("call", **SIGNED), "messages.3.tool_call_id": "call"},
}


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_whole_history_is_answered(server: StrictWires, family: str) -> None:
    for wire in WHOLE:
        body = Broken(FAMILIES[family] if wire == "chat" else {}, "").body(wire)
        status, _ = await asked(server, wire, body, family)
        assert (status, server.refused) == (200, [])


async def test_what_is_heard_are_the_goal_the_replies_with_calls_and_their_results() -> None:
    found: list[Heard] = []

    def heard(said: Heard) -> Said:
        found.append(said)
        return SAID

    async with strict_wires(heard) as server:
        for wire, body in WHOLE.items():
            await asked(server, wire, body)
    assert [(each.steps, each.results) for each in found] == 3 * [(1, ["paid", "paid"])]
    assert [each.asked for each in found] == [*2 * ["Pay order 7 back."], "Pay order 7 back.I look."]


@pytest.mark.slow
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_its_replies_are_read_by_the_sdks_of_their_providers(server: StrictWires, *, is_streamed: bool) -> None:
    expected = [(call.name, call.arguments) for call in SAID.calls]
    asked: Any = {"model": "m", "messages": [USER]}
    async with AsyncOpenAI(api_key="none", base_url=server.base_url("chat")) as client:
        if is_streamed:
            async with client.chat.completions.stream(**asked) as stream:
                choice: Any = (await stream.get_final_completion()).choices[0]
        else:
            choice = (await client.chat.completions.create(**asked)).choices[0]
        calls = [each.function for each in choice.message.tool_calls]
        assert [(each.name, json.loads(each.arguments)) for each in calls] == expected
        if is_streamed:
            async with client.responses.stream(model="m", input="Go.") as events:
                response: Any = await events.get_final_response()
        else:
            response = await client.responses.create(model="m", input="Go.")
        items = [each for each in response.output if each.type == "function_call"]
        assert [(each.name, json.loads(each.arguments)) for each in items] == expected
    async with AsyncAnthropic(api_key="none", base_url=server.base_url("messages")) as anthropic:
        if is_streamed:
            async with anthropic.messages.stream(max_tokens=64, **asked) as blocks:
                message: Any = await blocks.get_final_message()
        else:
            message = await anthropic.messages.create(max_tokens=64, **asked)
    uses = [each for each in message.content if each.type == "tool_use"]
    assert [(each.name, each.input) for each in uses] == expected
