"""Notes of conductors on the turns at a problem. The results of turns come from the records: their samples, and the vote on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct, field, structs

from microagents.elections.election import ESCALATED, OPEN_OUTCOMES, AnyBallot, Ballot, Flagged
from microagents.replies.reply import A
from microagents.replies.reply_forms import decoder_of, encode_reply
from microagents.replies.trajectories import Trajectory
from microagents.systems.questions.candidates import Candidate, labels_of, merged
from microagents.systems.questions.questions import Choice
from microagents.systems.questions.tree import (
    CandidateResult,
    ProblemNode,
    TurnKind,
    TurnOutcome,
    TurnResult,
    mark_chosen,
)
from microagents.task import Task
from microagents.work.asking import Consult
from microagents.work.durable import REDRAW
from microagents.work.notes import Note, Records


class ElectionRecord(Struct, frozen=True, kw_only=True):
    """Records of one election of a turn: the samples drawn there, or the vote on them."""

    outcome: str | None = "sampled"
    """None while the election is open."""
    value: bytes | None = None
    ballots: Sequence[AnyBallot] = ()
    other_model: bool = False

    @property
    def replies(self) -> list[bytes]:
        """Valid replies in launch order; if there are none, the decision of a person."""
        values = [ballot.value for ballot in self.ballots if isinstance(ballot, Ballot)]
        if not values and self.value is not None:
            return [self.value]
        return values


class BegunTurn(NamedTuple):
    """A turn that was begun: samples and a vote on them, or a vote on given replies."""

    node: ProblemNode
    at: str
    ask: Consult[Any, Any] | None
    """The question of the samples; None for given replies."""
    replies: Sequence[Any] = ()
    """The given replies."""


class ProblemNotes(Struct, kw_only=True):
    """Work on a problem by one role: its nodes, and their turns."""

    task: Task
    root: ProblemNode
    begun: list[BegunTurn] = field(default_factory=list)
    chosen: str | None = None
    """Place of the state that the answer was taken from, if several branches lead to answers; None while that is open."""

    def drawn(self, notes: Sequence[Note], records: Records) -> ProblemNode:
        """Return the tree of the problem, with the parts of it that other roles noted."""
        self._fill_in({each.root.at: each for each in notes if isinstance(each, ProblemNotes)}, records)
        mark_chosen(self.root, self.chosen)
        row = records.row(self.root.at)
        if row is not None and row.value is not None:
            self.root.answer = Raw(row.value)
        return self.root

    def _fill_in(self, by_place: Mapping[str, ProblemNotes], records: Records) -> None:
        for turn in self.begun:
            if (result := self._result(turn, records)) is not None:
                turn.node.take(result)
        others = [by_place.get(child.at) for child in self.root.children]
        for other in others:
            if other is not None:
                other._fill_in(by_place, records)  # noqa: SLF001 - of the same class
        self.root.children = tuple(
            [child if other is None else other.root for child, other in zip(self.root.children, others, strict=True)]
        )

    def _result(self, turn: BegunTurn, records: Records) -> TurnResult | None:
        """Return the result of a turn as far as it is recorded; None if nothing is."""
        drawn: ElectionRecord | None = ElectionRecord()
        replies = turn.replies
        if turn.ask is not None:
            drawn = _drawn(records, turn.at)
            decode = decoder_of(turn.ask.reply_class(self.task)).decode
            texts = () if drawn is None else drawn.replies
            replies = turn.ask.kept([decode(each) for each in texts])
        candidates = merged([answer_in(each) for each in replies])
        vote = _election(records, f"{turn.at}/{TurnKind.VOTE}") if len(candidates) > 1 else None
        if drawn is None or (turn.ask is None and vote is None):
            return None
        return _turn_result(records, turn.at, drawn, vote, candidates)


def answer_in(reply: Any) -> Any:
    """Return the answer in a reply with reasoning; any other reply is one."""
    if isinstance(reply, Trajectory):
        return reply.answer
    return reply


def _drawn(records: Records, at: str) -> ElectionRecord | None:
    """Return the samples of a turn, with the ones that were drawn because too few were valid; None if it has not begun."""
    drawn, more = _election(records, at), _election(records, f"{at}/{REDRAW}")
    if drawn is None or more is None:
        return drawn
    return structs.replace(drawn, ballots=(*drawn.ballots, *more.ballots))


def _election(records: Records, at: str) -> ElectionRecord | None:
    """Return the records at a place, or those of the other model that was asked if it is undecided."""
    path = records.path_of(at)
    first, second = _record_at(records, path), _record_at(records, path + ESCALATED)
    if first is None or second is None:
        return first
    # If the other model is undecided too, a person or `leader` may have settled the first election: then its outcome counts.
    if first.outcome not in OPEN_OUTCOMES:
        return first
    return structs.replace(second, other_model=True)


def _record_at(records: Records, path: str) -> ElectionRecord | None:
    row, bought = records.rows.get(path), records.bought.get(path, ())
    if row is None and not bought:
        return None
    value = None if row is None else row.value
    if row is None or bought:  # with samples after an undecided verdict the election is open again
        return ElectionRecord(outcome=None, value=value, ballots=bought)
    return ElectionRecord(outcome=row.outcome, value=value, ballots=row.ballots)


def _turn_result(
    records: Records, at: str, drawn: ElectionRecord, vote: ElectionRecord | None, candidates: Sequence[Candidate[A]]
) -> TurnResult:
    """Return the result of the turn at a place with these candidates."""
    replies = [encode_reply(each.reply) for each in candidates]
    labels = labels_of(replies)
    if vote is None:
        votes = []
    else:
        votes = [_voted_label(ballot.value) for ballot in vote.ballots if isinstance(ballot, Ballot)]
    outcome, winner = _turn_outcome(drawn, vote, labels)
    samples, cost_usd = records.paid(at)
    if outcome == "agreed" and candidates[0].copies == 1 < len(samples):
        outcome = "single"
    results = []
    for reply, each, label in zip(replies, candidates, labels, strict=True):
        votes_for = votes.count(label)
        results.append(CandidateResult(label=label, reply=Raw(reply), copies=each.copies, votes=votes_for))
    return TurnResult(
        turn=TurnKind(at.rpartition("/")[2]),
        outcome=outcome,
        candidates=tuple(results),
        winner=winner,
        other_model=drawn.other_model or (vote is not None and vote.other_model),
        flagged=sum(isinstance(each, Flagged) for each in samples),
        calls=len(samples),
        cost_usd=cost_usd,
    )


def _turn_outcome(
    drawn: ElectionRecord, vote: ElectionRecord | None, labels: list[str]
) -> tuple[TurnOutcome, int | None]:
    """Return the outcome of a turn, and the index of the winner."""
    if drawn.outcome is None:
        return "open", None
    if drawn.outcome == "undecided":
        return "undecided", None
    if not labels:
        return "none", None
    if len(labels) == 1:
        return ("person" if drawn.outcome == "person" else "agreed"), 0
    if vote is None or vote.outcome is None:
        return "open", None
    if vote.value is None:
        return "undecided", None
    label = _voted_label(vote.value)  # a person may have given a label that no candidate has
    return msgspec.convert(vote.outcome, TurnOutcome), labels.index(label) if label in labels else None


def _voted_label(choice: bytes) -> str:
    read: Choice = decoder_of(Choice).decode(choice)
    return read.vote()
