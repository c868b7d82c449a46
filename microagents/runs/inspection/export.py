"""The decisions of a run, the actions of its agents and the look-ups of its models, as flat rows for other programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from microagents.base.errors import InvalidUsage
from microagents.elections.election import Ballot, Flagged, input_of
from microagents.journal.opening import unreadable
from microagents.journal.reading import Reader
from microagents.journal.requests import settlement
from microagents.replies.tool_calls import ToolCall
from microagents.replies.turns import Arguments
from microagents.roles.executor import KEPT, LookedUpBefore
from microagents.runs.inspection.runs import solution_of
from microagents.systems.agents.actions import END
from microagents.systems.agents.notes import ActionRecord, AgentRecord, CallRecord


class DecisionRow(Struct, frozen=True, kw_only=True):
    """One decision of a run, or one election that ended undecided."""

    run_id: str
    path: str
    input: int
    """Number of the input."""
    outcome: str
    """`once` for the recorded answer to a message, else the outcome of the election."""
    value: Any
    """The decided value, as JSON-like values; of a vote that climbed a ladder the reply that leads; None while undecided."""
    votes: int
    """Number of valid replies counted."""
    other_votes: int | None
    """Number of valid replies other than the value; None without a value. Replies that differ only in fields without a vote stand apart."""
    flags: dict[str, int]
    """Red flags by name."""
    cost_usd: float | None
    """Cost of all counted samples; None if a price is unknown."""
    settled_by: str | None
    """How an undecided election was settled: `leader`, the name of a person, or the spec of another model; None if the vote decided."""
    settled_at: str | None
    """Time of a person's decision, in UTC."""
    decided_at: str
    """Time of its commit, in UTC."""
    input_ended_at: str | None
    """Time at which the input ended, in UTC; None if it has not."""


def decision_rows(reader: Reader) -> Iterator[DecisionRow]:
    """A row for each decision, in the order of paths."""
    run_id, settled, persons = reader.experiment.run_id, reader.settled_at(), reader.persons()
    of_input, ended_at = -1, None
    for path, row in reader.decisions():
        if input_of(path) != of_input:
            of_input = input_of(path)
            ended_at = reader.holding(str(of_input)).ended_at(of_input)
        flags = Counter(ballot.flag for ballot in row.ballots if isinstance(ballot, Flagged))
        votes = [ballot.value for ballot in row.ballots if not isinstance(ballot, Flagged)]
        settled_by, settled_at = settlement(path, settled, persons)
        yield DecisionRow(
            run_id=run_id,
            path=path,
            input=of_input,
            outcome=row.outcome,
            value=_decoded(reader, row.value or b"null"),
            votes=len(votes),
            other_votes=None if row.value is None else sum(value != row.value for value in votes),
            flags=dict(flags),
            cost_usd=row.cost_usd,
            settled_by=settled_by,
            settled_at=settled_at,
            decided_at=reader.moment(row.after_ms),
            input_ended_at=ended_at,
        )


class ActionRow(Struct, frozen=True, kw_only=True):
    """One call of an agent's action; or an end, or an action that is not decided, without a call."""

    run_id: str
    path: str
    """Path of the action."""
    input: int
    election: str
    """The outcome of its election."""
    votes: list[tuple[list[ToolCall], int]]
    """For each action that was voted for its calls and its votes."""
    flags: dict[str, int]
    """Red flags by name."""
    cost_usd: float | None
    """Cost of the election; of several calls the first has it."""
    tool: str | None
    arguments: Arguments | None
    effect: str | None
    key: str | None
    """The key of the effect."""
    outcome: str | None
    """`done`, `error`, `partly done`, `rejected`, `repeated`, `waits`, `unknown`, `begun` or `not made`."""
    observation: str | None
    """The part of it that the model sees."""
    person: str | None
    """Words of persons on the call: `approved`, `rejected`, `was made`, `was not made`, or several of these."""
    makings: int | None
    """Number of times that the call was begun, if it changes the world."""
    decided_at: str | None
    """Time of the decision, in UTC."""
    ended_at: str | None
    """Time at which the outcome of the call was recorded, in UTC."""


def action_rows(reader: Reader) -> Iterator[ActionRow]:
    """A row for each call of an agent, in the order of inputs and actions. It imports the task's module."""
    run_id = reader.experiment.run_id
    for number in range(reader.experiment.inputs):
        solution = solution_of(reader, number)
        if not isinstance(solution, AgentRecord):
            raise InvalidUsage(
                f"run {run_id} is not a run of an agent, so it has no actions; leave --actions out for its decisions"
            )
        for action in solution.actions:
            yield from _calls(reader, number, action)


_OF_CALL = ("tool", "arguments", "effect", "key", "outcome", "observation", "person", "makings")


def _calls(reader: Reader, of_input: int, action: ActionRecord) -> Iterator[ActionRow]:
    if action.result is not None:
        end = CallRecord(tool=END, arguments=action.result, outcome="")
    else:
        end = None
    calls: list[CallRecord | None] = [*action.calls] or [end]
    timed = reader.holding(action.path)
    for number, call in enumerate(calls):
        if call is None:
            made = dict.fromkeys(_OF_CALL)
        else:
            made = {name: getattr(call, name) for name in _OF_CALL}
        made |= {"key": made["key"] or None, "outcome": made["outcome"] or None}
        yield ActionRow(
            run_id=reader.experiment.run_id,
            path=action.path,
            input=of_input,
            election=action.outcome,
            votes=action.options,
            flags=action.flags,
            cost_usd=0.0 if number else action.cost_usd,
            **made,
            decided_at=None if action.decided_ms is None else timed.moment(action.decided_ms),
            ended_at=None if call is None or call.ended_ms is None else timed.moment(call.ended_ms),
        )


def _decoded(reader: Reader, value: bytes) -> Any:
    try:
        return msgspec.json.decode(value)
    except msgspec.MsgspecError as error:
        raise unreadable(reader.path, error) from None


class LookUpRow(Struct, frozen=True, kw_only=True):
    """A call that a model made before its reply. Equal ones of an input are made once."""

    run_id: str
    input: int
    """Number of the input."""
    tool: str
    """Empty in journals that kept only the outcome."""
    arguments: Arguments
    outcome: str
    """`done`; `error`: it raised, or was refused; `unknown`: nothing was heard of it."""
    text: str
    """Its result, or the reason why there is none."""


def look_up_rows(reader: Reader) -> Iterator[LookUpRow]:
    """A row for each call that a model made before its reply, in the order of inputs."""
    kept_calls = [each for each in reader.open_elections() if each.id.question_digest == KEPT]
    for each in sorted(kept_calls, key=lambda each: each.id.input):
        (ballot,) = each.ballots
        assert isinstance(ballot, Ballot)
        kept = msgspec.json.decode(ballot.value, type=LookedUpBefore)
        yield LookUpRow(
            run_id=reader.experiment.run_id,
            input=each.id.input,
            tool=kept.tool,
            arguments=kept.arguments,
            outcome=kept.outcome,
            text=kept.text,
        )
