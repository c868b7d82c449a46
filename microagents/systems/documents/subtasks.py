"""The graph of a document's subtasks: its stable order, the place of new subtasks in it, and the faults of proposed ones. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from microagents.base.errors import InvalidUsage
from microagents.systems.documents.questions import Part
from microagents.systems.documents.records import SubtaskRecord
from microagents.systems.questions.questions import problem_id

ROOT = "write"
"""Place of the whole document. The subtasks of a subtask add ``/part/1``, ``/part/2``, … to its place."""
_META_PLANNING = re.compile(
    r"\s*((plan|outline|brainstorm)\b(?=.*\b(outline|structure|framework|approach|steps|sections|subtasks|order of)\b)"
    r"|(define|decide on|determine|design)\s+(the\s+|an?\s+)?(overall\s+)?(outline|structure|framework|approach)\b)",
    re.IGNORECASE | re.DOTALL,
)


class Graph:
    """Subtasks in a stable topological order: of those whose parents are done, the first listed comes first."""

    def __init__(self, subtasks: Sequence[SubtaskRecord]) -> None:
        self._nodes = list(subtasks)
        self._order: list[SubtaskRecord] | None = None
        """The order, until a split changes it."""

    @classmethod
    def of(cls, objective: str, given: Sequence[Part]) -> Graph:
        """Build the first graph of a document: the given subtasks, or one node for the whole."""
        if not given:
            return cls([SubtaskRecord(at=ROOT, objective=objective)])
        if (fault := _graph_fault(given)) is not None:
            raise InvalidUsage(f"the subtasks of the document {fault}")
        return cls(_placed(ROOT, given, parents=(), depth=0))

    def order(self) -> list[SubtaskRecord]:
        """List all nodes in the stable topological order."""
        if self._order is None:
            done: set[str] = set()
            left, self._order = list(self._nodes), []
            while left:
                node = next(each for each in left if done.issuperset(each.parents))
                left.remove(node)
                done.add(node.at)
                self._order.append(node)
        return self._order

    def split(self, at: str, parts: Sequence[Part]) -> list[SubtaskRecord]:
        """Put parts in the place of a subtask; returns the new nodes.

        Each parent of the old node becomes a parent of every new one, and every new one a parent of each child of the old one.
        """
        place = next(place for place, node in enumerate(self._nodes) if node.at == at)
        old = self._nodes[place]
        new = _placed(at, parts, parents=old.parents, depth=old.depth + 1)
        added = tuple(each.at for each in new)
        for node in self._nodes:
            if at in node.parents:
                node.parents = tuple(parent for parent in node.parents if parent != at) + added
        self._nodes[place : place + 1] = new
        self._order = None
        return new


def fault_of(parts: Sequence[Part], above: Iterable[str], max_subtasks: int) -> str | None:
    """Name the fault of proposed parts, as a clause without its subject; None if they can take the place of their subtask.

    ``above`` are the objectives of the subtask that is split, and of the ones that were split before to get it.
    """
    if len(parts) < 2:  # noqa: PLR2004 - one part does not split it
        return f"are {len(parts)}, which is no split"
    if len(parts) > max_subtasks:
        return f"are {len(parts):,}, more than {max_subtasks}"
    seen = {problem_id(each) for each in above}
    for part in parts:
        if problem_id(part.objective) in seen:
            return f"repeat a subtask that is being split: {part.objective!r:.80}"
        if _META_PLANNING.match(part.objective):
            return f"plan instead of writing: {part.objective!r:.80}"
    if (fault := _graph_fault(parts)) is not None:
        return fault
    if len({problem_id(part.objective) for part in parts}) < len(parts):
        return "repeat each other"
    return None


def _graph_fault(parts: Sequence[Part]) -> str | None:
    needed: Mapping[int, tuple[int, ...]] = {part.id: part.depends_on for part in parts}
    if len(needed) < len(parts):
        return "have an id twice"
    for part in parts:
        if not part.objective.strip():
            return f"have no objective at id {part.id}"
        unknown = [each for each in part.depends_on if each not in needed]
        if unknown:
            return f"depend on an id that does not exist: {unknown[0]}"
    try:
        TopologicalSorter(needed).prepare()
    except CycleError as error:
        return f"depend on each other in a cycle: {', '.join(map(str, error.args[1]))}"
    return None


def _placed(at: str, parts: Sequence[Part], *, parents: tuple[str, ...], depth: int) -> list[SubtaskRecord]:
    places = {part.id: f"{at}/part/{number}" for number, part in enumerate(parts, 1)}
    found = []
    for part in parts:
        needed = [places[each] for each in part.depends_on]
        above = (*parents, *needed)
        found.append(SubtaskRecord(at=places[part.id], objective=part.objective, parents=above, depth=depth))
    return found
