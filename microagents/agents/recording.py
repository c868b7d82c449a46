"""The recorded work of an agent: its actions with their votes, and what came of their calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import msgspec
from msgspec import Struct

from microagents.agents.actions import Action, ToolCall
from microagents.agents.agent import AgentTask
from microagents.agents.persons import Approval, FoundOutcome
from microagents.elections.election import Ballot, Flagged, total_usd
from microagents.journal.messages import OpenElection, Recalled
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
    said_by_person: str | None = None
    """What a person said of it, as JSON; None where none did."""
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
    """The work of an agent on one input."""

    goal: str
    actions: list[ActionRecord]


def agent_record(of_input: int, task: AgentTask[Any], rows: Mapping[str, Recalled], open_elections: Sequence[OpenElection]) -> AgentRecord:
    """Read the actions of an agent from the rows of a journal."""
    begun = {each.id.path: each.ballots for each in open_elections}
    return AgentRecord(goal=task.statement(), actions=list(_actions(f"{of_input}/step", task, rows, begun)))


def _actions(
    steps: str, task: AgentTask[Any], rows: Mapping[str, Recalled], begun: Mapping[str, tuple[Ballot | Flagged, ...]]
) -> Iterator[ActionRecord]:
    for number in count():
        path = f"{steps}/{number}"
        vote, bought = rows.get(path), begun.get(path, ())
        if vote is None and path not in begun:
            return
        # The decision of a rung, or of another model, stands right below that of the vote.
        tries = [row for at, row in rows.items() if at == path or (at.startswith(f"{path}/") and at.count("/") == _RUNG)]
        decided = next((row for row in tries if row.is_decision), None)
        ballots = [*(() if vote is None else vote.ballots), *bought]
        action = None if decided is None or decided.value is None else msgspec.json.decode(decided.value, type=Action)
        is_end = action is not None and action.is_end
        yield ActionRecord(
            path=path,
            outcome=decided.outcome if decided is not None else "open" if vote is None else vote.outcome,
            options=_options(ballots),
            flags=dict(Counter(each.flag for each in ballots if isinstance(each, Flagged))),
            cost_usd=total_usd([*(each.cost_usd for each in tries), *(each.cost_usd for each in bought)]),
            calls=[] if action is None or is_end else [_call(f"{path}/call/{i}", each, task, rows) for i, each in enumerate(action.calls)],
            result=action.calls[0].arguments if action is not None and is_end else None,
            decided_ms=None if decided is None else decided.after_ms,
        )


_RUNG = 3
"""Number of slashes in the path of a rung."""


def _options(ballots: Sequence[Ballot | Flagged]) -> list[tuple[list[ToolCall], int]]:
    actions = [msgspec.json.decode(each.value, type=Action) for each in ballots if isinstance(each, Ballot)]
    first = {each.vote(): each.calls for each in reversed(actions)}
    return [(first[vote], votes) for vote, votes in Counter(each.vote() for each in actions).most_common()]


def _call(path: str, call: ToolCall, task: AgentTask[Any], rows: Mapping[str, Recalled]) -> CallRecord:
    spec = task.toolbox.specs.get(call.tool)
    record = CallRecord(tool=call.tool, arguments=call.arguments, effect=None if spec is None else spec.effect)
    ended = rows.get(f"{path}/outcome") or rows.get(f"{path}/again/outcome")
    asked = rows.get(f"{path}/found") or rows.get(f"{path}/approval")
    if asked is not None and asked.is_decision and asked.value is not None:
        record.said_by_person = asked.value.decode()
    if ended is not None and ended.value is not None:
        seen = msgspec.json.decode(ended.value)
        record.outcome, record.observation, record.ended_ms = seen["outcome"], seen["text"], ended.after_ms
    elif (found := rows.get(f"{path}/found")) is not None:
        said = msgspec.json.decode(found.value, type=FoundOutcome) if found.is_decision and found.value is not None else None
        record.outcome = "unknown" if said is None else "done" if said.was_made else "begun"
        record.observation = None if said is None or not said.was_made else msgspec.json.encode(said.value).decode()
        record.ended_ms = found.after_ms
    elif path in rows:
        record.outcome = "begun"
    elif (approval := rows.get(f"{path}/approval")) is not None:
        given = msgspec.json.decode(approval.value, type=Approval) if approval.is_decision and approval.value is not None else None
        record.outcome = "waits" if given is None else "not made" if given.approved else "rejected"
        record.observation = given.text if given is not None and not given.approved else None
        record.ended_ms = approval.after_ms
    return record
