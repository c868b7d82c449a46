"""A shop whose world is a file: a line for each effect, so that a test sees what was done, in whatever process."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from msgspec import Struct

from microagents import Prompt, Reply
from microagents.replies.tool_calls import ToolCall
from microagents.systems.agents.actions import Action, AgentState
from microagents.systems.agents.agent import AgentAnswer, AgentTask
from microagents.tools.tool import EffectKey, RunInput, tool
from microagents.tools.toolbox import GivenTool
from microagents.work.prose import Summary

WORLD = Path("world.jsonl")


def done() -> list[dict[str, Any]]:
    """All effects so far."""
    return [json.loads(line) for line in WORLD.read_text().splitlines()] if WORLD.exists() else []


def write(what: str, **more: Any) -> None:
    """Add an effect to the world."""
    with WORLD.open("a") as file:
        file.write(json.dumps({"what": what, **more}) + "\n")


def find_mail(key: EffectKey) -> str | None:
    """Tell what became of a mail."""
    return next(("sent" for each in done() if each.get("key") == key), None)


@tool("read_only")
def look_up(order: int) -> dict[str, int]:
    """Look up an order."""
    return {"order": order, "paid_cents": 100 * order}


@tool("idempotent")
def label(order: int, text: str, key: EffectKey) -> str:
    """Put a label on an order."""
    if not any(each.get("key") == key for each in done()):
        write("label", order=order, text=text, key=key)
    return "labelled"


@tool("destructive")
def refund(order: int, cents: int) -> str:
    """Pay money back."""
    write("refund", order=order, cents=cents)
    return "paid back"


@tool("destructive", lookup=find_mail)
def mail(order: int, key: EffectKey) -> str:
    """Write to the customer."""
    write("mail", order=order, key=key)
    return "sent"


class Closed(Struct, frozen=True, kw_only=True):
    """What became of a ticket."""

    answer: str


class Ticket(AgentTask[Closed]):
    """Look an order up, label it, pay it back, and write to the customer."""

    tools: ClassVar[tuple[GivenTool, ...]] = (look_up, label, refund, mail)
    order: int = 7

    def statement(self) -> str:
        return f"Pay order {self.order} back in full."

    def check(self, state: AgentState, result: Closed, run: RunInput) -> bool:  # noqa: ARG002 - the world tells
        return [each["what"] for each in done()] == ["label", "refund", "mail"]

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:  # noqa: ARG002 - it has one kind of reply
        found = re.search(r"order (\d+)", prompt.user)
        assert found is not None
        order, taken = int(found[1]), prompt.user.count("\nAction ")
        calls = [
            ToolCall("look_up", {"order": order}),
            ToolCall("label", {"order": order, "text": "refund"}),
            ToolCall("refund", {"order": order, "cents": 100 * order}),
            ToolCall("mail", {"order": order}),
            ToolCall("end", {"answer": "done"}),
        ]
        return Action(calls=[calls[taken]])

    def mistake(self, prompt: Prompt, right: Reply, rng: Random) -> Reply:  # noqa: ARG002 - nor does it need the question
        return Action(calls=[ToolCall("refund", {"order": 1, "cents": rng.randrange(1000)})])


class Script(AgentTask[AgentAnswer]):
    """Does what it is told, action by action."""

    calls: tuple[tuple[str, dict[str, Any]], ...] = ()

    def statement(self) -> str:
        return "Do what is to be done."

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:
        if reply is Summary:
            return Summary(summary="some actions")
        found = re.search(r"Choose action (\d+)\.", prompt.user)
        assert found is not None
        planned = [*self.calls, ("end", {"answer": "done"})]
        return Action(calls=[ToolCall(*planned[int(found[1]) - 1])])
