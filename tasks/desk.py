"""The desk of a shop: an agent reads a ticket, looks things up, and pays back or declines as the policy says. It runs without a key."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from random import Random
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Struct
from pydantic import Field

from microagents.base.foreign_text import fenced_in
from microagents.replies.chat import Prompt
from microagents.replies.reply import Reply
from microagents.replies.tool_calls import ToolCall
from microagents.systems.agents.actions import END, Action, AgentState
from microagents.systems.agents.agent import AgentTask
from microagents.tasks.desk_world import MAX_CENTS, RETURN_DAYS, Status, World, case_of, pays_back
from microagents.tools.mcp_servers import McpServer
from microagents.tools.tool import Effect, EffectKey, RunInput, tool
from microagents.tools.toolbox import GivenTool

RULES = f"""Look up the customer, the customer's orders, the order of the ticket, its payment, and the policy, in this order, before you \
change anything.
An order is paid back in full if it was delivered at most {RETURN_DAYS} days ago and cost at most {MAX_CENTS} cents; else it is declined.
Then refund it if it is to be paid back; set its status; send one mail; and end."""
TOOL_EFFECTS: dict[str, Effect] = {
    "get_customer": "read_only",
    "list_orders": "read_only",
    "get_order": "read_only",
    "get_payment": "read_only",
    "get_policy": "read_only",
    "set_status": "idempotent",
    "refund": "destructive",
    "send_mail": "destructive",
}
MISTAKES = {"unread refund": 4, "early end": 4, "wrong order": 2, "wrong amount": 2, "again": 1, "unknown tool": 1}
"""The mistakes of the simulated model, each with its weight among the possible ones: a refund of a made-up amount before all is read;
an end too early; another order of the customer; 10 dollars too much or too little; the last action again; a tool that there is not."""


class Shop:
    """Tools of one desk, in the file of its world."""

    def __init__(self, path: str, ticket: int) -> None:
        self._path = path
        self._ticket = ticket
        self.tools: list[Callable[..., Any]] = [getattr(self, name) for name in TOOL_EFFECTS]

    def _world(self, run: str) -> World:
        return World(self._path, run, self._ticket)

    @tool("read_only")
    def get_customer(self, customer: int) -> dict[str, Any]:
        """Get the name of a customer."""
        case = case_of(self._ticket)
        if customer != case.customer:
            raise ValueError(f"unknown customer {customer}")
        return {"customer": customer, "name": case.name}

    @tool("read_only")
    def list_orders(self, customer: int) -> list[dict[str, Any]]:
        """List the orders of a customer."""
        return [
            {"order": each.order, "goods": each.goods}
            for each in case_of(self._ticket).orders
            if each.customer == customer
        ]

    @tool("read_only")
    def get_order(self, order: int, run: RunInput) -> dict[str, Any]:
        """Get when an order was delivered."""
        found = self._world(run).order(order)
        return {"order": order, "goods": found.goods, "delivered_days_ago": found.delivered_days_ago}

    @tool("read_only")
    def get_payment(self, order: int, run: RunInput) -> dict[str, int]:
        """Get what was paid for an order."""
        return {"order": order, "paid_cents": self._world(run).order(order).cents}

    @tool("read_only")
    def get_policy(self, topic: Literal["refunds", "shipping"]) -> str:
        """Read the policy of the shop on a topic."""
        if topic != "refunds":
            return "Orders are shipped within three days."
        return RULES

    @tool("idempotent")
    def set_status(self, order: int, status: Status, run: RunInput, key: EffectKey) -> str:
        """Set the status of an order."""
        world = self._world(run)
        world.add("status", world.order(order).order, status, key)
        return "ok"

    @tool("destructive", not_made=(ValueError,))
    def refund(self, order: int, cents: int, run: RunInput) -> str:
        """Pay money back to the customer."""
        world = self._world(run)
        world.add("refund", world.order(order).order, cents)
        return "ok"

    @tool("destructive")
    def send_mail(self, customer: int, template: Status, run: RunInput, key: EffectKey) -> str:
        """Send a mail to a customer."""
        self._world(run).add("mail", customer, template, key)
        return "ok"


class Closed(Struct, frozen=True, kw_only=True):
    """What became of a ticket."""

    outcome: Status


class Desk(AgentTask[Closed]):
    """Close a ticket of a shop: look it up, pay it back or decline it, set its status, write to the customer."""

    ticket: Annotated[int, Field(ge=1)] = 1
    """Number of the ticket; from it follow customer, orders and complaint."""
    world: str = "desk.sqlite"
    """The SQLite file of the shop. Each run and input has rows of its own there."""
    server: bool = False
    """Reach the tools through an MCP server of its own, over stdio."""

    def variant(self, number: int) -> Desk:
        return self.model_copy(update={"ticket": self.ticket + number, "mcp_tools": {}})

    def statement(self) -> str:
        case = case_of(self.ticket)
        return (
            f"Ticket {self.ticket}. Customer {case.customer} writes: {case.order.goods} that I ordered (order {case.wanted}) {case.fault}. "
            "I want my money back."
        )

    def policy(self) -> str:
        return RULES

    def given_tools(self) -> Sequence[GivenTool]:
        if not self.server:
            return Shop(self.world, self.ticket).tools
        command = f"{sys.executable} -P -m microagents.tasks.desk_server {self.world} {self.ticket}"
        return [McpServer(server=command, effects=TOOL_EFFECTS, errors="not_made")]

    def check(self, state: AgentState, result: Closed, run: RunInput) -> bool:  # noqa: ARG002 - the world decides, not the conversation
        return World(self.world, run, self.ticket).is_right()

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:  # noqa: ARG002 - it has one kind of reply
        """Work out the next action from what the prompt shows, also after a wrong one."""
        return Action(calls=[_next_call(prompt.user)])

    def mistake(self, prompt: Prompt, right: Reply, rng: Random) -> Reply:
        """Err as agents do, by `MISTAKES`: each kind that is possible here, with its weight."""
        assert isinstance(right, Action)
        call, case = right.calls[0], case_of(self.ticket)
        taken = re.findall(r"^Action \d+: (.*)$", prompt.user, re.MULTILINE)
        cents = call.arguments.get("cents", 0)
        other = rng.choice([each.order for each in case.orders if each.order != case.wanted])
        kinds: dict[str, ToolCall | None] = {
            "unread refund": ToolCall("refund", {"order": case.wanted, "cents": 100 * rng.randrange(10, 300) + 99}),
            "early end": None if call.tool == END else ToolCall(END, {"outcome": rng.choice(("refunded", "declined"))}),
            "wrong order": ToolCall(call.tool, {**call.arguments, "order": other})
            if "order" in call.arguments
            else None,
            "wrong amount": ToolCall(call.tool, {**call.arguments, "cents": cents + rng.choice((-1_000, 1_000))})
            if cents
            else None,
            "again": msgspec.json.decode(taken[-1], type=ToolCall) if taken else None,
            "unknown tool": ToolCall("close_ticket", {"ticket": self.ticket}),
        }
        possible = {kind: each for kind, each in kinds.items() if each not in (None, call)}
        (kind,) = rng.choices(list(possible), [MISTAKES[each] for each in possible])
        wrong = possible[kind]
        assert wrong is not None
        return Action(calls=[wrong])


def _done(text: str) -> dict[str, list[Any]]:
    """What calls returned, by tool, as a prompt shows it; a list of things stands as its things."""
    found: dict[str, list[Any]] = {}
    actions = re.findall(r"^Action \d+: (.*)\n<observation ", text, re.MULTILINE)
    for action, returned in zip(actions, fenced_in(text, "observation"), strict=True):
        call = msgspec.json.decode(action, type=ToolCall)
        try:
            value = msgspec.json.decode(returned)
        except msgspec.DecodeError:
            value = {"text": returned}
        given = call.arguments if value in ({"text": "ok"}, "ok") else {}
        values = value if isinstance(value, list) else [value]
        found.setdefault(call.tool, []).extend([{**given, **each} for each in values])
    return found


def _of_order(found: Sequence[dict[str, Any]], order: int) -> dict[str, Any] | None:
    return next((each for each in found if each.get("order") == order), None)


def _next_call(text: str) -> ToolCall:
    found = re.search(r"Customer (\d+) writes: (.+?) that I ordered", text)
    assert found is not None
    goods, done, who = found[2], _done(text), {"customer": int(found[1])}
    if "get_customer" not in done:
        return ToolCall("get_customer", who)
    if "list_orders" not in done:
        return ToolCall("list_orders", who)
    order = next(each["order"] for each in done["list_orders"] if each["goods"] == goods)
    known = {name: _of_order(done.get(name, []), order) for name in ("get_order", "get_payment")}
    for name, seen in known.items():
        if seen is None:
            return ToolCall(name, {"order": order})
    if "get_policy" not in done:
        return ToolCall("get_policy", {"topic": "refunds"})
    assert known["get_order"] is not None
    assert known["get_payment"] is not None
    cents = known["get_payment"]["paid_cents"]
    if pays_back(cents, known["get_order"]["delivered_days_ago"]):
        status = "refunded"
    else:
        status = "declined"
    if status == "refunded" and _of_order(done.get("refund", []), order) is None:
        return ToolCall("refund", {"order": order, "cents": cents})
    if _of_order(done.get("set_status", []), order) is None:
        return ToolCall("set_status", {"order": order, "status": status})
    if "send_mail" not in done:
        return ToolCall("send_mail", {**who, "template": status})
    return ToolCall(END, {"outcome": status})
