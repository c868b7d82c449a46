"""Which actions a person approves, and which are allowed: what is misspelt or unclear is refused, or asked about, never let through."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from microagents.base.errors import InvalidDefinition, InvalidUsage
from microagents.replies.tool_calls import ToolCall
from microagents.systems.agents.act import Act
from microagents.systems.agents.approvals import check_approvals
from microagents.tools.tool import tool
from microagents.tools.toolbox import Toolbox


@tool("destructive")
def refund(order: int, cents: int, currency: str = "EUR", codes: Any = None) -> str:
    """Pay money back."""
    return f"{order} {cents} {currency} {codes}"


def waits(rule: str, cents: Any) -> bool:
    return Act(approve=rule).needs_approval(ToolCall("refund", {"order": 7, "cents": cents}), "destructive")


@pytest.mark.parametrize(
    "rule",
    [
        "refund.cents=>5000", "refund.cents=5000", "==9000", "refund==9000", 'refund.cents>"5000"',
        "refund.cents>5000 EUR", "refund.cents>EUR", "refund.cents>0x10", "refund.cents>1_000", "refund.cents>nan",
        "refund.cents>", "refund.cents > > 5", ".cents>5", "refund.>5", "refund and mail",
    ],
)  # fmt: skip
def test_a_rule_that_is_not_a_name_or_a_comparison_with_a_number_is_refused(rule: str) -> None:
    with pytest.raises(ValidationError, match=r"neither an effect, nor TOOL, nor TOOL\.ARGUMENT OP NUMBER"):
        Act(approve=rule)


@pytest.mark.parametrize("rule", ["refnd", "refund.cnts>5", "refund.cents>5,000", "destructive.cents>5", "end"])
def test_a_rule_for_an_unknown_tool_or_argument_is_refused(rule: str) -> None:
    with pytest.raises(
        InvalidUsage, match=r"approve names .*(which is neither a tool nor an effect|which refund lacks)"
    ):
        check_approvals(Act(approve=rule).approve, Toolbox([refund], {}, {}).specs)


@pytest.mark.parametrize(
    ("rule", "cents", "expected"),
    [
        ("refund.cents>5000", 9000, True),
        ("refund.cents>5000", 5000, False),
        ("refund.cents > 5000", "9000", True),  # the text of a number is that number
        ("refund.cents>5000", "4999.99", False),
        ("refund.cents>5000", 4999.5, False),
        ("refund.cents>=5e3", 5000.0, True),
        ("refund.cents<=-1", -1, True),
        ("refund.cents==0.3", 0.3, True),
        ("refund.cents>0.1", 0.1, False),
        ("refund.cents!=9007199254740993", 9007199254740993, False),
        ("refund.cents>9007199254740992", 9007199254740993, True),  # equal as floats
        ("refund.cents<5", 10**400, False),
        ("refund.cents!=5000", "5000.0", False),
        ("refund", 1, True),
        ("destructive", 1, True),
        ("mail,idempotent", 1, False),
        # What cannot be compared asks.
        *[("refund.cents>5000", each, True) for each in ("9,000", "", " 1", "1_0", "\u0661", "1e99999", "nan")],
        *[("refund.cents>5000", each, True) for each in (True, None, [1], float("nan"))],
        ("refund.missing>5000", 1, True),
    ],
)
def test_a_number_compares_as_such_and_what_has_no_order_asks(rule: str, cents: Any, *, expected: bool) -> None:
    assert waits(rule, cents) is expected


@pytest.mark.parametrize(
    ("allowed", "message"),
    [
        ({"refnd": {"currency": ("EUR",)}}, r"allowed names 'refnd', which is not a tool; tools: refund"),
        ({"end": {"outcome": ("paid",)}}, "allowed names 'end', which is not a tool"),
        ({"refund": {"curency": ("EUR",)}}, r"allowed names the argument 'curency', which refund lacks"),
        ({"refund": {"currency": "EUR"}}, r"allowed values of refund\.currency .* not 'EUR'"),
        ({"refund": {"cents": 5}}, r"allowed values of refund\.cents .* not 5"),
        ({"refund": "EUR"}, r"allowed of refund must be a table .* not 'EUR'"),
        ({"refund": {"cents": iter((5,))}}, r"allowed values of refund\.cents"),
    ],
)
def test_a_table_of_allowed_values_that_would_forbid_nothing_is_refused(
    allowed: Mapping[str, Mapping[str, Collection[Any]]], message: str
) -> None:
    with pytest.raises(InvalidDefinition, match=message):
        Toolbox([refund], {}, allowed)


def test_a_value_without_a_hash_is_forbidden_by_a_set_of_allowed_values() -> None:
    toolbox = Toolbox([refund], {}, {"refund": {"codes": {1, 2}}})
    given = {"order": 7, "cents": 5}
    flags = [toolbox.flag_of("refund", {**given, "codes": each}) for each in (1, [1], {"a": 1}, None)]
    assert flags == [None, "forbidden", "forbidden", "forbidden"]
