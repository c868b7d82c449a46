"""How a problem was solved that was cut in two and in two again: what comes of it, and the tree of its sub-problems."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Literal

import msgspec
from msgspec import Raw, Struct, structs

from microagents.chat import A, Reply, decoder_of
from microagents.elections.election import ESCALATED, Ballot, Flagged, total_usd
from microagents.journal.messages import OpenElection, Recalled
from microagents.problems.candidates import Candidate, labels_of, merged
from microagents.problems.questions import Choice, Decomposition, problem_id, without_cycles

ROOT = "solve"
"""Where the whole problem stands; the halves of a problem are 1 and 2 behind its place."""
MOST_DEPTH = 64
"""So many cuts may lead to a problem."""


class Turn(StrEnum):
    """What is voted on at a problem; the last component of paths."""

    DECOMPOSE = "decompose"
    ANSWER = "answer"
    COMPOSE = "compose"
    VOTE = "vote"


class Solution(Struct, frozen=True, kw_only=True):
    """The answer to a problem."""

    answer: Raw
    """The reply, as JSON."""
    correct: bool | None
    """What the problem says of it; None where code cannot tell."""
    argmax: tuple[str, ...] = ()
    """Turns at which no candidate came to k votes, and the one with most was taken."""


TurnOutcome = Literal["agreed", "decided", "argmax", "leader", "person", "undecided", "none", "open"]
"""`agreed`: all samples gave the same, so nothing was voted on; `none`: no sample gave a valid way to cut; `open`: not over yet."""


class CandidateResult(Struct, frozen=True, kw_only=True):
    """A candidate of a turn, and how it fared."""

    label: str
    """By which a ballot, or a person, names it."""
    reply: Raw
    """As JSON."""
    copies: int
    """How many samples gave it."""
    votes: int = 0


class TurnResult(Struct, frozen=True, kw_only=True):
    """How a turn at a problem went."""

    turn: Turn
    outcome: TurnOutcome
    candidates: tuple[CandidateResult, ...] = ()
    """In the order in which they were first launched; while it is open, those that are known so far."""
    winner: int | None = None
    """A place among the candidates."""
    other_model: bool = False
    """Whether another model was asked because the run's own left it undecided."""
    flagged: int = 0
    """Samples and ballots that a red flag discarded."""
    calls: int = 0
    """All samples and ballots that are recorded."""
    cost_usd: float | None = 0.0


class SubtreeTotals(Struct, frozen=True, kw_only=True):
    """What the sub-problems of a problem come to, down to the last."""

    problems: int
    calls: int
    cost_usd: float | None
    undecided: int = 0
    """Problems that have an undecided turn."""


class ProblemNode(Struct, frozen=True, kw_only=True):
    """A problem, how it was solved, and the two that it was cut into."""

    at: str
    problem: str
    depth: int
    """How many cuts led to it."""
    turns: tuple[TurnResult, ...]
    """Those that have begun."""
    answer: Raw | None
    """The reply, as JSON; None while it has none."""
    calls: int
    """At its own turns."""
    cost_usd: float | None
    """Of these calls; None where it is unknown."""
    children: tuple[ProblemNode, ...] = ()
    folded: SubtreeTotals | None = None
    """What is left out in the place of its children."""

    @property
    def is_undecided(self) -> bool:
        """Whether one of its own turns is."""
        return any(taken.outcome == "undecided" for taken in self.turns)

    @property
    def below(self) -> SubtreeTotals:
        """What its children come to, and theirs."""
        if self.folded is not None:
            return self.folded
        parts = [child.below for child in self.children]
        return SubtreeTotals(
            problems=len(parts) + sum(part.problems for part in parts),
            calls=sum(child.calls for child in self.children) + sum(part.calls for part in parts),
            cost_usd=total_usd([*(child.cost_usd for child in self.children), *(part.cost_usd for part in parts)]),
            undecided=sum(child.is_undecided for child in self.children) + sum(part.undecided for part in parts),
        )


def folded(node: ProblemNode, depth: int) -> ProblemNode:
    """The tree down to a depth: what is deeper is added up."""
    if node.depth < depth or not node.children:
        return structs.replace(node, children=tuple(folded(child, depth) for child in node.children))
    return structs.replace(node, children=(), folded=node.below)


def solution_tree(
    of_input: int, problem: str, answer: type[Reply], rows: Mapping[str, Recalled], open_elections: Iterable[OpenElection]
) -> ProblemNode:
    """The tree of one input, as far as it is recorded.

    Args:
        of_input: its number.
        problem: its text.
        answer: the type of answers.
        rows: what was decided, by path.
        open_elections: what was bought for elections that are not decided.
    """
    bought: dict[str, list[Ballot | Flagged]] = {}
    for each in open_elections:
        bought.setdefault(each.id.path, []).extend(each.ballots)
    return _Records(of_input, answer, rows, bought).node(ROOT, problem, 0, ())


class _Held(Struct, frozen=True, kw_only=True):
    """What is recorded of the samples drawn at a place, or of a vote."""

    outcome: str | None
    """None while it is open."""
    value: bytes | None
    ballots: Sequence[Ballot | Flagged]
    flagged: int
    calls: int
    cost_usd: float | None
    other_model: bool = False


class _Records:
    def __init__(
        self, of_input: int, answer: type[Reply], rows: Mapping[str, Recalled], bought: Mapping[str, Sequence[Ballot | Flagged]]
    ) -> None:
        self._input = of_input
        self._answer = answer
        self._rows = rows
        self._bought = bought

    def node(self, at: str, problem: str, depth: int, above: tuple[bytes, ...]) -> ProblemNode:
        """A problem and all that it was cut into."""
        turns: list[TurnResult] = []
        children: tuple[ProblemNode, ...] = ()
        answer: Reply | None = None
        cut = self._turn(at, Turn.DECOMPOSE, Decomposition, turns, lambda proposed: without_cycles(proposed, problem, above))
        if cut is not None and not cut.is_atomic:
            if depth < MOST_DEPTH:  # a journal that was tampered with could go on for ever
                below = (*above, problem_id(problem))
                halves = enumerate((cut.first, cut.second), 1)
                children = tuple([self.node(f"{at}/{number}", half, depth + 1, below) for number, half in halves])
            answer = self._turn(at, Turn.COMPOSE, self._answer, turns)
        elif cut is not None or not turns or turns[0].outcome == "none":
            answer = self._turn(at, Turn.ANSWER, self._answer, turns)
        if answer is None and (concluded := self._recorded(f"{self._input}/{at}")) is not None and concluded.value is not None:
            answer = decoder_of(self._answer).decode(concluded.value)  # the whole one's, where a role of the user's own made it
        return ProblemNode(
            at=at,
            problem=problem,
            depth=depth,
            turns=tuple(turns),
            answer=None if answer is None else Raw(msgspec.json.encode(answer)),
            calls=sum(taken.calls for taken in turns),
            cost_usd=total_usd([taken.cost_usd for taken in turns]),
            children=children,
        )

    def _turn(
        self,
        at: str,
        turn: Turn,
        reply: type[A],
        turns: list[TurnResult],
        valid: Callable[[Sequence[A]], Sequence[A]] = lambda drawn: drawn,
    ) -> A | None:
        """Add how a turn went, if it has begun; gives the reply that the work went on with."""
        drawn = self._held(f"{at}/{turn}")
        if drawn is None:
            return None
        decode = decoder_of(reply).decode
        candidates = merged(valid([decode(value) for value in _valid(drawn)]))
        vote = self._held(f"{at}/{turn}/{Turn.VOTE}") if len(candidates) > 1 else None
        taken = _taken(turn, drawn, vote, candidates)
        turns.append(taken)
        return None if taken.winner is None else candidates[taken.winner].reply

    def _held(self, at: str) -> _Held | None:
        """What is recorded at a place, and of the other model that was asked where it is undecided."""
        path = f"{self._input}/{at}"
        first, second = self._recorded(path), self._recorded(path + ESCALATED)
        if first is None or second is None:
            return first
        is_left = first.outcome == "undecided"  # its leader may be taken later, or a person's word, where the other model did not decide
        return structs.replace(
            second if is_left else first,
            flagged=first.flagged + second.flagged,
            calls=first.calls + second.calls,
            cost_usd=total_usd([first.cost_usd, second.cost_usd]),
            other_model=is_left,
        )

    def _recorded(self, path: str) -> _Held | None:
        row, bought = self._rows.get(path), self._bought.get(path, ())
        if row is None and not bought:
            return None
        ballots = (*(() if row is None else row.ballots), *bought)
        costs = [0.0 if row is None else row.cost_usd, *(each.cost_usd for each in bought)]
        return _Held(
            outcome=None if row is None or bought else row.outcome,  # what is undecided may be held again
            value=None if row is None else row.value,
            ballots=bought or ballots,
            flagged=sum(isinstance(each, Flagged) for each in ballots),
            calls=len(ballots),
            cost_usd=total_usd(costs),
        )


def _taken(turn: Turn, drawn: _Held, vote: _Held | None, candidates: Sequence[Candidate[A]]) -> TurnResult:
    replies = [msgspec.json.encode(each.reply) for each in candidates]
    labels = labels_of(replies)
    votes = [] if vote is None else [_label(ballot.value) for ballot in vote.ballots if isinstance(ballot, Ballot)]
    held = [drawn] if vote is None else [drawn, vote]
    outcome, winner = _how(drawn, vote, labels)
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
        other_model=any(each.other_model for each in held),
        flagged=sum(each.flagged for each in held),
        calls=sum(each.calls for each in held),
        cost_usd=total_usd([each.cost_usd for each in held]),
    )


def _how(drawn: _Held, vote: _Held | None, labels: list[str]) -> tuple[TurnOutcome, int | None]:
    """How a turn went, and the place of the candidate that won it."""
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
    label = _label(vote.value)  # a person may have named one that no candidate has
    return msgspec.convert(vote.outcome, TurnOutcome), labels.index(label) if label in labels else None


def _valid(drawn: _Held) -> list[bytes]:
    """The valid replies in order of launch, or what a person gave in their place."""
    values = [ballot.value for ballot in drawn.ballots if isinstance(ballot, Ballot)]
    return [drawn.value] if not values and drawn.value is not None else values


def _label(choice: bytes) -> str:
    read: Choice = decoder_of(Choice).decode(choice)
    return read.vote()
