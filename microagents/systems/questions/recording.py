"""The turns at problems as a journal records them: the samples that were drawn at each, and the vote on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct, structs

from microagents.elections.election import ESCALATED, OPEN_OUTCOMES, Ballot, Flagged, total_usd
from microagents.replies.chat import A, decoder_of
from microagents.systems.questions.candidates import Candidate, labels_of
from microagents.systems.questions.questions import Choice
from microagents.systems.questions.tree import CandidateResult, Turn, TurnOutcome, TurnResult
from microagents.work.durable import REDRAW
from microagents.work.recorded import RecordedWork


class ElectionRecord(Struct, frozen=True, kw_only=True):
    """Records of one election of a turn: the samples drawn there, or the vote on them."""

    outcome: str | None = "sampled"
    """None while the election is open."""
    value: bytes | None = None
    ballots: Sequence[Ballot | Flagged] = ()
    flagged: int = 0
    calls: int = 0
    cost_usd: float | None = 0.0
    other_model: bool = False

    @property
    def replies(self) -> list[bytes]:
        """Valid replies in launch order; if there are none, the decision of a person."""
        values = [ballot.value for ballot in self.ballots if isinstance(ballot, Ballot)]
        return [self.value] if not values and self.value is not None else values


class TurnRecords:
    """Turns of one input, as a journal records them."""

    def __init__(self, work: RecordedWork[Any, Any]) -> None:
        self._work = work

    def concluded(self, at: str) -> Raw | None:
        """Return the answer that is recorded at the place of a problem, as JSON."""
        row = self._work.rows.get(self._work.path_of(at))
        return None if row is None or row.value is None else Raw(row.value)

    def drawn(self, at: str) -> ElectionRecord | None:
        """Return the samples of a turn, with those that were drawn because too few were valid; None if it has not begun."""
        drawn, more = self.election(at), self.election(f"{at}/{REDRAW}")
        if drawn is None or more is None:
            return drawn
        return structs.replace(
            drawn,
            ballots=(*drawn.ballots, *more.ballots),
            flagged=drawn.flagged + more.flagged,
            calls=drawn.calls + more.calls,
            cost_usd=total_usd([drawn.cost_usd, more.cost_usd]),
        )

    def election(self, at: str) -> ElectionRecord | None:
        """Return the records at a place, merged with those of the other model that was asked where it is undecided."""
        path = self._work.path_of(at)
        first, second = self._record_at(path), self._record_at(path + ESCALATED)
        if first is None or second is None:
            return first
        # If the other model is undecided too, a person or `leader` may have settled the first election: then its outcome counts.
        is_undecided = first.outcome in OPEN_OUTCOMES
        return structs.replace(
            second if is_undecided else first,
            flagged=first.flagged + second.flagged,
            calls=first.calls + second.calls,
            cost_usd=total_usd([first.cost_usd, second.cost_usd]),
            other_model=is_undecided,
        )

    def _record_at(self, path: str) -> ElectionRecord | None:
        row, bought = self._work.rows.get(path), self._work.bought.get(path, ())
        if row is None and not bought:
            return None
        ballots = (*(() if row is None else row.ballots), *bought)
        costs = [0.0 if row is None else row.cost_usd, *(each.cost_usd for each in bought)]
        return ElectionRecord(
            outcome=None
            if row is None or bought
            else row.outcome,  # with samples after an undecided verdict the election is open again
            value=None if row is None else row.value,
            ballots=bought or ballots,
            flagged=sum(isinstance(each, Flagged) for each in ballots),
            calls=len(ballots),
            cost_usd=total_usd(costs),
        )


def turn_result(
    turn: Turn, drawn: ElectionRecord, vote: ElectionRecord | None, candidates: Sequence[Candidate[A]]
) -> TurnResult:
    """Return the result of a turn with these candidates."""
    replies = [msgspec.json.encode(each.reply) for each in candidates]
    labels = labels_of(replies)
    votes = (
        [] if vote is None else [_voted_label(ballot.value) for ballot in vote.ballots if isinstance(ballot, Ballot)]
    )
    records = [drawn] if vote is None else [drawn, vote]
    outcome, winner = _turn_outcome(drawn, vote, labels)
    if outcome == "agreed" and candidates[0].copies == 1 < drawn.calls:
        outcome = "single"
    return TurnResult(
        turn=turn,
        outcome=outcome,
        candidates=tuple(
            [
                CandidateResult(label=label, reply=Raw(reply), copies=each.copies, votes=votes.count(label))
                for reply, each, label in zip(replies, candidates, labels, strict=True)
            ]
        ),
        winner=winner,
        other_model=any(each.other_model for each in records),
        flagged=sum(each.flagged for each in records),
        calls=sum(each.calls for each in records),
        cost_usd=total_usd([each.cost_usd for each in records]),
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
