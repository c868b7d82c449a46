"""Native calls over all wires: replies in any dialect are the same calls, and no history is refused by a strict server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from microagents import Prompt, Result, ToolCall, Turn, run
from microagents.base.errors import InvalidUsage
from microagents.models.http.native_calls import NativeTools
from microagents.models.model import Call
from microagents.replies.chat import Sample
from microagents.systems.agents.actions import Action
from tests.doubles import dialects
from tests.doubles.dialects import EDITS, STREAMS, Said
from tests.doubles.histories import Heard
from tests.doubles.strict_wires import Brain, StrictWires, strict_wires
from tests.models import server as scripted
from tests.models.wires import ANTHROPIC, OPENAI, RESPONSES, a_call, asking
from tests.systems.agents.shop import Ticket, done

WIRES = {"chat": OPENAI, "responses": RESPONSES, "messages": ANTHROPIC}
LISTED = {"type": "array", "items": {"type": "string"}}
SCHEMAS: dict[str, dict[str, Any]] = {
    "look_up": {"order": {"type": "integer"}},
    "tag": {"names": LISTED, "note": {"type": "string"}, "more": {"anyOf": [{"type": "object"}, {"type": "null"}]}},
    "orders": {},
}
TOOLS = json.dumps([
    {"name": name, "description": name, "parameters": {"type": "object", "properties": each}} for name, each in SCHEMAS.items()
])  # fmt: skip
SAID = {
    "one": Said((dialects.Call("look_up", {"order": 7}),)),
    "two beside a text": Said(
        (dialects.Call("look_up", {"order": 7}), dialects.Call("orders", {})), text="I look.", reasoning="7 it is"
    ),
    "one tool twice": Said((dialects.Call("look_up", {"order": 7}), dialects.Call("look_up", {"order": 8}))),
    "equal calls": Said((dialects.Call("orders", {}), dialects.Call("orders", {}))),
    "lists": Said((dialects.Call("tag", {"names": ["a", "b"], "note": "[1]", "more": {"x": 1.5}}),)),
}


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "none")


def asked(*turns: Turn) -> Call:
    return structs.replace(a_call(), prompt=Prompt(system="s", user="u", tools=TOOLS, turns=turns), reply=Action)


def saying(said: Said) -> Brain:
    return lambda _: said


async def misread(wire: str, named: Sequence[str]) -> list[str]:
    """The dialects in which the calls of some reply are read as others."""
    found = []
    for name, said in SAID.items():
        expected = tuple(ToolCall(each.name, each.arguments) for each in said.calls)
        async with strict_wires(saying(said)) as server:
            for dialect in named:
                model = WIRES[wire].open(server.base_url(wire, dialect=dialect))
                sample = await model.complete(asked())
                await model.close()
                if sample.turn is None or sample.turn.calls != expected or sample.finish != "stop":
                    found.append(f"{dialect}: {name}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("wire", WIRES)
async def test_calls_are_read_the_same_in_any_dialect(wire: str) -> None:
    assert await misread(wire, [*EDITS[wire], *STREAMS[wire]]) == []


@pytest.mark.slow
@pytest.mark.parametrize("stream", [(wire, name) for wire, streams in STREAMS.items() for name in streams])
async def test_calls_are_read_the_same_in_mixtures_of_dialects(stream: tuple[str, str]) -> None:
    wire, name = stream
    assert await misread(wire, [f"{edit}.{name}" for edit in EDITS[wire]]) == []


PLAN = [
    dialects.Call("look_up", {"order": 7}),
    dialects.Call("label", {"order": 7, "text": "refund"}),
    dialects.Call("refund", {"order": 7, "cents": 700}),
    dialects.Call("mail", {"order": 7}),
    dialects.Call("end", {"answer": "done"}),
]


def next_call(heard: Heard) -> Said:
    """What a perfect model says to the ticket of the shop."""
    return Said(calls=(PLAN[heard.steps],), reasoning="this is next")


async def closed(server: StrictWires, *asked_of: tuple[str, str], **options: Any) -> Result:
    """The ticket, closed by a pool of models of these wires and families."""
    models = [
        f"{WIRES[wire].name}:m@base_url={server.base_url(wire, family)}" if "@" not in family else family
        for wire, family in asked_of
    ]
    return await run(Ticket(), models=models, **{"runs_dir": None, **options})


CHAT, OF_RESPONSES, OF_MESSAGES = ("chat", "openai"), ("responses", "openai"), ("messages", "openai")
DEEPSEEK, GEMINI, MISTRAL = ("chat", "deepseek"), ("chat", "gemini"), ("chat", "mistral")


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(
    "pool",
    [[CHAT], [OF_RESPONSES], [OF_MESSAGES], [DEEPSEEK], [GEMINI], [MISTRAL], [CHAT, OF_RESPONSES, OF_MESSAGES]],
    ids=["chat", "responses", "messages", "deepseek", "gemini", "mistral", "all three"],
)
async def test_a_strict_server_refuses_no_history_of_an_agent(pool: list[tuple[str, str]]) -> None:
    async with strict_wires(next_call) as server:
        result = await closed(server, *pool)
        assert (result.outcome, result.value["correct"], server.refused) == ("completed", True, [])
    assert [each["what"] for each in done()] == ["label", "refund", "mail"]
    assert all(body["tools"] for body in server.bodies)


REASONING = {"responses": '"encrypted_content"', "messages": '"signature"', "chat": '"reasoning_content"'}


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("asked_of", [DEEPSEEK, OF_RESPONSES, OF_MESSAGES], ids=["chat", "responses", "messages"])
async def test_the_winners_reasoning_goes_back_also_after_a_stop(asked_of: tuple[str, str]) -> None:
    async with strict_wires(next_call) as server:
        stopped = await closed(server, asked_of, runs_dir="runs", run_id="r", max_calls=5)
        assert stopped.outcome == "stopped"
        await closed(server, asked_of, runs_dir="runs", run_id="r", max_calls=100)
        last = json.dumps(server.bodies[-1])
    assert server.refused == []
    assert last.count(REASONING[asked_of[0]]) == 4


async def test_votes_of_calls_in_any_wire_and_in_text_are_one_vote() -> None:
    async def in_text(call: Call) -> str:
        taken = call.prompt.user.count("\nAction ")
        return f"calls = {json.dumps([{'tool': PLAN[taken].name, 'arguments': PLAN[taken].arguments}])}"

    async with strict_wires(next_call) as server:
        specs = [f"{WIRES[wire].name}:m@base_url={server.base_url(wire)}" for wire in WIRES]
        result = await run(Ticket(), models=[*specs, in_text], runs_dir=None)
    assert (result.outcome, server.refused) == ("completed", [])
    assert result.calls == 1 + 2 + 4 + 4 + 3


@pytest.mark.parametrize("words", [
    "m does not support tools", "tools param requires --jinja flag", "No endpoints found that support tool use",
    '"auto" tool choice requires --enable-auto-tool-choice', "a message of the role 'tool' is not served",
])  # fmt: skip
async def test_a_server_that_takes_no_tools_gets_them_as_text_from_then_on(words: str) -> None:
    text = 'calls = [{"tool": "look_up", "arguments": {"order": 7}}]'
    refusal, good = scripted.reply({"error": {"message": words}}, 400), scripted.reply(OPENAI.good(text))
    prompt = structs.replace(asked().prompt, calls_as_text="The tools are these.")
    async with asking(OPENAI, refusal, good, good) as (model, server):
        samples = [await model.complete(structs.replace(asked(), prompt=prompt)) for _ in range(2)]
    assert [each.text for each in samples] == [text, text]
    bodies = [json.loads(each.body) for each in server.received]
    assert [("tools" in body, body["messages"][0]["content"]) for body in bodies] == [
        (True, "s"), (False, "s\n\nThe tools are these."), (False, "s\n\nThe tools are these."),
    ]  # fmt: skip
    assert "tools" in model.refused


@pytest.mark.parametrize("asked_of", [DEEPSEEK, GEMINI], ids=["deepseek", "gemini"])
async def test_calls_without_reasoning_are_written_as_text_once_they_are_refused(asked_of: tuple[str, str]) -> None:
    calls = (ToolCall("look_up", {"order": 7}),)
    turns = (Turn(role="assistant", calls=calls), Turn(role="tool", text="paid"))
    async with strict_wires(next_call) as server:
        model = OPENAI.open(server.base_url(*asked_of))
        samples = [await model.complete(asked(*turns)) for _ in range(2)]
        await model.close()
    assert [each.turn is None for each in samples] == [False, False]
    assert len(server.refused) == 1
    assert 'look_up"}' in server.bodies[-1]["messages"][-1]["content"]


@pytest.mark.parametrize("arguments", ["[1]", '"x"', '{"order": 7', "7", '{"order": 1, "order": 2}'])
async def test_arguments_that_are_no_object_are_a_flag_and_the_text_is_kept(arguments: str) -> None:
    calls = [{"id": "a", "type": "function", "function": {"name": "look_up", "arguments": arguments}}]
    body = OPENAI.good("I look.")
    body["choices"][0]["message"]["tool_calls"] = calls
    async with asking(OPENAI, scripted.reply(body)) as (model, _):
        sample = await model.complete(asked())
    assert (sample.finish, sample.turn, sample.text) == ("bad_arguments", None, f"I look.\n\nlook_up({arguments})")


async def test_a_question_without_tools_reads_no_calls() -> None:
    body = OPENAI.good("x = 1")
    body["choices"][0]["message"]["tool_calls"] = [{"function": {"name": "look_up", "arguments": "{}"}}]
    async with asking(OPENAI, scripted.reply(body)) as (model, _):
        sample: Sample = await model.complete(a_call())
    assert (sample.text, sample.finish, sample.turn) == ("x = 1", "stop", None)


async def test_calls_as_text_are_an_option_of_the_spec() -> None:
    async with asking(OPENAI, scripted.reply(OPENAI.good("calls = []")), calls="text") as (model, server):
        await model.complete(asked(Turn(role="assistant", text="Hm."), Turn(role="user", text="Go on.")))
        (message,) = json.loads(server.received[0].body)["messages"][1:]
    assert message == {"role": "user", "content": "u\n\nYour earlier answer was:\nHm.\nGo on."}
    with pytest.raises(InvalidUsage, match="calls='native' is not known; the only one is calls=text"):
        OPENAI.open("http://localhost:1", calls="native")


def test_tools_have_names_and_schemas_that_every_provider_takes() -> None:
    part = {"type": "object", "title": "Part", "properties": {"title": {"type": ["string", "null"]}}}
    schema = {
        "$schema": "x", "additionalProperties": False, "type": "object", "$defs": {"Part": part},
        "properties": {"part": {"$ref": "#/$defs/Part"}},
    }  # fmt: skip
    names = ["shop.look_up", "shop_look_up", "7up", "x" * 80]
    tools = NativeTools(json.dumps([{"name": name, "description": "", "parameters": schema} for name in names]))
    assert [name for name, _, _ in tools.described] == ["shop_look_up", "shop_look_up_2", "_7up", "x" * 64]
    title = {"title": {"anyOf": [{"type": "string"}, {"type": "null"}]}}
    plain = {"type": "object", "properties": {"part": {"type": "object", "properties": title}}}
    assert tools.described[0][2] == plain


async def test_reasoning_with_half_a_character_goes_back_without_it() -> None:
    """A server cuts it anywhere; the next request would be one that cannot be written."""
    called = {"id": "c", "function": {"name": "orders", "arguments": "{}"}}
    message = {"content": None, "reasoning_content": "hm \ud83d", "tool_calls": [called]}
    answers = [{"choices": [{"message": message, "finish_reason": "tool_calls"}]}, OPENAI.good()]
    async with asking(OPENAI, *map(scripted.reply, answers)) as (model, server):
        asked = structs.replace(a_call(), prompt=Prompt(user="Go on.", tools=TOOLS), reply=Action)
        turns = ((await model.complete(asked)).turn, Turn(role="tool", text="[7]"))
        await model.complete(structs.replace(asked, prompt=structs.replace(asked.prompt, turns=turns)))
    assert "hm \ufffd" in json.dumps(server.received[-1].json, ensure_ascii=False)
