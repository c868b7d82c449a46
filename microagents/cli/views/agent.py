"""The work of an agent as a tree for the terminal: its actions, their votes, and the outcomes of their calls."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from rich.tree import Tree

from microagents.cli.views.lines import branch, draw, one_line
from microagents.cli.views.parts import Sections
from microagents.runs.words.money import Price
from microagents.systems.agents.notes import ActionRecord, AgentRecord, CallRecord


def draw_agent(record: AgentRecord, price: Price) -> str:
    """Draw the work as text. Control characters and line breaks from models and tools are replaced."""
    work = branch(f"goal: {record.goal}")
    drawn = {each.path: _action(each, price) for each in record.actions}
    for path, tree in drawn.items():
        drawn.get(path.rpartition("/agent/")[0], work).children.append(tree)
    return draw(work)


def _action(action: ActionRecord, price: Price) -> Tree:
    """Draw an action: its votes and cost, and two lines for each call: the call, and its outcome."""
    votes = ":".join(str(votes) for _, votes in action.options) or "no vote"
    flags = "".join(f", {number} {flag}" for flag, number in sorted(action.flags.items()))
    end = "" if action.result is None else f": the end, {_text(action.result)}"
    place = action.path.partition("/")[2]
    head = f"{place}  {action.outcome} {votes}{flags}, {price(action.cost_usd)}{_seconds(action.decided_ms)}{end}"
    return branch(head, below=map(_call, action.calls))


def _call(call: CallRecord) -> Tree:
    notes = "; ".join(_notes(call))
    by = f" ({notes})" if notes else ""
    seen = "" if call.observation is None else f": {call.observation}"
    head = f"{call.effect or 'no such tool'}  {call_text(call.tool, call.arguments)}"
    return branch(head, f"-> {call.outcome}{by}{_seconds(call.ended_ms)}{seen}")


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
