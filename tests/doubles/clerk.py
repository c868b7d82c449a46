"""An agent whose calls have all that dialects write in other ways, and the brain of a model that does its work right."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from microagents import AgentTask, tool
from microagents.tools.toolbox import GivenTool
from tests.doubles.dialects import Call, Said
from tests.doubles.histories import Heard


@tool("read_only")
def orders() -> list[int]:
    """List the orders."""
    return [7, 8]


@tool("read_only")
def look_up(order: int) -> dict[str, int]:
    """Look up an order."""
    return {"order": order, "paid_cents": 100 * order}


@tool("idempotent")
def tag(order: int, labels: list[str], box: dict[str, int], note: str) -> str:
    """Tag an order."""
    return f"{order} {labels} {box} {note}"


ACTIONS: tuple[tuple[Call, ...], ...] = (
    (Call("orders", {}),),
    (Call("look_up", {"order": 7}), Call("look_up", {"order": 8})),
    (Call("look_up", {"order": 7}), Call("orders", {}), Call("look_up", {"order": 7})),
    (Call("tag", {"order": 7, "labels": ["a", "b"], "box": {"w": 1}, "note": '["a text"]'}),),
    (Call("end", {"answer": "tagged"}),),
)
RESULTS = [
    *("[7,8]", '{"order":7,"paid_cents":700}', '{"order":8,"paid_cents":800}'),
    *('{"order":7,"paid_cents":700}', "[7,8]", '{"order":7,"paid_cents":700}'),
    """7 ['a', 'b'] {'w': 1} ["a text"]""",
]
"""What the calls return."""


class Clerk(AgentTask[Any]):
    """Look orders up, and tag one."""

    tools: ClassVar[tuple[GivenTool, ...]] = (orders, look_up, tag)

    def statement(self) -> str:
        return "Tag order 7."


def right(heard: Heard) -> Said:
    """Do the next action; those that another model gave may be told as texts."""
    steps = heard.steps + len(set(re.findall(r"Action (\d+): ", heard.asked)))
    return Said(calls=ACTIONS[min(steps, len(ACTIONS) - 1)], reasoning=f"{steps + 1} it is")
