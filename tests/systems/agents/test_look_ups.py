"""Read-only tools in every strategy: a sample asks, the executor answers, and the same seq goes on."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest
from msgspec import Struct
from pydantic import Field

from microagents import ChainTask, InvalidUsage, Prompt, Reply, Result, compare, run, run_sync
from microagents.base.errors import InvalidDefinition, MicroagentsError
from microagents.base.foreign_text import fenced_in
from microagents.elections.red_flags import TOO_MANY_ROUNDS
from microagents.replies.tool_calls import SEEN, Calls, ToolCall, alone
from microagents.runtimes.virtual import run_virtual
from microagents.task import Task
from microagents.tasks.multiplication import Multiplication
from microagents.tools.mcp_servers import McpServer
from microagents.tools.tool import tool
from tests.cli.commands import microagents
from tests.papers.consistency import Consistency
from tests.papers.relay import Relay

PERFECT, ERRING = "sim:perfect", "sim:perfect@error=0.2,flag=0.05,alternatives=3,latency=1.0"
MADE = Path("made.jsonl")
TIME = f"{sys.executable} -m mcp_server_time"


def made() -> list[str]:
    """The calls that were made, in their order, in whatever process."""
    return MADE.read_text().splitlines() if MADE.exists() else []


@tool("read_only")
def price_of(item: int) -> dict[str, int]:
    """Get the price of an item."""
    with MADE.open("a") as file:
        file.write(f"{item}\n")
    return {"price": 7 * item}


@tool("destructive")
def buy(item: int) -> str:
    """Buy an item."""
    return f"bought {item}"


class At(Struct, frozen=True):
    item: int = 1
    total: int = 0


class Price(Reply, frozen=True):
    price: int


class Sum(ChainTask[At, Price]):
    """Adds up prices that only a tool knows."""

    tools: ClassVar[Any] = (price_of,)
    items: int = 5

    def start(self) -> At:
        return At()

    def done(self, state: At) -> bool:
        return state.item > self.items

    def prompt(self, state: At) -> Prompt:
        return Prompt(system="You know no price by heart.", user=f"What is the price of item {1 + state.item % 3}?")

    def advance(self, state: At, reply: Price) -> At:
        return At(item=state.item + 1, total=state.total + reply.price)

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:  # noqa: ARG002 - it has one kind of reply
        item = int(prompt.user.split("item ")[1].split("?")[0])
        if "<observation " not in prompt.user:
            return Calls(calls=[ToolCall("price_of", {"item": item})])
        return Price(price=json.loads(fenced_in(prompt.user, "observation")[0])["price"])


def curious(kind: type[Task]) -> Callable[..., Task]:
    """A task of this kind whose simulated model looks something up before its first reply to every question."""

    def expert(self: Any, prompt: Prompt, reply: type[Reply]) -> Reply:
        if SEEN not in prompt.user:
            return Calls(calls=[ToolCall("price_of", {"item": len(prompt.user) % 2})])
        found = kind.expert(self, alone(prompt), reply)
        assert isinstance(found, Reply)
        return found

    def mistake(self: Any, prompt: Prompt, right: Reply, rng: Random) -> Reply:
        wrong: Reply = kind.mistake(self, alone(prompt), right, rng)
        return wrong

    def difficulty(self: Any, prompt: Prompt, reply: type[Reply]) -> float | None:
        rate: float | None = kind.difficulty(self, alone(prompt), reply)
        return rate

    methods = {each.__name__: each for each in (expert, mistake, difficulty)}
    return type(f"Curious{kind.__name__}", (kind,), {"__module__": __name__, "tools": (price_of,), **methods})


CuriousRelay, CuriousMultiplication, CuriousConsistency = curious(Relay), curious(Multiplication), curious(Consistency)


def digests(result: Result) -> tuple[Any, ...]:
    return result.account.decisions_sha256, result.account.ballots_sha256, json.dumps(result.recorded)


def test_a_step_of_a_chain_looks_up_what_it_needs_and_equal_calls_are_made_once() -> None:
    result = run_sync(Sum(), models=PERFECT, strategy="maker", run_id="r")
    assert result.value == At(item=6, total=7 * (2 + 3 + 1 + 2 + 3))
    assert Counter(made()) == {"1": 1, "2": 1, "3": 1}
    assert result.account.votes == 15
    assert result.calls == 30


@pytest.mark.slow
@pytest.mark.parametrize(
    "task",
    [CuriousRelay(length=4), CuriousMultiplication(digits=2), CuriousConsistency()],
    ids=["worker of a swarm", "votes on a problem", "author of a document"],
)
def test_every_other_strategy_has_the_same_tools(task: Task) -> None:
    models = ["sim:perfect@flag=0", "sim:perfect@flag=0,tokens=90", "sim:perfect@flag=0,tokens=80"]
    result = run_sync(task, models=models, run_id="r", seed=1)
    assert result.outcome == "completed"
    assert result.calls > result.account.valid
    assert set(Counter(made()).values()) == {1}


@pytest.mark.slow
def test_digests_do_not_depend_on_the_order_of_events() -> None:
    found = {
        repr(
            digests(
                run_virtual(
                    run(Sum(), models=ERRING, strategy="maker", runs_dir=None, seed=3, runtime=runtime), seed=seed
                )
            )
        )
        for seed, runtime in enumerate(("local", "linked", "linked"))
    }
    assert len(found) == 1


@pytest.mark.slow
def test_a_resumed_run_neither_makes_a_recorded_call_again_nor_pays_for_its_samples_twice() -> None:
    whole = run_sync(Sum(), models=PERFECT, strategy="maker", run_id="whole")
    MADE.unlink()
    stopped = run_sync(Sum(), models=PERFECT, strategy="maker", run_id="cut", max_calls=8)
    assert stopped.outcome == "stopped"
    resumed = run_sync(Sum(), models=PERFECT, strategy="maker", run_id="cut", max_calls=1000)
    assert Counter(made()) == {"1": 1, "2": 1, "3": 1}
    assert (digests(resumed), resumed.calls) == (digests(whole), whole.calls)
    (shown,) = [line for line in microagents("show", "cut").out.splitlines() if line.startswith("looked up")]
    assert shown == "looked up before replies: 3 of price_of (microagents export cut --actions)"
    rows = [json.loads(line) for line in microagents("export", "cut", "--actions").out.splitlines()]
    assert sorted((row["arguments"]["item"], row["text"]) for row in rows) == [
        (item, f'{{"price":{7 * item}}}') for item in (1, 2, 3)
    ]


class Insatiable(Sum):
    """It looks up one thing after the other."""

    tool_rounds: ClassVar[int] = 2

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:  # noqa: ARG002 - it has one kind of reply
        return Calls(calls=[ToolCall("price_of", {"item": prompt.user.count("<observation ")})])


@pytest.mark.parametrize(
    ("calls", "flag"),
    [
        (None, TOO_MANY_ROUNDS),
        ([ToolCall("sell", {})], "unknown_tool"),
        ([], "no_call"),
        ([ToolCall("price_of", {"item": 1})] * 17, "too_many_calls"),
    ],
)
def test_a_sample_that_asks_too_often_or_for_the_impossible_is_flagged(calls: list[ToolCall] | None, flag: str) -> None:
    class Asking(Insatiable):
        def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:
            return super().expert(prompt, reply) if calls is None else Calls(calls=calls)

    result = run_sync(Asking(), models=PERFECT, strategy="maker", max_draws=3, runs_dir=None)
    assert (result.outcome, result.account.flagged) == ("undecided", {flag: 3})
    assert made() == (["0", "1"] if calls is None else [])


class Clock(Sum):
    """It asks a real server over stdio."""

    tools: ClassVar[Any] = (McpServer(server=TIME, tools=("convert_time",), effects={"convert_time": "read_only"}),)
    mcp_tools: dict[str, list[dict[str, Any]]] = Field(default={}, repr=False)

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:  # noqa: ARG002 - it has one kind of reply
        if "<observation " in prompt.user:
            assert "T21:00:00+09:00" in prompt.user
            return Price(price=1)
        asked = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        return Calls(calls=[ToolCall("convert_time", asked)])


@pytest.mark.slow
def test_tools_of_a_server_answer_as_functions_do() -> None:
    (row,) = asyncio.run(compare(Clock(items=2), repeat=1, models=PERFECT, strategies=["maker"])).rows
    assert row.completed == 1


class Effects(Sum):
    tools: ClassVar[Any] = (price_of, buy)


class Servers(Sum):
    tools: ClassVar[Any] = ("mcp:nothing",)


@pytest.mark.parametrize(
    ("task", "models", "error", "said"),
    [
        (Effects(), PERFECT, InvalidDefinition, "the tool buy of Effects is destructive; only an agent may call it"),
        (Servers(), PERFECT, InvalidDefinition, "add the field `mcp_tools"),
        (Sum(), "openai:gpt-x@json_schema=true", InvalidUsage, "leave json_schema out"),
    ],
)
def test_what_cannot_be_looked_up_is_refused(task: Task, models: str, error: type[MicroagentsError], said: str) -> None:
    with pytest.raises(error, match=said):
        run_sync(task, models=models, strategy="maker", run_id="r")
    assert not list(Path().glob("runs/r*"))
