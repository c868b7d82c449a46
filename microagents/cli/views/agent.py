"""The work of an agent as text for the terminal: its actions, their votes, and the outcomes of their calls."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from rich.cells import cell_len

from microagents.cli.views.lines import joined, one_line, shorten
from microagents.cli.views.parts import Sections
from microagents.runs.words.money import Price
from microagents.runs.words.summary import columns_of_stdout
from microagents.systems.agents.notes import ActionRecord, AgentRecord, CallRecord

MIN_COLUMNS = 60
"""Minimum width of a line."""
MIN_TEXT = 24
"""Minimum width of a call or an observation."""


def draw_agent(record: AgentRecord, price: Price) -> str:
    """Draw the work as text. Control characters and line breaks from models and tools are replaced."""
    columns = max(MIN_COLUMNS, columns_of_stdout())
    lines = [shorten(f"goal: {one_line(record.goal)}", columns)]
    for action in record.actions:
        lines += action_lines(action, price, columns)
    return joined(lines)


def action_lines(action: ActionRecord, price: Price, columns: int) -> Iterator[str]:
    """Draw an action: its votes and cost, and a line for each call and for its outcome."""
    votes = ":".join(str(votes) for _, votes in action.options) or "no vote"
    flags = "".join(f", {number} {flag}" for flag, number in sorted(action.flags.items()))
    head = f"{action.path.partition('/')[2]}  {action.outcome} {votes}{flags}, {price(action.cost_usd)}{_seconds(action.decided_ms)}"
    yield shorten(f"{head}: the end, {_text(action.result)}" if action.result is not None else head, columns)
    for call in action.calls:
        yield _fitted("    ", call_text(call.tool, call.arguments), f"  {call.effect or 'no such tool'}", columns)
        seen = "" if call.observation is None else f": {one_line(call.observation)}"
        notes = "; ".join(_notes(call))
        by = notes and f"  ({notes})"
        yield _fitted("      -> ", f"{call.outcome}{seen}", f"{by}{_seconds(call.ended_ms)}", columns)


def print_calls(parts: Sections, calls: Sequence[CallRecord]) -> None:
    """Print the calls of an action and their outcomes in full."""
    for call in calls:
        key = [] if call.effect == "read_only" else [f"the key of the effect is {call.key}"]
        title = f"{call.effect or 'no such tool'}: {call_text(call.tool, call.arguments)}"
        parts.add(
            f"{title}: {call.outcome}{_seconds(call.ended_ms)}",
            call.observation or "",
            "; ".join([*key, *_notes(call)]),
        )


def _notes(call: CallRecord) -> Iterator[str]:
    if call.makings > 1:
        yield f"begun {call.makings} times"
    if call.person is not None:
        yield f"a person: {call.person}"


def call_text(tool: str, arguments: dict[str, object]) -> str:
    """Write a call as in Python."""
    return one_line(f"{tool}({', '.join(f'{name}={_text(value)}' for name, value in arguments.items())})")


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _seconds(after_ms: int | None) -> str:
    if after_ms is None:
        return ""
    return f", {after_ms / 1000:.1f} s"


def _fitted(head: str, text: str, tail: str, columns: int) -> str:
    return f"{head}{shorten(text, max(MIN_TEXT, columns - cell_len(head) - cell_len(tail)))}{tail}"
