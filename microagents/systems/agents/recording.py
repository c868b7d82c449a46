"""The recorded work of an agent: its actions with their votes, and what came of their calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import msgspec
from msgspec import Struct

from microagents.elections.election import Ballot, Flagged, total_usd
from microagents.journal.messages import OpenElection, Recalled
from microagents.replies.chat import A, ProseByTool, decoder_of, vote_of
from microagents.replies.persons import Approval, FoundOutcome
from microagents.replies.tool_calls import ToolCall
from microagents.systems.agents.actions import Action, making_at
from microagents.systems.agents.agent import AgentTask
from microagents.tools.observations import MAX_OBSERVATION_CHARS, observation_of
from microagents.tools.tool import Effect


class CallRecord(Struct, kw_only=True):
    """One call of an action."""

    tool: str
    arguments: dict[str, Any]
    effect: Effect | None = None
    """None where the tool is no longer there."""
    key: str = ""
    """The key of its effect."""
    outcome: str = "not made"
    """`done`, `error`, `rejected` or `repeated`; `waits` for an approval; `unknown`; `begun`, without an outcome so far; or `not made`."""
    observation: str | None = None
    """What the model sees of it; None without an outcome."""
    person: str | None = None
    """What persons said of it: `approved`, `rejected`, `was made`, `was not made`, or several of these; None if none did."""
    makings: int = 0
    """Number of times that a call that changes the world was begun."""
    ended_ms: int | None = None
    """Milliseconds from the start of the run to the record of its outcome."""


class ActionRecord(Struct, kw_only=True):
    """One action, or the election of one."""

    path: str
    outcome: str
    """The outcome of its election; `open` for one that is under way."""
    options: list[tuple[list[ToolCall], int]]
    """For each action that was voted for, the most frequent first, its calls and its votes."""
    flags: dict[str, int]
    """Red flags by name."""
    cost_usd: float | None
    calls: list[CallRecord]
    """The calls of the elected action; empty for an end, and without an election that is decided."""
    result: dict[str, Any] | None = None
    """The arguments of the end."""
    decided_ms: int | None = None
    """Milliseconds from the start of the run to the decision."""


class AgentRecord(Struct, kw_only=True):
    """Work of an agent on one input."""

    goal: str
    actions: list[ActionRecord]


def agent_record(
    of_input: int,
    task: AgentTask[Any],
    rows: Mapping[str, Recalled],
    open_elections: Sequence[OpenElection],
    prose: ProseByTool,
) -> AgentRecord:
    """Read the actions of an agent from the rows of a journal; votes leave out the arguments that are prose."""
    begun = {each.id.path: each.ballots for each in open_elections}
    return AgentRecord(goal=task.statement(), actions=list(_actions(f"{of_input}/step", task, rows, begun, prose)))


def _actions(
    steps: str,
    task: AgentTask[Any],
    rows: Mapping[str, Recalled],
    begun: Mapping[str, tuple[Ballot | Flagged, ...]],
    prose: ProseByTool,
) -> Iterator[ActionRecord]:
    for number in count():
        path = f"{steps}/{number}"
        vote, bought = rows.get(path), begun.get(path, ())
        if vote is None and path not in begun:
            return
        # The decision of a rung, or of another model, stands right below that of the vote.
        tries = [
            row for at, row in rows.items() if at == path or (at.startswith(f"{path}/") and at.count("/") == _RUNG)
        ]
        decided = next((row for row in tries if row.is_decision), None)
        ballots = [*(() if vote is None else vote.ballots), *bought]
        action = None if decided is None or decided.value is None else msgspec.json.decode(decided.value, type=Action)
        is_end = action is not None and action.is_end
        yield ActionRecord(
            path=path,
            outcome=decided.outcome if decided is not None else "open" if vote is None else vote.outcome,
            options=_options(ballots, prose),
            flags=dict(Counter(each.flag for each in ballots if isinstance(each, Flagged))),
            cost_usd=total_usd([*(each.cost_usd for each in tries), *(each.cost_usd for each in bought)]),
            calls=[]
            if action is None or is_end
            else [_call(f"{path}/call/{i}", each, task, rows) for i, each in enumerate(action.calls)],
            result=action.calls[0].arguments if action is not None and is_end else None,
            decided_ms=None if decided is None else decided.after_ms,
        )


_RUNG = 3
"""Number of slashes in the path of a rung."""


def _options(ballots: Sequence[Ballot | Flagged], prose: ProseByTool) -> list[tuple[list[ToolCall], int]]:
    actions = [msgspec.json.decode(each.value, type=Action) for each in ballots if isinstance(each, Ballot)]
    votes = [vote_of(each, prose) for each in actions]
    first = dict(zip(reversed(votes), reversed([each.calls for each in actions]), strict=True))
    return [(first[vote], number) for vote, number in Counter(votes).most_common()]


def _call(path: str, call: ToolCall, task: AgentTask[Any], rows: Mapping[str, Recalled]) -> CallRecord:
    spec = task.toolbox.specs.get(call.tool)
    record = CallRecord(tool=call.tool, arguments=call.arguments, effect=None if spec is None else spec.effect)
    said = []
    approval, is_asked = _said(rows.get(f"{path}/approval"), Approval)
    if approval is not None:
        said.append("approved" if approval.approved else "rejected")
        record.outcome, record.observation = ("not made", None) if approval.approved else ("rejected", approval.text)
    elif is_asked:
        record.outcome = "waits"
    _take_outcome(record, rows.get(f"{path}/outcome"))  # of a call that only reads, or that is not repeated
    for making in _makings(path, rows):
        record.makings += 1
        answer = rows.get(f"{making}/found")
        found, is_asked = _said(answer, FoundOutcome)
        is_unknown = is_asked or f"{making}/unknown" in rows
        record.outcome = "unknown" if is_unknown else "begun"
        if found is not None and answer is not None:
            if answer.is_decision:  # else the call itself has ended after its time-out
                said.append("was made" if found.was_made else "was not made")
            record.outcome = "done" if found.was_made else "not made" if found.value is None else "error"
            if found.was_made or found.value is not None:
                record.observation = observation_of(found.value, MAX_OBSERVATION_CHARS)
        _take_outcome(record, rows.get(f"{making}/outcome"))
    record.person = ", ".join(said) or None
    return record


def _makings(path: str, rows: Mapping[str, Recalled]) -> Iterator[str]:
    """Yield the places of the makings of a call that were begun, or asked about."""
    for number in count(1):
        making = making_at(path, number)
        if not any(f"{making}{part}" in rows for part in ("", "/unknown", "/found", "/outcome")):
            return
        yield making


def _take_outcome(record: CallRecord, row: Recalled | None) -> None:
    if row is not None and row.value is not None:
        seen = msgspec.json.decode(row.value)
        record.outcome, record.observation, record.ended_ms = seen["outcome"], seen["text"], row.after_ms


def _said(row: Recalled | None, kind: type[A]) -> tuple[A | None, bool]:
    """What a person said, and whether one was asked."""
    if row is None or row.value is None:
        return None, row is not None
    return decoder_of(kind).decode(row.value), True
