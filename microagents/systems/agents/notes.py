"""Notes of an agent on its work: each action with its calls, and their outcomes. Votes, costs and times come from the records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from microagents.elections.election import AnyBallot, Ballot, Flagged, total_usd
from microagents.replies.persons import ANSWERED, Approval, FoundOutcome
from microagents.replies.reply import ProseByTool, vote_of
from microagents.replies.reply_forms import decoder_of
from microagents.replies.tool_calls import ToolCall
from microagents.replies.turns import Arguments
from microagents.systems.agents.actions import Action, Observation, making_at
from microagents.systems.agents.agent import AgentTask
from microagents.tools.effect_keys import effect_key
from microagents.tools.tool import Kind
from microagents.work.notes import Note, Records


class CallRecord(Struct, kw_only=True):
    """One call of an action."""

    tool: str
    arguments: Arguments
    effect: Kind | None = None
    """None if the tool is no longer there."""
    key: str = ""
    """The key of its effect."""
    outcome: str = "not made"
    """`done`, `error`, `partly done`, `rejected` or `repeated`; `waits` for a person, or is `decided, not yet resumed`; `unknown`; `begun`,
    without an outcome so far; or `not made`."""
    observation: str | None = None
    """What the model sees of it; None without an outcome."""
    person: str | None = None
    """What persons said of it: `approved`, `rejected`, `was made`, `was not made`, or several of these; None if none did."""
    makings: int = 0
    """Number of times that a call that changes the world was begun."""
    ended_ms: int | None = None
    """Milliseconds from the start of the run to the record of its outcome."""

    def take(self, seen: Observation) -> None:
        """Note the outcome."""
        self.outcome, self.observation = seen.outcome, seen.text


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


class ActionNotes(Struct, kw_only=True):
    """One action of an agent, or the election of one."""

    task: AgentTask
    run_id: str
    prose: ProseByTool
    """The arguments of tools that have no vote."""
    at: str
    """Place of its election."""
    action: Action | None = None
    """The elected action."""
    calls: list[CallRecord] = field(default_factory=list)
    """Its calls; empty for an end."""

    def take(self, action: Action) -> None:
        """Note the elected action."""
        self.action = action
        specs = self.task.toolbox.specs
        effects = {name: spec.effect for name, spec in specs.items()}
        calls = () if action.is_end else action.calls
        self.calls = [
            CallRecord(tool=each.tool, arguments=each.arguments, effect=effects.get(each.tool)) for each in calls
        ]

    def drawn(self, notes: Sequence[Note], records: Records) -> AgentRecord:
        """Return all actions that have begun."""
        actions = [each._record(records) for each in notes if isinstance(each, ActionNotes)]  # noqa: SLF001 - of the same class
        return AgentRecord(goal=self.task.statement(), actions=[each for each in actions if each is not None])

    def _record(self, records: Records) -> ActionRecord | None:
        """Return the action with its votes and costs; None while it has no sample."""
        path = records.path_of(self.at)
        vote, bought = records.rows.get(path), records.bought.get(path, ())
        if vote is None and path not in records.bought:
            return None
        # The decision of a rung, or of another model, stands right below the vote's decision.
        tries = [row for at, row in records.rows.items() if at == path or at.rpartition("/")[0] == path]
        decided = next((row for row in tries if row.is_decision), None)
        ballots = [*(() if vote is None else vote.ballots), *bought]
        for number, call in enumerate(self.calls):
            self._fill_in(call, f"{self.at}/call/{number}", records)
        flags = [each.flag for each in ballots if isinstance(each, Flagged)]
        return ActionRecord(
            path=path,
            outcome=decided.outcome if decided is not None else "open" if vote is None else vote.outcome,
            options=_options(ballots, self.prose),
            flags=dict(Counter(flags)),
            cost_usd=total_usd([each.cost_usd for each in (*tries, *bought)]),
            calls=self.calls,
            result=self.action.calls[0].arguments if self.action is not None and self.action.is_end else None,
            decided_ms=None if decided is None else decided.after_ms,
        )

    def _fill_in(self, call: CallRecord, at: str, records: Records) -> None:
        """Add to a call the key of its effect, the words of persons on it, and the time of its end."""
        call.key = effect_key(self.run_id, records.path_of(self.at), call.tool, call.arguments)
        makings = [making_at(at, number) for number in range(1, call.makings + 1)]
        if call.outcome == "begun" and makings and records.row(makings[-1]) is None:
            call.outcome, call.makings = "not made", call.makings - 1
        said = []
        approval = records.row(f"{at}/approval")
        asked = [each for each in (approval, records.row(f"{at}{ANSWERED}")) if each is not None]
        if any(each.value is None for each in asked):
            call.outcome = "waits"
        if approval is not None and approval.value is not None:
            is_approved = decoder_of(Approval).decode(approval.value).approved
            said.append("approved" if is_approved else "rejected")
        for found in [records.row(f"{making}/found") for making in makings]:
            # Without a decision the call itself ended after its time-out.
            if found is not None and found.value is not None and found.is_decision:
                was_made = decoder_of(FoundOutcome).decode(found.value).was_made
                said.append("was made" if was_made else "was not made")
        call.person = ", ".join(said) or None
        outcomes = [records.row(f"{place}/outcome") for place in (at, *makings)]
        call.ended_ms = next((each.after_ms for each in outcomes if each is not None), None)


def _options(ballots: Sequence[AnyBallot], prose: ProseByTool) -> list[tuple[list[ToolCall], int]]:
    actions = [msgspec.json.decode(each.value, type=Action) for each in ballots if isinstance(each, Ballot)]
    votes = [vote_of(each, prose) for each in actions]
    calls = [each.calls for each in actions]
    first = dict(zip(reversed(votes), reversed(calls), strict=True))
    return [(first[vote], number) for vote, number in Counter(votes).most_common()]
