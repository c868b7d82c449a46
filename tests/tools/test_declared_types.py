"""Arguments and results of tools by their declared types: no number goes through a float on its way, and equal values are one vote."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple, TypedDict

import numpy as np
import pytest
from msgspec import Struct, to_builtins
from pydantic import AfterValidator, BaseModel, SecretStr

from microagents import Action, AgentTask, Call, McpServer, Result, ToolCall, run_sync, tool
from microagents.base.errors import InvalidDefinition
from microagents.replies.parsing import parse
from microagents.tools.calling import Tools
from microagents.tools.observations import observation_of
from microagents.tools.tool import EffectKey, FunctionTool, RunInput, ToolSpec
from microagents.tools.toolbox import Toolbox

PAID: list[object] = []
ONE, OTHER = "1.000000000000000001", "1.000000000000000002"


class Unit(Enum):
    ETHER = "ether"


class Line(BaseModel):
    price: Decimal


@tool("destructive")
def pay(
    amount: Decimal = Decimal(0),
    *,
    weight: float = 0.0,
    many: int = 0,
    at: datetime | None = None,
    lines: list[Line] | None = None,
    by_name: dict[str, Decimal] | None = None,
    names: frozenset[str] = frozenset(),
    anything: Any = None,
    unit: Unit = Unit.ETHER,
    doubled: Annotated[int, AfterValidator(lambda number: number * 2)] = 0,
    secret: SecretStr | None = None,
) -> str:
    """Pay."""
    PAID.append(amount)
    return f"paid {(amount, weight, many, at, lines, by_name, names, anything, unit, doubled, secret)}"


def read_arguments(arguments: str) -> dict[str, Any]:
    """Return the arguments of a call in a reply."""
    return parse(f'calls = [{{"tool": "pay", "arguments": {arguments}}}]', Action).calls[0].arguments


def declared(arguments: str) -> dict[str, Any]:
    """Return the arguments that a reply gives, as the tool declares them."""
    return Toolbox([pay], {}, {}).as_declared(ToolCall("pay", read_arguments(arguments))).arguments


@pytest.mark.parametrize(
    ("one", "other", "is_one_vote"),
    [
        (f'{{"amount": {ONE}}}', f'{{"amount": {OTHER}}}', False),
        (f'{{"amount": {ONE}}}', f'{{"amount": "{ONE}0"}}', True),
        (f'{{"lines": [{{"price": {ONE}}}]}}', f'{{"lines": [{{"price": {OTHER}}}]}}', False),
        ('{"amount": 0.1}', '{"amount": 0.10000000000000001}', False),
        ('{"weight": 5}', '{"weight": 5.0}', True),
        ('{"weight": 0.1}', '{"weight": 0.10000000000000001}', True),
        ('{"many": 12345678901234567890123}', '{"many": 12345678901234567890124}', False),
        ('{"at": "2026-01-31T10:00:00Z"}', '{"at": "2026-01-31T10:00:00+00:00"}', True),
        ('{"secret": "a"}', '{"secret": "b"}', False),
        ('{"doubled": 1}', '{"doubled": 2}', False),
    ],
)
def test_votes_are_compared_by_the_declared_types(one: str, other: str, *, is_one_vote: bool) -> None:
    votes = {Action(calls=[ToolCall("pay", declared(each))]).vote() for each in (one, other)}
    assert (len(votes) == 1) is is_one_vote


def test_a_tool_gets_each_number_as_it_was_written() -> None:
    given = declared(
        f'{{"amount": {ONE}, "weight": {ONE}, "lines": [{{"price": {OTHER}}}], "anything": {ONE}, "doubled": 3}}'
    )
    bound = FunctionTool(pay).bind(given, EffectKey("k"), RunInput("r/0"))
    assert (bound["amount"], bound["lines"]) == (Decimal(ONE), [Line(price=Decimal(OTHER))])
    assert (bound["weight"], bound["anything"], bound["doubled"]) == (1.0, 1.0, 6)


def test_allowed_values_are_compared_by_the_declared_types() -> None:
    toolbox = Toolbox([pay], {}, {"pay": {"amount": (Decimal("1.5"),), "unit": (Unit.ETHER,)}})
    assert [toolbox.flag_of("pay", declared(f'{{"amount": {each}}}')) for each in ("1.50", ONE)] == [None, "forbidden"]


@pytest.mark.parametrize(
    ("one", "other", "flag"), [("5", "5.0", None), ("0.1", "0.10000000000000001", None), ("1", ONE, "bad_arguments")]
)
def test_a_server_is_sent_no_other_number_than_the_one_that_was_voted_for(
    one: str, other: str, flag: str | None
) -> None:
    server = McpServer(server="till")
    spec = ToolSpec(
        name="pay", description="", parameters={"type": "object", "properties": {"amount": {"type": "number"}}}
    )
    toolbox = Toolbox([server], {server.text: [to_builtins(spec)]}, {})
    calls = [toolbox.as_declared(ToolCall("pay", read_arguments(f'{{"amount": {each}}}'))) for each in (one, other)]
    assert toolbox.flag_of("pay", calls[1].arguments) == flag
    assert (calls[0].key_text() == calls[1].key_text()) is (flag is None)


class Ended(Struct, frozen=True):
    amount: Decimal
    at: date | None = None


class Paying(AgentTask[Ended]):
    tools: ClassVar = (pay,)

    def statement(self) -> str:
        return "Pay."


def paid_by(*amounts: str, **given: Any) -> Result[Any]:
    """Let samples ask for amounts, in turn."""
    PAID.clear()
    samples = [0]

    async def model(call: Call) -> str:
        samples[0] += 1
        amount = amounts[samples[0] % len(amounts)]
        tool_name = "end" if "\nAction 1" in call.prompt.user else "pay"
        return f'calls = [{{"tool": "{tool_name}", "arguments": {{"amount": {amount}}}}}]'

    return run_sync(Paying(), models=model, run_id="r", **given)


def test_amounts_that_only_a_float_takes_for_equal_are_two_votes_and_nothing_is_paid() -> None:
    result = paid_by(ONE, OTHER)
    assert (result.outcome, PAID) == ("undecided", [])
    assert "Prose" not in str(result.reason), "an amount is no wording"


def test_the_exact_amount_is_paid_recorded_and_given_back() -> None:
    result = paid_by(ONE, f'"{ONE}0"')
    assert (result.outcome, PAID) == ("completed", [Decimal(ONE)])
    assert result.value["result"]["amount"] == Decimal(ONE)
    again = paid_by(ONE)
    assert (again.value, PAID) == (result.value, [])


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (np.int64(3), "3"),
        ({"stock": np.float64(1.5), "there": np.bool_(1)}, '{"stock":1.5,"there":true}'),
        (np.array([[1, 2], [3, 4]]), "[[1,2],[3,4]]"),
        ({Unit.ETHER: {"b", "a"}}, '{"ether":["a","b"]}'),
        (Ended(Decimal("1.50"), date(2026, 1, 31)), '{"amount":"1.50","at":"2026-01-31"}'),
        (range(2), "[0,1]"),
        ({(1, 2): 2**70}, '{"[1,2]":1180591620717411303424}'),
    ],
)
def test_values_of_libraries_are_written_as_json(value: object, shown: str) -> None:
    assert observation_of(value, 1_000) == shown


class Timestamp(datetime):
    """A subclass, such as that of pandas."""


class Connection:
    """What JSON lacks."""


class Shop:
    def __init__(self, stock: int) -> None:
        self.left = stock

    def stock(self, item: str) -> np.int64:
        """Say how many there are."""
        return np.int64(self.left + len(item))

    async def later(self, item: str) -> int:
        """Say it later."""
        return self.left + len(item)

    @tool("read_only", name="count")
    @classmethod
    def counted(cls, item: str) -> int:
        """Count."""
        return len(item)


@dataclass
class Adder:
    more: int

    async def __call__(self, item: str) -> int:
        """Add."""
        return self.more + len(item)


def add(item: str, more: int, *, account: str) -> str:
    """Add more."""
    return f"{item} {more} {account}"


@pytest.mark.parametrize(
    ("function", "shown"),
    [
        (Shop(3).stock, ("stock", "destructive", "Say how many there are.", ["item"], "6")),
        (tool("read_only")(Shop(4).later), ("later", "read_only", "Say it later.", ["item"], "7")),
        (Shop.counted, ("count", "read_only", "Count.", ["item"], "3")),
        (Adder(5), ("Adder", "destructive", "Add.", ["item"], "8")),
        (
            tool("idempotent", name="plus")(partial(add, more=3, account="b")),
            ("plus", "idempotent", "Add more.", ["item"], "tea 3 b"),
        ),
    ],
)
async def test_methods_partials_and_objects_are_tools(function: Any, shown: tuple[Any, ...]) -> None:
    toolbox, tools = Toolbox([function], {}, {}), Tools()
    (spec,) = toolbox.specs.values()
    called = await tools.call(
        toolbox, spec.name, {"item": "tea"}, EffectKey("k"), RunInput("r/0"), timeout_s=9.0, most_chars=99
    )
    assert (spec.name, spec.effect, spec.description, list(spec.parameters["properties"]), called.text) == shown


class Row(TypedDict):
    n: int


class Pair(NamedTuple):
    row: Row


@pytest.mark.parametrize("kind", [Row, Pair])
def test_a_result_that_is_a_dict_or_a_tuple_with_names_can_be_written(kind: Any) -> None:
    def look_up() -> None:
        """Look up."""

    look_up.__annotations__["return"] = list[kind]
    assert list(Toolbox([look_up], {}, {}).specs) == ["look_up"]


@pytest.mark.parametrize("kind", [list[Connection], dict[str, Connection | None]])
def test_a_result_that_cannot_be_written_is_named_before_any_call(kind: Any) -> None:
    def connect() -> None:
        """Connect."""

    connect.__annotations__["return"] = kind
    with pytest.raises(InvalidDefinition, match="tool connect returns a Connection, which cannot be written as JSON"):
        FunctionTool(connect)
