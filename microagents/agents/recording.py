"""The recorded work of an agent: its actions with their votes, and what came of their calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import msgspec
from msgspec import Struct

from microagents.agents.actions import Action
from microagents.agents.agent import AgentTask
from microagents.agents.persons import Approval, FoundOutcome
from microagents.elections.election import Ballot, Flagged, total_usd
from microagents.journal.messages import OpenElection, Recalled
from microagents.replies.chat import A, ProseByTool, decoder_of, vote_of
from microagents.replies.tool_calls import ToolCall
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
    """`done`, `error` or `rejected`; `waits` for an approval; `unknown`; `begun`, without an outcome so far; or `not made` so far."""
    observation: str | None = None
    """What the model sees of it; None without an outcome."""
    person: str | None = None
    """What a person said of it: `approved`, `rejected`, `was made` or `was not made`; None where none did."""
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
    approval, is_asked = _said(rows.get(f"{path}/approval"), Approval)
    found, is_unknown = _said(rows.get(f"{path}/found"), FoundOutcome)
    ended = rows.get(f"{path}/outcome") or rows.get(f"{path}/again/outcome")
    if found is not None:
        record.person = "was made" if found.was_made else "was not made"
    elif approval is not None:
        record.person = "approved" if approval.approved else "rejected"
    if ended is not None and ended.value is not None:
        seen = msgspec.json.decode(ended.value)
        record.outcome, record.observation, record.ended_ms = seen["outcome"], seen["text"], ended.after_ms
    elif found is not None and found.was_made:
        record.outcome, record.observation = "done", observation_of(found.value, MAX_OBSERVATION_CHARS)
    elif approval is not None and not approval.approved:
        record.outcome, record.observation = "rejected", approval.text
    elif is_unknown and found is None:
        record.outcome = "unknown"
    elif path in rows:
        record.outcome = "begun"
    elif is_asked and approval is None:
        record.outcome = "waits"
    return record


def _said(row: Recalled | None, kind: type[A]) -> tuple[A | None, bool]:
    """What a person said, and whether one was asked."""
    if row is None or not row.is_decision or row.value is None:
        return None, row is not None
    return decoder_of(kind).decode(row.value), True
