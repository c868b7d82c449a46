"""The states of a question that is made simpler again and again (Atom of Thoughts), as a journal records them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, structs

from microagents.chat import Reply, decoder_of
from microagents.problems.questions import Contraction, Subquestions
from microagents.problems.tree import MAX_DEPTH, ProblemNode, Turn, TurnRecords, TurnResult, node_of
from microagents.trajectories import trajectory_of

AGAIN = "again"
"""Component of the path of a transition that is tried again."""


class Shape(Struct, frozen=True, kw_only=True):
    """Which places the states of a question may have."""

    root: str
    """Place of the whole."""
    roots: Sequence[str]
    """Places of the first states: one for each tree."""
    branches: int
    """Number of transitions from each state."""
    tries: int
    """Number of times that a transition is tried."""


def simpler(drawn: Sequence[Contraction], problem: str) -> list[Contraction]:
    """The contractions that do not repeat the problem."""
    given = Contraction(question=problem).vote()
    return [each for each in drawn if each.vote() != given]


def states_tree(records: TurnRecords, question: str, shape: Shape) -> ProblemNode:
    """The recorded states of one input: each has the turns of its transitions, and the next states below it.

    Args:
        records: the turns of the input.
        question: the text of the problem.
        shape: the places of states.
    """
    states = _States(records, shape)
    trees = [states.node(at, question, 0 if len(shape.roots) == 1 else 1) for at in shape.roots]
    final = records.concluded(shape.root)
    if len(trees) == 1:
        return trees[0] if final is None else structs.replace(trees[0], answer=final)
    children = tuple(each for each in trees if each.turns)
    return ProblemNode(at=shape.root, problem=question, depth=0, turns=(), answer=final, calls=0, cost_usd=0.0, children=children)


class _States:
    def __init__(self, records: TurnRecords, shape: Shape) -> None:
        self._records = records
        self._trajectory = trajectory_of(records.answer)
        self._shape = shape

    def node(self, at: str, question: str, depth: int) -> ProblemNode:
        """Build the node of a state, and those of the states that follow it."""
        turns: list[TurnResult] = []
        answer = self._answered(at, Turn.ANSWER, turns)
        branches = range(1, self._shape.branches + 1) if depth < MAX_DEPTH else []
        children = [child for number in branches if (child := self._next(f"{at}/{number}", question, answer, depth, turns)) is not None]
        return node_of(at, question, depth, turns=turns, answer=answer, children=children)

    def _next(self, at: str, question: str, answer: Reply | None, depth: int, turns: list[TurnResult]) -> ProblemNode | None:
        """The state that a transition led to, or tried to; None if there was none. The turns of the transition are appended."""
        for number in range(self._shape.tries):
            place = f"{at}/{AGAIN}/{number}" if number else at
            self._records.turn(place, Turn.DECOMPOSE, Subquestions, turns, list)
            contracted = self._records.turn(place, Turn.CONTRACT, Contraction, turns, lambda drawn: simpler(drawn, question))
            if contracted is None:
                continue
            before = Contraction(question=question)
            kept = self._records.choice(place, Turn.REFLECT, [contracted, before], turns)
            if kept is not None and kept.vote() == before.vote():
                continue
            followed = self._answered(place, Turn.GRAPH, turns)
            child = self.node(at, contracted.question, depth + 1)
            solved = None if child.answer is None else decoder_of(self._records.answer).decode(child.answer)
            answers = [each for each in (solved, followed, answer) if each is not None]
            self._records.choice(place, Turn.JUDGE, answers, turns)
            return child if child.turns else None
        return None

    def _answered(self, at: str, turn: Turn, turns: list[TurnResult]) -> Reply | None:
        """The elected answer of a turn; None if there is none yet."""
        return self._records.turn(at, turn, self._trajectory, turns, lambda drawn: [each.answer for each in drawn])
