"""The constant part of a run's prompts: marked once, written once, and the same to the last byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from msgspec import structs

from microagents import AgentTask, ChainTask, Prompt, Result, run, tool
from microagents.base.errors import ModelUnavailable
from microagents.cli.views.decision import print_decision
from microagents.elections.election import Question
from microagents.elections.rules import FirstTo
from microagents.models.http.staggering import MAX_WAIT_S, Staggering
from microagents.models.model import ModelSpec
from microagents.models.openai import OpenAIModel
from microagents.replies.chat import Cached, Sample, Sampling
from microagents.runtimes.virtual import run_virtual
from microagents.systems.agents.agent import AgentAnswer
from microagents.tasks.drift import Onward, Place
from microagents.tools.toolbox import GivenTool
from tests.doubles import dialects
from tests.doubles.dialects import Said
from tests.doubles.histories import Heard
from tests.doubles.prefix_cache import PrefixCache
from tests.doubles.strict_wires import StrictWires, strict_wires
from tests.models import server as scripted
from tests.models.server import Connection, Received, serving
from tests.models.test_weighing import shown
from tests.models.wires import ANTHROPIC, KEY, OPENAI, RESPONSES, Provider, a_call, asking

MODELS = {OPENAI: "gpt-6-luna", RESPONSES: "gpt-6-luna", ANTHROPIC: "claude-haiku-5-5"}
RULES = "Add one to the number. " * 400
RATES = {"input": 1.0, "output": 5.0, "cached": 0.1, "cache_write": 1.25}
BOOK = "The book that all questions are about. " * 300


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, KEY)


class Counting(ChainTask[Place, Onward]):
    """Add one, again and again."""

    book: str = ""
    rules: str = RULES

    def start(self) -> Place:
        return Place()

    def steps(self) -> int:
        return 4

    def done(self, state: Place) -> bool:
        return state.steps_done == 4

    def prompt(self, state: Place) -> Prompt:
        return Prompt(system=self.rules, user=f"{self.book}Number: {state.number}", static_chars=len(self.book))

    def advance(self, state: Place, reply: Onward) -> Place:
        return Place(number=reply.number, steps_done=state.steps_done + 1)


def changing_text(provider: Provider, sent: Any) -> str:
    """The text of the user's part behind the cached one."""
    content = sent["input" if provider is RESPONSES else "messages"]
    last = content if isinstance(content, str) else content[-1]["content"]
    return last if isinstance(last, str) else str(last[-1]["text"])


async def counted(provider: Provider, task: Counting, runs_dir: Path | None = None) -> tuple[Result, list[Received]]:
    def told(connection: Connection) -> Awaitable[None]:
        sent = server.received[-1].json
        body = provider.good(f"number = {int(changing_text(provider, sent).rpartition(' ')[2]) + 1}")
        is_first = len(server.received) == 1
        if provider is ANTHROPIC:
            cached = "cache_creation_input_tokens" if is_first else "cache_read_input_tokens"
            body["usage"] = {"input_tokens": 100, cached: 1900, "output_tokens": 7}
        else:
            cached = "cache_write_tokens" if is_first else "cached_tokens"
            body["usage"] = {
                provider.input_tokens: 2000,
                f"{provider.input_tokens}_details": {cached: 1900},
                provider.output_tokens: 7,
            }
        return scripted.reply(body)(connection)

    async with serving(told) as server:
        name = f"{provider.name}:{MODELS[provider]}"
        spec = f"{name}@base_url={server.url}"
        result = await run(task, models=spec, prices={name: RATES}, k=2, runs_dir=runs_dir, run_id="the-run")
    assert (result.outcome, result.recorded) == ("completed", {"number": 5, "steps_done": 4})
    return result, server.received


# -- what a run sends --------------------------------------------------------------------------------------------------


async def test_no_byte_of_the_constant_part_changes_between_the_calls_of_a_run(provider: Provider) -> None:
    _, received = await counted(provider, Counting(book=BOOK))
    kept = set()
    for request in received:
        sent = request.json
        text = request.body.decode()
        mark = '"cache_control":' if provider is ANTHROPIC else '"prompt_cache_breakpoint":'
        assert text.count(mark) == 1
        rest = text.replace(json.dumps(changing_text(provider, sent)), "")
        rest = rest.replace(',"n":2', "")  # how many samples
        rest = rest.replace(',"stream_options":{"include_usage":true}', "")
        kept.add(rest.replace(',"stream":true', ""))
    assert len(received) >= 8
    assert len(kept) == 1, "the requests differ in the user's changing text alone"
    (constant,) = kept
    assert constant.count(json.dumps(RULES)[1:-1]) == 1
    assert constant.count(json.dumps(BOOK)[1:-1]) == 1
    if provider is not ANTHROPIC:
        sent = received[0].json
        assert (sent["prompt_cache_key"], sent["prompt_cache_options"]) == ("the-run", {"mode": "explicit"})


async def test_the_mark_ends_the_constant_part(provider: Provider) -> None:
    for prompt, ends in (
        (Prompt(system=RULES, user="Go."), RULES),
        (Prompt(system="Be brief.", user=f"{BOOK}Go.", static_chars=len(BOOK)), BOOK),
        (Prompt(user=f"{BOOK}Go.", static_chars=len(BOOK)), BOOK),
    ):
        call = msgspec.structs.replace(a_call(), prompt=prompt)
        async with asking(provider, scripted.reply(provider.good()), name=MODELS[provider]) as (model, server):
            await model.complete(call)
        found = list(marks_in(server.received[-1].json))
        assert found == [ends]


def marks_in(value: Any) -> Any:
    """The texts that end a cached prefix, in their order."""
    if isinstance(value, dict):
        if "cache_control" in value or "prompt_cache_breakpoint" in value:
            yield value["text"]
        for each in value.values():
            yield from marks_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from marks_in(each)


@pytest.mark.parametrize("wire", [OPENAI, RESPONSES], ids=lambda wire: wire.name)
async def test_a_server_that_does_not_know_the_parameters_is_asked_without_marks(wire: Provider) -> None:
    def refusing(name: str) -> scripted.Answer:
        return scripted.reply(
            {"error": {"message": f"Unrecognized request argument supplied: {name}", "param": None}}, 400
        )

    answers = (refusing("prompt_cache_options"), refusing("prompt_cache_key"), scripted.reply(wire.good()))
    async with asking(wire, *answers, name="gpt-6-luna") as (model, server):
        model._cache_key = "run"
        await model.complete(a_call(system=RULES))
    assert [len(list(marks_in(request.json))) for request in server.received] == [1, 0, 0]
    assert not {"prompt_cache_key", "prompt_cache_options"} & set(server.received[-1].json)


# -- the first goes ahead ----------------------------------------------------------------------------------------------


async def test_the_first_call_of_a_run_writes_the_cache_for_all_others(provider: Provider) -> None:
    result, received = await counted(provider, Counting())
    assert [request.json.get("stream", False) for request in received] == [True] + [False] * (len(received) - 1)
    account = result.account
    assert account.calls == len(received)
    assert (account.cache_write_tokens, account.cached_tokens) == (1900, 1900 * (account.calls - 1))


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
EVENTS = [
    b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": end}]}).encode() + b"\n\n"
    for delta, end in (({"content": "x = "}, None), ({"content": "1"}, "stop"))
]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("wire", [OPENAI, ANTHROPIC], ids=lambda wire: wire.name)
async def test_the_tokens_of_each_reply_in_a_cache_stand_beside_its_cost(
    wire: Provider, capsys: pytest.CaptureFixture[str]
) -> None:
    result, _ = await counted(wire, Counting(), Path("runs"))
    steps = [await shown("the-run", f"0/step/{number}") for number in range(4)]
    of_steps = [each.cached for each in steps if each.cached]
    account = result.account
    assert sum(each.written for each in of_steps) == account.cache_write_tokens == 1900
    assert 0 < sum(each.read for each in of_steps) <= account.cached_tokens
    assert steps[1].replies[0].cached == Cached(read=1900, written=0)
    assert msgspec.to_builtins(steps[1])["replies"][0]["cached"] == {"read": 1900, "written": 0}
    print_decision(steps[0])
    assert "reply 0: agrees, 0 tokens read from the cache, 1,900 written" in capsys.readouterr().out


class Writing:
    """Begins its first reply after a moment, and ends it once three requests have come."""

    def __init__(self) -> None:
        self.server: scripted.Server
        self.begun_with = 0
        """Number of requests that had come when the first reply began."""
        self.has_all = asyncio.Event()

    async def __call__(self, connection: Connection) -> None:
        if len(self.server.received) == 3:
            self.has_all.set()
        if self.begun_with:
            await scripted.reply(OPENAI.good())(connection)
            return
        self.begun_with = 1
        await asyncio.sleep(0.03)
        self.begun_with = len(self.server.received)
        await connection.send(HEAD + EVENTS[0])
        await self.has_all.wait()
        await connection.send(EVENTS[1])
        connection.writer.close()


def of_prices(url: str, rates: Mapping[str, float] = {}, **options: str) -> OpenAIModel:
    """A model that caches prompts by itself; only with prices it is known that this pays."""
    spec = ModelSpec(provider="openai", name="gpt-5.4", options={"base_url": f"{url}/v1", **options})
    return OpenAIModel(spec, {"openai:gpt-5.4": rates} if rates else {})


@pytest.mark.parametrize(
    ("stagger", "rates", "begun_with"),
    [("auto", RATES, 1), ("on", {}, 1), ("auto", {}, 3), ("auto", {"input": 1.0, "output": 5.0}, 3), ("off", RATES, 3)],
)
async def test_samples_of_one_prompt_wait_for_the_first_to_begin_where_it_pays(
    stagger: str, rates: Mapping[str, float], begun_with: int
) -> None:
    writing, asked = Writing(), a_call(user=BOOK)
    calls = [structs.replace(asked, id=structs.replace(asked.id, seq=seq), is_shared=True) for seq in range(3)]
    async with asyncio.timeout(MAX_WAIT_S / 2), serving(writing) as writing.server:
        model = of_prices(writing.server.url, rates, stagger=stagger)
        samples = await asyncio.gather(*map(model.complete, calls))
        await model.close()
    assert [each.text for each in samples] == ["x = 1"] * 3
    assert writing.begun_with == begun_with
    streams = [request.json.get("stream", False) for request in writing.server.received]
    assert streams == [begun_with == 1, False, False]


async def test_a_sample_with_a_prompt_of_its_own_is_not_streamed() -> None:
    async with serving(scripted.reply(OPENAI.good())) as server:
        model = of_prices(server.url, RATES)
        await model.complete(a_call(user=BOOK))
        await model.close()
    assert "stream" not in server.received[0].json


async def test_a_first_sample_that_fails_lets_the_others_begin() -> None:
    answers = (scripted.reply({}, 500), scripted.reply(OPENAI.good()))
    async with asyncio.timeout(MAX_WAIT_S / 2), serving(*answers) as server:
        model = of_prices(server.url, stagger="on")
        calls = [structs.replace(a_call(), is_shared=True)] * 2
        failed, taken = await asyncio.gather(*map(model.complete, calls), return_exceptions=True)
        await model.close()
    assert isinstance(failed, ModelUnavailable)
    assert isinstance(taken, Sample)


def test_others_wait_for_the_first_call_but_not_for_long() -> None:
    async def turns() -> list[tuple[float, bool]]:
        staggering, loop = Staggering(), asyncio.get_running_loop()
        began: list[tuple[float, bool]] = []

        async def turn(lasts_s: float) -> None:
            async with staggering.behind_first("static") as begin:
                began.append((loop.time(), begin is not None))
                await asyncio.sleep(lasts_s)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(3):
                tasks.create_task(turn(60.0))
        return began

    assert run_virtual(turns()) == [(0.0, True), (MAX_WAIT_S, False), (MAX_WAIT_S, False)]


# -- prompts -----------------------------------------------------------------------------------------------------------


def test_the_constant_part_of_a_prompt_changes_no_digest() -> None:
    plain, marked = Prompt(system="s", user="book question"), Prompt(system="s", user="book question", static_chars=4)
    assert msgspec.json.encode(plain) == b'{"user":"book question","system":"s"}'
    assert marked.user_parts == ("book", " question")
    ids = {
        Question(
            prompts=(each,), reply="r", form=b"", rule=FirstTo(k=3), sampling=Sampling(), models=("m",), max_draws=9
        ).id_at("0/q")
        for each in (plain, marked)
    }
    assert len(ids) == 1


@pytest.mark.parametrize("given", [-1, 4, True])
def test_a_constant_part_is_a_part_of_the_users_text(given: Any) -> None:
    with pytest.raises(
        TypeError, match="static_chars of a Prompt must be a number of characters of its user part, from 0 to 3"
    ):
        Prompt(user="abc", static_chars=given)


# -- conversations -----------------------------------------------------------------------------------------------------

STEPS, STEP_TOKENS = 20, 900


@tool("read_only")
def page(number: int) -> str:
    """Read a page."""
    return f"Page {number}. " + "It goes on. " * (STEP_TOKENS * 4 // 12)


class ReadBook(AgentTask[AgentAnswer]):
    """Read a book page by page."""

    tools: ClassVar[tuple[GivenTool, ...]] = (page,)

    def statement(self) -> str:
        return "Read all pages."


def next_page(heard: Heard) -> Said:
    """Read one page after the other."""
    if heard.steps < STEPS - 1:
        return Said(calls=(dialects.Call("page", {"number": heard.steps}),))
    return Said(calls=(dialects.Call("end", {"answer": "read"}),))


async def read_book(server: StrictWires, wire: str, name: str, stagger: str = "auto") -> Result:
    spec = f"{name}@base_url={server.base_url(wire)},stagger={stagger}"
    return await run(
        ReadBook(), models=spec, prices={name: RATES}, runs_dir=None, options={"memory": 10**7, "k_read": 3}
    )


@pytest.mark.slow
async def test_a_growing_conversation_is_read_from_the_cache_and_billed_as_the_provider_counts() -> None:
    async with strict_wires(next_page) as server:
        server.cache = PrefixCache()
        result = await read_book(server, "messages", "anthropic:claude-haiku-5-5")
        units, uncached = server.cache.units, server.cache.uncached_units
    account = result.account
    assert (result.outcome, server.refused) == ("completed", [])
    billed = (account.cost_usd or 0.0) * 1e6 - RATES["output"] * account.output_tokens
    assert billed == pytest.approx(units, rel=0.02)
    assert units < 0.15 * uncached


async def test_all_samples_of_a_step_have_the_cache_key_of_their_input() -> None:
    async with strict_wires(next_page) as server:
        await read_book(server, "chat", "openai:gpt-6-luna")
        bodies = [body for body in server.bodies if len(body["messages"]) > 3]
    (key,) = {body["prompt_cache_key"] for body in bodies}
    assert key.endswith("/0")
    assert not any("prompt_cache_options" in body for body in bodies), "the cached prefix ends with the last turn"
