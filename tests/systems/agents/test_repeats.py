"""A destructive call that was made is not made again, unless a person wants it or its tool says that it may be repeated."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest

from microagents import NotMade, Result, run_sync
from microagents.replies.tool_calls import ToolCall
from microagents.systems.agents.act import Act
from microagents.systems.agents.actions import call_digest
from microagents.tools.tool import FunctionTool, tool
from microagents.tools.toolbox import GivenTool
from tests.cli.commands import COMPLETED, microagents
from tests.systems.agents.shop import Script, done, write


@tool("destructive")
def refund(order: int, note: str = "", cents: float = 4900) -> str:
    """Pay an order back."""
    if order < 0:
        raise NotMade("there is no such order")
    write("refund", order=order)
    return f"{note}paid back {cents}"


@tool("destructive", repeatable=True)
def press(button: str) -> str:
    """Press a button."""
    write("press", button=button)
    return "pressed"


@tool("read_only")
def read() -> str:
    """Read a lot."""
    return "x" * 2_000


class Repeating(Script):
    tools: ClassVar[tuple[GivenTool, ...]] = (refund, press, read)


FIRST = ("refund", {"order": 7})
EQUAL = ("refund", {"order": 7, "note": "", "cents": 4900.0})


def act(*calls: tuple[str, dict[str, Any]], **given: Any) -> Result:
    return run_sync(Repeating(calls=calls), models="sim:perfect", strategy=Act(memory=1_000), run_id="r", **given)


def test_a_call_that_was_made_is_answered_by_what_it_returned_and_not_made_again() -> None:
    result = act(FIRST, ("refund", {"order": 8}), EQUAL)
    assert (result.outcome, done()) == ("completed", [{"what": "refund", "order": order} for order in (7, 8)])
    assert result.value["errors"] == 0
    row = json.loads(microagents("export", "r", "--actions").out.splitlines()[2])
    assert (row["outcome"], row["makings"]) == ("repeated", 0)
    assert row["observation"].startswith(
        "This call was made at action 1, and is not made again. It returned: paid back 4900"
    )


@pytest.mark.parametrize(("words", "made"), [(("approve",), 2), (("reject", "once", "is enough"), 1)])
def test_a_person_is_asked_once_the_agent_insists_also_after_a_resume(words: tuple[str, ...], made: int) -> None:
    calls: Any = (FIRST, ("read", {}), ("read", {}), EQUAL, FIRST)
    result = act(*calls)
    assert (result.outcome, len(done())) == ("undecided", 1)
    said = (
        "0/step/4/call/0/approval: refund(order=7) was made at action 1, and waits for an approval to be made once more"
    )
    assert said in str(result.reason)
    assert microagents("decide", "r", "step/4", *words).code == COMPLETED
    assert act(*calls).outcome == "completed"
    assert len(done()) == made


def test_what_may_be_repeated_and_what_was_not_made_is_made_as_often_as_it_is_chosen() -> None:
    refused = ("refund", {"order": -1})
    result = act(("press", {"button": "+"}), ("press", {"button": "+"}), refused, refused)
    assert (result.outcome, result.value["errors"], len(done())) == ("completed", 2, 2)


@pytest.mark.parametrize(
    ("arguments", "is_equal"),
    [
        ({"order": 7, "note": ""}, True),
        ({"order": 7.0, "cents": 4900.0}, True),
        ({"order": 7, "note": " "}, False),
        ({"order": 7, "cents": 4900.5}, False),
        ({"order": "7"}, False),
        ({"order": 7, "cents": 1e300}, False),
    ],
)
def test_calls_are_equal_if_they_do_the_same(arguments: dict[str, Any], *, is_equal: bool) -> None:
    parameters = FunctionTool(refund).spec.parameters
    digests = {call_digest(ToolCall("refund", each), parameters) for each in ({"order": 7}, arguments)}
    assert (len(digests) == 1) is is_equal
