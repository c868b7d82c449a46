"""Tools: their schema, the check of arguments, and what their results look like as observations."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr, field_serializer

from microagents import NotMade
from microagents.base.errors import InvalidDefinition
from microagents.base.foreign_text import bounded
from microagents.tools.calling import Tools
from microagents.tools.observations import Called
from microagents.tools.tool import Effect, EffectKey, FunctionTool, RunInput, tool
from microagents.tools.toolbox import Toolbox


class How(Enum):
    CARD = "card"


class Order(BaseModel):
    order: int
    at: date
    how: How
    parts: list[Order] = []
    secret: SecretStr = SecretStr("1234")


class Broken(BaseModel):
    order: int

    @field_serializer("order")
    def fail(self, order: int) -> str:
        raise LookupError(order)


@dataclass(frozen=True, slots=True)
class Line:
    order: Order
    seats: tuple[int, ...]


PAID = Order(order=7, at=date(2026, 11, 23), how=How.CARD)


@tool("idempotent")
def book(day: date, seats: int, key: EffectKey, note: str = "") -> str:
    """Book seats for a day."""
    return f"{day} {seats} {key} {note}"


def call(function: Callable[..., Any], timeout_s: float = 5.0, most_chars: int = 1_000, **arguments: Any) -> Called:
    async def made() -> Called:
        tools, toolbox = Tools(), Toolbox([function], {}, {})
        try:
            name = next(iter(toolbox.specs))
            return await tools.call(
                toolbox, name, arguments, EffectKey("k"), RunInput("r/0"), timeout_s=timeout_s, most_chars=most_chars
            )
        finally:
            await tools.close()

    return asyncio.run(made())


def test_signature_and_docstring_give_the_schema_and_the_model_sees_no_key() -> None:
    spec = FunctionTool(book).spec
    assert (spec.name, spec.description, spec.effect) == ("book", "Book seats for a day.", "idempotent")
    assert list(spec.parameters["properties"]) == ["day", "seats", "note"]
    assert spec.parameters["required"] == ["day", "seats"]
    assert FunctionTool(lambda: None).spec.effect == "destructive", "an effect that is not stated"


def test_a_tool_gets_its_key_and_values_of_its_types() -> None:
    @tool("destructive")
    def pay(day: date) -> str:
        return f"{day}"

    assert call(book, day="2026-11-23", seats=2).text == "2026-11-23 2 k "
    assert call(pay, day="no").outcome == "error", "before the call is begun"


@pytest.mark.parametrize(
    "arguments",
    [
        {"day": "2026-11-23"},
        {"day": "no", "seats": 1},
        {"day": "2026-11-23", "seats": "2"},
        {"day": "2026-11-23", "seats": 1, "key": "mine"},
        {"day": "2026-11-23", "seats": 1, "more": 1},
    ],
)
def test_arguments_that_do_not_fit_are_a_red_flag(arguments: dict[str, Any]) -> None:
    assert Toolbox([book], {}, {}).flag_of("book", arguments) == "bad_arguments"


def test_the_table_of_allowed_values_forbids_all_others() -> None:
    toolbox = Toolbox([book], {}, {"book": {"seats": range(3)}})
    flags = [toolbox.flag_of("book", {"day": "2026-11-23", "seats": seats}) for seats in (2, 3)]
    assert (flags, toolbox.flag_of("drop_table", {})) == ([None, "forbidden"], "unknown_tool")


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ("a\x1b[2J\u202eb", "a\\u001b[2J\\u202eb"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        (math.nan, '"NaN"'),
        ({"left": [1.5, -math.inf]}, '{"left":[1.5,"-Infinity"]}'),
        ({"a": "\ud800"}, "(the call was made; it returned a dict, which cannot be written as JSON"),
        (b"\xff", '"/w=="'),
        (object(), "(the call was made; it returned a object, which cannot be written as JSON"),
        (None, "null"),
        (PAID, '{"order":7,"at":"2026-11-23","how":"card","parts":[],"secret":"**********"}'),
        ([Line(PAID, (2, 3))], '[{"order":{"order":7,"at":"2026-11-23","how":"card","parts":[],"secret":"**********"},"seats":[2,3]}]'),
        (Order(order=1, at=date(2026, 1, 2), how=How.CARD, parts=[PAID]),
         '{"order":1,"at":"2026-01-02","how":"card","parts":[{"order":7,'),
        (Broken(order=1), "(the call was made; it returned a Broken, which cannot be written as JSON"),
    ],
)  # fmt: skip
def test_what_a_tool_returns_is_shown_as_text_that_controls_no_terminal(result: object, shown: str) -> None:
    def give() -> object:
        return result

    called = call(give)
    assert called.outcome == "done"
    assert called.text.startswith(shown)


def test_a_hundred_megabytes_are_cut_with_a_note() -> None:
    text = bounded("x" * 100_000_000, 1_000)
    assert (len(text) < 1_100, "99,999,000 of 100,000,000 characters are left out" in text) == (True, True)


ERRORS = (ValueError("no such order"), SystemExit(3), StopIteration(), asyncio.CancelledError())


@pytest.mark.parametrize(
    ("effect", "error"),
    [*[("destructive", each) for each in (*ERRORS, NotMade("no such order"))], ("idempotent", ConnectionResetError())],
)
def test_a_destructive_tool_that_raises_is_unknown(effect: Effect, error: BaseException) -> None:
    @tool(effect, not_made=(ValueError,))
    def fail() -> None:
        raise error

    is_unknown = effect == "destructive" and not isinstance(error, NotMade | ValueError)
    assert call(fail).outcome == ("unknown" if is_unknown else "error")


@pytest.mark.parametrize("not_made", [ValueError, ("ValueError",), [ValueError]])
def test_errors_that_are_no_tuple_of_exceptions_are_refused(not_made: Any) -> None:
    with pytest.raises(InvalidDefinition, match="not_made must be a tuple of exceptions"):
        tool("destructive", not_made=not_made)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_tool_that_hangs_has_an_unknown_outcome_and_hangs_nothing_else(*, is_async: bool) -> None:
    may_end = threading.Event()

    def hang() -> None:
        may_end.wait()

    async def hang_async() -> None:
        await asyncio.Event().wait()

    try:
        assert call(hang_async if is_async else hang, timeout_s=0.05).outcome == "unknown"
    finally:
        may_end.set()


def test_a_plain_function_that_gives_a_coroutine_has_done_its_work_once_that_has_ended() -> None:
    done = list[int]()

    async def pay(cents: int) -> str:
        await asyncio.sleep(0)
        done.append(cents)
        return "paid"

    def logged(cents: int) -> Any:
        return pay(cents)

    assert (call(logged, cents=4900), done) == (Called(outcome="done", text="paid"), [4900])


@pytest.mark.parametrize("given", [book, None, "book", (5,), (book, None)])
def test_tools_that_are_none_are_refused_by_name(given: Any) -> None:
    with pytest.raises(
        InvalidDefinition, match=r"^(tools stand in a tuple, .* not|a tool is a function or an MCP server, not) "
    ):
        Toolbox(given, {}, {})
