"""Which calls wait for the approval of a person: those of an effect, of a tool, or with an argument beyond a bound."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from microagents.errors import InvalidUsage
from microagents.replies.tool_calls import ToolCall
from microagents.tools.tool import EFFECTS, Effect, ToolSpec

_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
}
_RULE = re.compile(rf"(?P<tool>[^<>=!]+)\.(?P<argument>\w+)\s*(?P<compared>{'|'.join(_COMPARISONS)})\s*(?P<bound>.+)")


class ApprovalRule(Struct, frozen=True, kw_only=True):
    """One part of the option ``approve``."""

    named: str
    """An effect, or a tool."""
    argument: str = ""
    """Name of an argument; empty where all calls wait."""
    compared: str = ""
    bound: Any = None

    def holds(self, call: ToolCall, effect: Effect) -> bool:
        """Whether a call waits. One whose argument is missing, or cannot be compared, does."""
        if self.named not in (call.tool, effect) or not self.argument:
            return self.named in (call.tool, effect)
        try:
            return bool(_COMPARISONS[self.compared](call.arguments[self.argument], self.bound))
        except (KeyError, TypeError):
            return True


@lru_cache(maxsize=64)
def approval_rules(text: str) -> tuple[ApprovalRule, ...]:
    """Read the parts of the option: an effect, TOOL, or TOOL.ARGUMENT>NUMBER, separated by commas.

    Raises:
        ValueError: a part is none of these.
    """
    return tuple(_rule(part.strip()) for part in text.split(",") if part.strip())


def _rule(part: str) -> ApprovalRule:
    found = _RULE.fullmatch(part)
    if found is None:
        if re.search("[<>=!]", part):
            raise ValueError(f"{part!r} is no effect, no tool, and not of the form TOOL.ARGUMENT>NUMBER")
        return ApprovalRule(named=part)
    try:
        bound = msgspec.json.decode(found["bound"])
    except msgspec.DecodeError:
        bound = found["bound"]
    return ApprovalRule(named=found["tool"], argument=found["argument"], compared=found["compared"], bound=bound)


def check_approvals(text: str, tools: Mapping[str, ToolSpec]) -> None:
    """Refuse an option that names no effect, tool or argument: what nobody would be asked about must not pass for approved.

    Raises:
        InvalidUsage: it does.
    """
    for rule in approval_rules(text):
        spec = tools.get(rule.named)
        if spec is None and (rule.named not in EFFECTS or rule.argument):
            raise InvalidUsage(
                f"approve names {rule.named!r}, which is no tool and no effect; tools: {', '.join(tools)}"
            )
        if "read_only" in (rule.named, spec and spec.effect):
            raise InvalidUsage(f"approve names {rule.named!r}, which only reads, and reads never wait")
        if spec is not None and rule.argument and rule.argument not in spec.parameters.get("properties", {}):
            raise InvalidUsage(f"approve names the argument {rule.argument!r}, which {rule.named} lacks")
