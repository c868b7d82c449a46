"""Pay an order back: an agent with two functions and a tool of an MCP server."""

import os
import signal
from pathlib import Path

from msgspec import Struct

from microagents import Action, AgentState, AgentTask, McpServer, Prompt, Reply, ToolCall, tool

PAID = {7: 4900, 8: 12000}


@tool("read_only")
def order(number: int) -> dict[str, int]:
    """Look up what was paid for an order."""
    return {"number": number, "paid_cents": PAID[number]}


@tool("destructive")
def refund(number: int, cents: int) -> str:
    """Pay money back to the customer of an order."""
    with Path("ledger.txt").open("a") as ledger:
        ledger.write(f"{cents} cents for order {number}\n")
    if "CRASH" in os.environ:  # the money is gone, and nobody hears of it
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid back"


class Closed(Struct):
    paid_cents: int
    at: str


class Refunds(AgentTask[Closed]):
    tools = (
        order,
        refund,
        McpServer(server="mcp-server-time", tools=("get_current_time",), effects={"get_current_time": "read_only"}),
    )
    number: int = 7

    def statement(self) -> str:
        return f"Pay order {self.number} back in full, and say at what time of Berlin you did."

    def policy(self) -> str:
        return "Look an order up before you pay it back."

    def flag(self, state: AgentState, action: Action) -> str | None:
        calls = [call.tool for turn in state.turns for call in turn.calls]
        return "refund_unread" if action.calls[0].tool == "refund" and "order" not in calls else None

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:  # only for the simulated model
        cents, taken = PAID[self.number], prompt.user.count("\nAction ")
        calls = [
            ToolCall("order", {"number": self.number}),
            ToolCall("refund", {"number": self.number, "cents": cents}),
            ToolCall("get_current_time", {"timezone": "Europe/Berlin"}),
            ToolCall("end", {"paid_cents": cents, "at": "now"}),
        ]
        return Action(calls=[calls[taken]])
