"""The work of an agent as a tree for the terminal: its actions, their votes, and the outcomes of their calls."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from rich.tree import Tree

from microagents.cli.views.lines import branch, draw, flags_text, one_line
from microagents.cli.views.parts import Sections
from microagents.replies.turns import ToolCall
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
    votes = [str(votes) for _, votes in action.options] or ["no vote"]
    place = action.path.partition("/")[2]
    paid = f"{price(action.cost_usd)}{_seconds(action.decided_ms)}"
    head = f"{place}  {action.outcome} {':'.join(votes)}{flags_text(action.flags)}, {paid}"
    if action.result is not None:
        head += f": the end, {json.dumps(action.result, ensure_ascii=False)}"
    return branch(head, below=map(_call, action.calls))


def _call(call: CallRecord) -> Tree:
    notes, outcome = "; ".join(_notes(call)), f"-> {call.outcome}"
    if notes:
        outcome += f" ({notes})"
    outcome += _seconds(call.ended_ms)
    if call.observation is not None:
        outcome += f": {call.observation}"
    return branch(f"{call.effect or 'no such tool'}  {_call_text(call)}", outcome)


def print_calls(parts: Sections, calls: Sequence[CallRecord]) -> None:
    """Print the calls of an action and their outcomes in full."""
    for call in calls:
        notes = [*_notes(call)]
        if call.effect != "read_only":
            notes.insert(0, f"the key of the effect is {call.key}")
        title = f"{call.effect or 'no such tool'}: {_call_text(call)}"
        ended = f"{call.outcome}{_seconds(call.ended_ms)}"
        parts.add(f"{title}: {ended}", call.observation or "", "; ".join(notes))


def _notes(call: CallRecord) -> Iterator[str]:
    if call.makings > 1:
        yield f"begun {call.makings} times"
    if call.person is not None:
        yield f"a person: {call.person}"


def _call_text(call: CallRecord) -> str:
    return one_line(ToolCall(call.tool, call.arguments).shown())


def _seconds(after_ms: int | None) -> str:
    if after_ms is None:
        return ""
    return f", {after_ms / 1000:.1f} s"
