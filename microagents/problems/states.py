"""The states of a question that is made simpler again and again (Atom of Thoughts), as a journal records them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

import msgspec
from msgspec import Raw, Struct, structs

from microagents.problems.questions import Contraction, Subquestions, problem_id
from microagents.problems.tree import MAX_DEPTH, Branch, Ending, ProblemNode, Turn, TurnRecords, TurnResult, node_of
from microagents.replies.chat import Reply
from microagents.replies.trajectories import trajectory_of

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
    transitions: int | None
    """Greatest number of transitions; None: the longest path of the first graph."""


def simpler(drawn: Sequence[Contraction], problem: str) -> list[Contraction]:
    """The contractions that do not repeat the problem."""
    given = Contraction(question=problem).vote()
    return [each for each in drawn if each.vote() != given]


def states_tree(records: TurnRecords, question: str, shape: Shape) -> ProblemNode:
    """The recorded states of one input, and the next states below each.

    The turns of a transition stand with the state before it if a state has one transition, else with the branch that they belong to.

    Args:
        records: the turns of the input.
        question: the text of the problem.
        shape: the places of states.
    """
    states = _States(records, shape)
    is_forest = len(shape.roots) > 1
    trees, ends = list[ProblemNode](), list[_End]()
    for number, at in enumerate(shape.roots, 1):
        first = states.first(at, question, depth=1 if is_forest else 0)
        tree, ends_of_tree = states.grown(first)
        ends += ends_of_tree
        trees.append(structs.replace(tree, branch=_branch(number, _Way(state=first, picked=first.answer))) if is_forest else tree)
    chosen = None if states.is_open else _most_frequent(ends).at
    trees = [_marked(each, chosen) for each in trees]
    final = records.concluded(shape.root)
    if not is_forest:
        return trees[0] if final is None else structs.replace(trees[0], answer=final)
    children = tuple(each for each in trees if each.turns)
    return ProblemNode(at=shape.root, problem=question, depth=0, turns=(), answer=final, calls=0, cost_usd=0.0, children=children)


class _State(Struct, frozen=True, kw_only=True):
    at: str
    depth: int
    turns: list[TurnResult]
    question: str = ""
    """Empty where a transition led to none."""
    answer: Reply | None = None
    left: int | None = None
    """Number of transitions that may follow; None while that depends on the first graph."""


class _Way(Struct, frozen=True, kw_only=True):
    """A transition, as far as it is recorded."""

    state: _State
    """What it led to."""
    ending: Ending | None = None
    """Why the chain ended there."""
    picked: Reply | None = None
    """The answer after it: that of the next state, unless the chain ended; None while that is open."""

    @property
    def is_accepted(self) -> bool:
        """Whether the chain goes on from the next state, or ends there at the greatest number of transitions."""
        return self.picked is not None and self.ending is None


class _End(Struct, frozen=True, kw_only=True):
    """The end of a chain."""

    at: str
    answer: Reply
    weight: int = 1
    """Number of equal chains that it stands for."""


class _States:
    """Reads states as the conductor of Atom of Thoughts makes them."""

    def __init__(self, records: TurnRecords, shape: Shape) -> None:
        self.is_open = False
        """Whether a chain has not ended, as far as was read."""
        self._records = records
        self._trajectory = trajectory_of(records.answer)
        self._shape = shape

    def first(self, at: str, question: str, *, depth: int) -> _State:
        """The question itself."""
        turns: list[TurnResult] = []
        answer = self._answered(at, Turn.ANSWER, turns)
        return _State(at=at, depth=depth, turns=turns, question=question, answer=answer, left=self._shape.transitions)

    def grown(self, state: _State) -> tuple[ProblemNode, list[_End]]:
        """The node of a state with all that follows it, and the ends of its chains."""
        if state.left == 0 and state.answer is not None:
            return _node(state), [_End(at=state.at, answer=state.answer)]
        # The rows of a manipulated journal might never end.
        ways = [self._way(state, number) for number in range(1, self._shape.branches + 1)] if state.depth < MAX_DEPTH else []
        self.is_open |= not ways or any(way.picked is None for way in ways)
        same: dict[bytes, list[int]] = {}
        for number, way in enumerate(ways, 1):
            if way.is_accepted:
                same.setdefault(problem_id(way.state.question), []).append(number)
        ends = [_End(at=way.state.at, answer=way.picked) for way in ways if way.ending is not None and way.picked is not None]
        children = []
        for number, way in enumerate(ways, 1):
            equal = same[problem_id(way.state.question)] if way.is_accepted else [number]
            child = _node(way.state)
            if way.ending is None and way.state.answer is not None and number == equal[0]:
                child, following = self.grown(way.state)
                ends += [structs.replace(each, weight=each.weight * len(equal)) for each in following]
            if self._shape.branches > 1:
                child = structs.replace(child, branch=_branch(number, way, equal[0]))
            if child.turns:
                children.append(child)
        return _node(state, children), ends

    def _way(self, state: _State, number: int) -> _Way:
        """A transition from a state. Its turns are appended to those of the state, or of the branch if there are several."""
        at, solving = f"{state.at}/{number}", list[TurnResult]()
        turns = solving if self._shape.branches > 1 else state.turns
        led_to = _State(at=at, depth=state.depth + 1, turns=solving)
        ending: Ending | None = None
        for tried in range(self._shape.tries):
            place, begun = f"{at}/{AGAIN}/{tried}" if tried else at, len(turns)
            graph = self._records.turn(place, Turn.DECOMPOSE, Subquestions, turns, list)
            if _has_none(turns[begun:], Turn.DECOMPOSE):
                return _Way(state=led_to, ending="no subquestions", picked=state.answer)
            if graph is not None and not graph.dependent:
                return _Way(state=led_to, ending="nothing to contract", picked=state.answer)
            contracted = self._records.turn(place, Turn.CONTRACT, Contraction, turns, lambda drawn: simpler(drawn, state.question))
            has_none, before = _has_none(turns[begun:], Turn.CONTRACT), Contraction(question=state.question)
            kept = None if contracted is None else self._records.choice(place, Turn.REFLECT, [contracted, before], turns)
            followed = self._answered(place, Turn.GRAPH, turns)
            is_followed = graph is None or followed is not None or _has_none(turns[begun:], Turn.GRAPH)
            if contracted is None:
                ending = "no contraction" if has_none and is_followed else None
            elif kept is not None and kept.vote() == before.vote():
                ending = "worse" if is_followed else None
            else:
                left = state.left or (0 if graph is None else graph.longest_path)
                led_to = structs.replace(led_to, question=contracted.question, left=left - 1)
                return self._judged(state, led_to, place, followed, turns, is_followed=is_followed)
        return _Way(state=led_to, ending=ending, picked=None if ending is None else state.answer)

    def _judged(
        self, state: _State, led_to: _State, place: str, followed: Reply | None, turns: list[TurnResult], *, is_followed: bool
    ) -> _Way:
        """What the judge made of a transition to a question. ``followed`` is the answer along the graph, if that is ``is_followed``."""
        solved = self._answered(led_to.at, Turn.ANSWER, led_to.turns)
        is_solved = solved is not None or _has_none(led_to.turns, Turn.ANSWER)
        answers = [each for each in (solved, followed, state.answer) if each is not None]
        picked = self._records.choice(place, Turn.JUDGE, answers, turns)
        if is_solved and is_followed and len({each.vote() for each in answers}) == 1:
            picked = answers[0]
        is_next = solved is not None and picked is not None and picked.vote() == solved.vote()
        return _Way(state=structs.replace(led_to, answer=solved), ending=None if picked is None or is_next else "not picked", picked=picked)

    def _answered(self, at: str, turn: Turn, turns: list[TurnResult]) -> Reply | None:
        """The elected answer of a turn; None if there is none yet."""
        return self._records.turn(at, turn, self._trajectory, turns, lambda drawn: [each.answer for each in drawn])


def _has_none(turns: Sequence[TurnResult], turn: Turn) -> bool:
    """Whether the last of the turns is this one, and has no valid reply."""
    return bool(turns) and turns[-1].turn == turn and turns[-1].outcome == "none"


def _node(state: _State, children: Sequence[ProblemNode] = ()) -> ProblemNode:
    return node_of(state.at, state.question, state.depth, turns=state.turns, answer=state.answer, children=children)


def _branch(number: int, way: _Way, same_as: int | None = None) -> Branch:
    if same_as not in (None, number):
        return Branch(number=number, same_as=same_as)
    ending = "transitions" if way.is_accepted and way.state.left == 0 else way.ending
    answer = None if ending is None or way.picked is None else Raw(msgspec.json.encode(way.picked))
    return Branch(number=number, ending=ending, answer=answer)


def _most_frequent(ends: Sequence[_End]) -> _End:
    """The first end with the most frequent answer."""
    counts = Counter[Hashable]()
    for each in ends:
        counts[each.answer.vote()] += each.weight
    return max(ends, key=lambda each: counts[each.answer.vote()])


def _marked(node: ProblemNode, chosen: str | None) -> ProblemNode:
    """The node with the branches marked whose chains end at the chosen place."""
    is_chosen = None if chosen is None else f"{chosen}/".startswith(f"{node.at}/")
    branch = None if node.branch is None else structs.replace(node.branch, chosen=is_chosen)
    return structs.replace(node, branch=branch, children=tuple(_marked(each, chosen) for each in node.children))
