"""The solution of a problem that was cut in two recursively, and the tree of its sub-problems as a journal records it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Literal, TypeVar

import msgspec
from msgspec import Raw, Struct, structs

from microagents.elections.election import ESCALATED, Ballot, Flagged, total_usd
from microagents.journal.messages import OpenElection, Recalled
from microagents.problems.candidates import Candidate, labels_of, merged
from microagents.problems.questions import Choice, Decomposition, problem_id, without_cycles
from microagents.replies.chat import A, Reply, decoder_of
from microagents.work.durable import REDRAW

B = TypeVar("B", bound=Reply)

ROOT = "solve"
"""Place of the whole problem. The two halves of a problem add ``/1`` and ``/2`` to its place."""
MAX_DEPTH = 64
"""Greatest number of cuts that may lead to a problem."""


class Turn(StrEnum):
    """A turn at a problem: the question that is put there. Its value is the last component of the path."""

    DECOMPOSE = "decompose"
    ANSWER = "answer"
    COMPOSE = "compose"
    VOTE = "vote"
    GRAPH = "graph"
    CONTRACT = "contract"
    REFLECT = "reflect"
    JUDGE = "judge"


class Solution(Struct, frozen=True, kw_only=True):
    """The answer to a problem."""

    answer: Raw
    """The reply, as JSON."""
    correct: bool | None
    """Whether the problem accepts it; None where code cannot tell."""
    argmax: tuple[str, ...] = ()
    """Paths of turns at which no candidate reached k votes, so that the one with most votes was taken."""


TurnOutcome = Literal["agreed", "single", "decided", "argmax", "leader", "person", "undecided", "none", "open"]
"""`agreed`: all samples are equal, so no vote was needed; `single`: only one of several samples is valid; `none`: no sample is a valid
decomposition; `open`: the turn has not ended."""


class CandidateResult(Struct, frozen=True, kw_only=True):
    """A candidate of a turn, and its votes."""

    label: str
    """The name of the candidate in ballots and in decisions of a person."""
    reply: Raw
    """The reply, as JSON."""
    copies: int
    """Number of samples that gave it."""
    votes: int = 0


class TurnResult(Struct, frozen=True, kw_only=True):
    """The result of a turn at a problem."""

    turn: Turn
    outcome: TurnOutcome
    candidates: tuple[CandidateResult, ...] = ()
    """In the order of their first launch. An open turn has those known so far."""
    winner: int | None = None
    """Index of the winner among the candidates."""
    other_model: bool = False
    """Whether another model was asked, because the models of the run left the turn undecided."""
    flagged: int = 0
    """Number of samples and ballots discarded by a red flag."""
    calls: int = 0
    """Number of all recorded samples and ballots."""
    cost_usd: float | None = 0.0


class SubtreeTotals(Struct, frozen=True, kw_only=True):
    """Totals over all sub-problems below a problem."""

    problems: int
    calls: int
    cost_usd: float | None
    undecided: int = 0
    """Number of problems with an undecided turn."""


Ending = Literal["transitions", "not picked", "no subquestions", "nothing to contract", "no contraction", "worse"]
"""Why a chain of states ended: at the greatest number of transitions; because the judge picked another answer; because no valid graph was
drawn; because no subquestion needs another; because no valid contraction was drawn, or none but repetitions; because the next state was
judged worse each time."""


class Branch(Struct, frozen=True, kw_only=True):
    """One of several transitions from a state, or one of several trees: what became of it."""

    number: int
    """Its number among them, from 1."""
    same_as: int | None = None
    """Number of the earlier branch that led to the same question; both go on as that one."""
    ending: Ending | None = None
    """Why a chain ended here; None where its chains go on, or while that is open."""
    answer: Raw | None = None
    """The answer that the chain ended with, as JSON."""
    chosen: bool | None = None
    """Whether the answer to the whole was taken from one of its chains; None while that is open."""


class ProblemNode(Struct, frozen=True, kw_only=True):
    """A problem with its turns and its two sub-problems."""

    at: str
    """Place of the problem: the path without the input."""
    problem: str
    """The text of the problem. It is empty for a branch that led to none."""
    depth: int
    """Number of cuts that led to it."""
    turns: tuple[TurnResult, ...]
    """The turns that have begun."""
    answer: Raw | None
    """The reply, as JSON; None while there is no answer."""
    calls: int
    """Number of calls at its own turns."""
    cost_usd: float | None
    """Cost of these calls; None where it is unknown."""
    children: tuple[ProblemNode, ...] = ()
    folded: SubtreeTotals | None = None
    """Totals that replace the children in a folded tree."""
    branch: Branch | None = None
    """What became of this branch; None where there are no others beside it."""

    @property
    def is_undecided(self) -> bool:
        """Whether one of its own turns is undecided."""
        return any(turn.outcome == "undecided" for turn in self.turns)

    @property
    def below(self) -> SubtreeTotals:
        """Totals over all its descendants."""
        if self.folded is not None:
            return self.folded
        parts = [child.below for child in self.children]
        return SubtreeTotals(
            problems=len(parts) + sum(part.problems for part in parts),
            calls=sum(child.calls for child in self.children) + sum(part.calls for part in parts),
            cost_usd=total_usd([*(child.cost_usd for child in self.children), *(part.cost_usd for part in parts)]),
            undecided=sum(child.is_undecided for child in self.children) + sum(part.undecided for part in parts),
        )


def node_of(
    at: str, problem: str, depth: int, *, turns: Sequence[TurnResult], answer: Reply | None, children: Sequence[ProblemNode]
) -> ProblemNode:
    """The node of a problem, with the calls and the cost of its turns added up."""
    return ProblemNode(
        at=at,
        problem=problem,
        depth=depth,
        turns=tuple(turns),
        answer=None if answer is None else Raw(msgspec.json.encode(answer)),
        calls=sum(each.calls for each in turns),
        cost_usd=total_usd([each.cost_usd for each in turns]),
        children=tuple(children),
    )


def fold(node: ProblemNode, depth: int) -> ProblemNode:
    """Cut the tree at a depth, and replace everything deeper by totals."""
    if node.depth < depth or not node.children:
        return structs.replace(node, children=tuple(fold(child, depth) for child in node.children))
    return structs.replace(node, children=(), folded=node.below)


def solution_tree(
    of_input: int, problem: str, answer: type[Reply], rows: Mapping[str, Recalled], open_elections: Iterable[OpenElection]
) -> ProblemNode:
    """The recorded tree of one input.

    Args:
        of_input: number of the input.
        problem: text of the whole problem.
        answer: reply class of answers.
        rows: decisions and undecided elections, by path.
        open_elections: elections without a verdict, with their paid samples.
    """
    return TurnRecords(of_input, answer, rows, open_elections).node(ROOT, problem, 0, ())


class _ElectionRecord(Struct, frozen=True, kw_only=True):
    """The records of one election of a turn: the samples drawn there, or the vote on them."""

    outcome: str | None
    """None while the election is open."""
    value: bytes | None
    ballots: Sequence[Ballot | Flagged]
    flagged: int
    calls: int
    cost_usd: float | None
    other_model: bool = False


_NOTHING_DRAWN = _ElectionRecord(outcome="sampled", value=None, ballots=(), flagged=0, calls=0, cost_usd=0.0)


class TurnRecords:
    """The turns of one input, as a journal records them."""

    def __init__(self, of_input: int, answer: type[Reply], rows: Mapping[str, Recalled], open_elections: Iterable[OpenElection]) -> None:
        bought: dict[str, list[Ballot | Flagged]] = {}
        for each in open_elections:
            bought.setdefault(each.id.path, []).extend(each.ballots)
        self._input = of_input
        self.answer = answer
        """Reply class of answers."""
        self._rows = rows
        self._bought: Mapping[str, Sequence[Ballot | Flagged]] = bought

    def node(self, at: str, problem: str, depth: int, above: tuple[bytes, ...]) -> ProblemNode:
        """Build the node of a problem, and those of its sub-problems."""
        turns: list[TurnResult] = []
        children: tuple[ProblemNode, ...] = ()
        answer: Reply | None = None
        cut = self.turn(at, Turn.DECOMPOSE, Decomposition, turns, lambda proposed: without_cycles(proposed, problem, above))
        if cut is not None and not cut.is_atomic:
            if depth < MAX_DEPTH:  # the rows of a manipulated journal might never end
                below = (*above, problem_id(problem))
                halves = enumerate((cut.first, cut.second), 1)
                children = tuple([self.node(f"{at}/{number}", half, depth + 1, below) for number, half in halves])
            answer = self.turn(at, Turn.COMPOSE, self.answer, turns, list)
        elif cut is not None or not turns or turns[0].outcome == "none":
            answer = self.turn(at, Turn.ANSWER, self.answer, turns, list)
        # A role of the user may give the whole answer without these turns. It is recorded at the place of the problem.
        if answer is None and (concluded := self.concluded(at)) is not None:
            answer = decoder_of(self.answer).decode(concluded)
        return node_of(at, problem, depth, turns=turns, answer=answer, children=children)

    def concluded(self, at: str) -> Raw | None:
        """The answer that is recorded at the place of a problem, as JSON."""
        record = self._record_at(f"{self._input}/{at}")
        return None if record is None or record.value is None else Raw(record.value)

    def turn(
        self,
        at: str,
        turn: Turn,
        reply: type[A],
        turns: list[TurnResult],
        valid: Callable[[Sequence[A]], Sequence[B]],
    ) -> B | None:
        """Append the result of a turn, if it has begun.

        Args:
            at: place of the problem.
            turn: the turn.
            reply: reply class of its samples.
            turns: results so far; the new one is appended.
            valid: makes candidates of the samples.

        Returns:
            The winning reply; None if there is none yet.
        """
        drawn = self._merged_record(f"{at}/{turn}")
        if drawn is None:
            return None
        decode = decoder_of(reply).decode
        replies: list[B] = list(valid([decode(value) for value in _valid_replies(drawn)]))
        redrawn = self._merged_record(f"{at}/{turn}/{REDRAW}")
        if redrawn is not None:
            replies += valid([decode(value) for value in _valid_replies(redrawn)])
            drawn = _together(drawn, redrawn)
        candidates = merged(replies)
        vote = self._merged_record(f"{at}/{turn}/{Turn.VOTE}") if len(candidates) > 1 else None
        result = _turn_result(turn, drawn, vote, candidates)
        turns.append(result)
        return None if result.winner is None else candidates[result.winner].reply

    def choice(self, at: str, turn: Turn, replies: Sequence[A], turns: list[TurnResult]) -> A | None:
        """Append the result of a turn at which given replies are voted on, if the vote has begun; returns the winning one, if any."""
        candidates, vote = merged(replies), self._merged_record(f"{at}/{turn}/{Turn.VOTE}")
        if vote is None:
            return None
        result = _turn_result(turn, _NOTHING_DRAWN, vote, candidates)
        turns.append(result)
        return None if result.winner is None else candidates[result.winner].reply

    def _merged_record(self, at: str) -> _ElectionRecord | None:
        """The records at a place, merged with those of the other model that was asked where it is undecided."""
        path = f"{self._input}/{at}"
        first, second = self._record_at(path), self._record_at(path + ESCALATED)
        if first is None or second is None:
            return first
        # If the other model is undecided too, a person or `leader` may have settled the first election: then its outcome counts.
        is_undecided = first.outcome == "undecided"
        return structs.replace(
            second if is_undecided else first,
            flagged=first.flagged + second.flagged,
            calls=first.calls + second.calls,
            cost_usd=total_usd([first.cost_usd, second.cost_usd]),
            other_model=is_undecided,
        )

    def _record_at(self, path: str) -> _ElectionRecord | None:
        row, bought = self._rows.get(path), self._bought.get(path, ())
        if row is None and not bought:
            return None
        ballots = (*(() if row is None else row.ballots), *bought)
        costs = [0.0 if row is None else row.cost_usd, *(each.cost_usd for each in bought)]
        return _ElectionRecord(
            outcome=None if row is None or bought else row.outcome,  # with samples after an undecided verdict the election is open again
            value=None if row is None else row.value,
            ballots=bought or ballots,
            flagged=sum(isinstance(each, Flagged) for each in ballots),
            calls=len(ballots),
            cost_usd=total_usd(costs),
        )


def _together(drawn: _ElectionRecord, redrawn: _ElectionRecord) -> _ElectionRecord:
    """The record of a turn at which more samples were drawn."""
    return structs.replace(
        drawn,
        flagged=drawn.flagged + redrawn.flagged,
        calls=drawn.calls + redrawn.calls,
        cost_usd=total_usd([drawn.cost_usd, redrawn.cost_usd]),
    )


def _turn_result(turn: Turn, drawn: _ElectionRecord, vote: _ElectionRecord | None, candidates: Sequence[Candidate[A]]) -> TurnResult:
    replies = [msgspec.json.encode(each.reply) for each in candidates]
    labels = labels_of(replies)
    votes = [] if vote is None else [_voted_label(ballot.value) for ballot in vote.ballots if isinstance(ballot, Ballot)]
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


def _turn_outcome(drawn: _ElectionRecord, vote: _ElectionRecord | None, labels: list[str]) -> tuple[TurnOutcome, int | None]:
    """The outcome of a turn, and the index of the winner."""
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


def _valid_replies(drawn: _ElectionRecord) -> list[bytes]:
    """The valid replies in launch order; if there are none, the decision of a person."""
    values = [ballot.value for ballot in drawn.ballots if isinstance(ballot, Ballot)]
    return [drawn.value] if not values and drawn.value is not None else values


def _voted_label(choice: bytes) -> str:
    read: Choice = decoder_of(Choice).decode(choice)
    return read.vote()
