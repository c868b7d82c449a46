"""Which calls wait for the approval of a person: by their effect, by their tool, or by an argument beyond a bound."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache

from msgspec import Struct

from microagents.base.errors import InvalidUsage
from microagents.replies.tool_calls import ToolCall
from microagents.tools.tool import KINDS, Kind, ToolSpec

_COMPARISONS: Mapping[str, Callable[[Decimal, Decimal], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_NUMBER = r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d{1,4})?"
_NAME = r"""[^\s<>=!,"']+"""
_RULE = re.compile(
    rf"(?P<named>{_NAME})|(?P<tool>{_NAME})\.(?P<argument>{_NAME}?)\s*(?P<compared>{'|'.join(_COMPARISONS)})\s*(?P<bound>{_NUMBER})",
    re.ASCII,
)


class ApprovalRule(Struct, frozen=True, kw_only=True):
    """One part of the option ``approve``."""

    named: str
    """An effect, or a tool."""
    argument: str = ""
    """Name of an argument; empty if all calls wait."""
    compared: str = ""
    """The comparison, such as ``>=``."""
    bound: Decimal = Decimal(0)
    """The number that the argument is compared with."""

    def holds(self, call: ToolCall, effect: Kind) -> bool:
        """Return whether a call waits. It does if its argument is missing, or cannot be compared with a number."""
        if self.named not in (call.tool, effect) or not self.argument:
            return self.named in (call.tool, effect)
        number = _number_in(call.arguments.get(self.argument))
        return number is None or _COMPARISONS[self.compared](number, self.bound)


def _number_in(value: object) -> Decimal | None:
    """Read an argument as the number that its JSON shows, exactly; None if it is neither a finite number nor the text of one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    if isinstance(value, int):
        return Decimal(value)
    text = str(value)  # of a float the shortest decimal: 0.1 equals the bound 0.1
    if not re.fullmatch(_NUMBER, text, re.ASCII):
        return None
    return Decimal(text)


@lru_cache(maxsize=64)
def approval_rules(text: str) -> tuple[ApprovalRule, ...]:
    """Read the parts of the option: an effect, TOOL, or TOOL.ARGUMENT OP NUMBER, separated by commas."""
    parts = [part.strip() for part in text.split(",")]
    return tuple(_rule(part) for part in parts if part)


def _rule(part: str) -> ApprovalRule:
    found = _RULE.fullmatch(part)
    if found is None:
        raise ValueError(
            f"{part!r} is neither an effect, nor TOOL, nor TOOL.ARGUMENT OP NUMBER, with OP one of < <= > >= == !=, such as "
            "refund.cents>5000"
        )
    if found["named"]:
        return ApprovalRule(named=found["named"])
    return ApprovalRule(
        named=found["tool"], argument=found["argument"], compared=found["compared"], bound=Decimal(found["bound"])
    )


def check_approvals(text: str, tools: Mapping[str, ToolSpec]) -> None:
    """Refuse an option that names no effect, tool or argument: a call without a question must not pass for approved."""
    for rule in approval_rules(text):
        spec = tools.get(rule.named)
        if spec is None and (rule.named not in KINDS or rule.argument):
            raise InvalidUsage(
                f"approve names {rule.named!r}, which is neither a tool nor an effect; tools: {', '.join(tools)}"
            )
        if "read_only" in (rule.named, spec and spec.effect):
            raise InvalidUsage(f"approve names {rule.named!r}, which only reads, and reads never wait")
        if spec is not None and rule.argument and rule.argument not in spec.parameters.get("properties", {}):
            raise InvalidUsage(f"approve names the argument {rule.argument!r}, which {rule.named} lacks")
