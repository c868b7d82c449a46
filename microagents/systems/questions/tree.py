"""The solution of a problem, and the tree of its sub-problems: the question at each, and its outcome."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal

from msgspec import Raw, Struct, structs

from microagents.elections.election import OPEN_OUTCOMES, total_usd

ROOT = "solve"
"""Place of the whole problem. The two halves of a problem add ``/1`` and ``/2`` to its place."""
MAX_DEPTH = 64
"""Greatest number of cuts that may lead to a problem."""


class TurnKind(StrEnum):
    """A turn at a problem: the question that is put there. Its value is the last component of the path."""

    DECOMPOSE = "decompose"
    ANSWER = "answer"
    COMPOSE = "compose"
    VOTE = "vote"
    GRAPH = "graph"
    CONTRACT = "contract"
    PRUNE = "prune"
    THINK = "think"
    JUDGE = "judge"


class Solution(Struct, frozen=True, kw_only=True):
    """Answer to a problem."""

    answer: Raw
    """The reply, as JSON."""
    correct: bool | None
    """Whether the problem accepts it; None if code cannot say."""
    argmax: tuple[str, ...] = ()
    """Paths of turns at which no candidate reached k votes, so that the one with most votes was taken."""


TurnOutcome = Literal[
    "agreed", "single", "decided", "argmax", "leader", "person", "undecided", "contested", "refused", "none", "open"
]
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
    """Result of a turn at a problem."""

    turn: TurnKind
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


Ending = Literal["transitions", "not picked", "no subquestions", "nothing to contract", "no contraction", "pruned"]
"""Why a chain of states ended: at the greatest number of transitions; because the judge picked another answer; because no valid graph was
drawn; because no subquestion needs another; because no valid contraction was drawn, or none but repetitions; because another thought
of its depth was judged better."""


class Branch(Struct, kw_only=True):
    """One of several transitions from a state, or one of several trees, with its outcome."""

    number: int
    """Its number among them, from 1."""
    same_as: int | None = None
    """Number of the earlier branch that led to the same question; both go on as that one."""
    ending: Ending | None = None
    """Why a chain ended here; None if its chains go on, or while that is open."""
    answer: Raw | None = None
    """The answer that the chain ended with, as JSON."""
    chosen: bool | None = None
    """Whether the answer to the whole was taken from one of its chains; None while that is open."""


class ProblemNode(Struct, kw_only=True):
    """A problem with its turns and its sub-problems. A strategy fills it in while it works; a replay adds the results of turns."""

    at: str
    """Place of the problem: the path without the input."""
    problem: str = ""
    """The text of the problem. It is empty for a branch that led to none."""
    depth: int = 0
    """Number of cuts that led to it."""
    turns: tuple[TurnResult, ...] = ()
    """The turns that have begun."""
    answer: Raw | None = None
    """The reply, as JSON; None until there is one."""
    calls: int = 0
    """Number of calls at its own turns."""
    cost_usd: float | None = 0.0
    """Cost of these calls; None if it is unknown."""
    children: tuple[ProblemNode, ...] = ()
    folded: SubtreeTotals | None = None
    """Totals that replace the children in a folded tree."""
    branch: Branch | None = None
    """What became of this branch; None if there are no others beside it."""

    def take(self, result: TurnResult) -> None:
        """Add the result of a turn."""
        self.turns += (result,)
        self.calls += result.calls
        self.cost_usd = total_usd([self.cost_usd, result.cost_usd])

    @property
    def is_undecided(self) -> bool:
        """Whether one of its own turns is undecided."""
        return any(turn.outcome in OPEN_OUTCOMES for turn in self.turns)

    @property
    def below(self) -> SubtreeTotals:
        """Totals over all its descendants."""
        if self.folded is not None:
            return self.folded
        parts = [child.below for child in self.children]
        costs = [child.cost_usd for child in self.children]
        costs += [part.cost_usd for part in parts]
        return SubtreeTotals(
            problems=len(parts) + sum(part.problems for part in parts),
            calls=sum(child.calls for child in self.children) + sum(part.calls for part in parts),
            cost_usd=total_usd(costs),
            undecided=sum(child.is_undecided for child in self.children) + sum(part.undecided for part in parts),
        )


def branches_from(node: ProblemNode, number: int, *, at: str, problem: str = "") -> tuple[ProblemNode, ...]:
    """Return the children of a node, at numbered places below ``at``; each is a branch if there are several."""
    children = [ProblemNode(at=f"{at}/{each}", problem=problem, depth=node.depth + 1) for each in range(1, number + 1)]
    if number > 1:
        for place, child in enumerate(children, 1):
            child.branch = Branch(number=place)
    node.children = tuple(children)
    return node.children


def trees_from(root: ProblemNode, number: int) -> Sequence[ProblemNode]:
    """Return a number of independent beginnings at a problem; a single one is its own node."""
    if number == 1:
        return [root]
    return branches_from(root, number, at=f"{root.at}/tree", problem=root.problem)


def mark_chosen(node: ProblemNode, chosen: str | None) -> None:
    """Prepare a node for drawing: mark the branches that lead to the chosen place, and leave out those that have not begun."""
    if node.branch is not None:
        node.branch.chosen = None if chosen is None else f"{chosen}/".startswith(f"{node.at}/")
    node.children = tuple([child for child in node.children if child.turns or child.children or child.problem])
    for child in node.children:
        # A branch has the turns of its transition, too.
        if child.at.rpartition("/")[0] == node.at and child.branch is not None:
            child.turns = tuple(sorted(child.turns, key=lambda each: each.turn in (TurnKind.ANSWER, TurnKind.JUDGE)))
        mark_chosen(child, chosen)


def fold(node: ProblemNode, depth: int) -> ProblemNode:
    """Cut the tree at a depth, and replace everything deeper by totals."""
    if node.depth < depth or not node.children:
        children = tuple(fold(child, depth) for child in node.children)
        return structs.replace(node, children=children)
    return structs.replace(node, children=(), folded=node.below)
