"""A small Monte Carlo of documents whose sections use each other's terms, written without the framework and without its task.

Values are tuples. It knows what is visible to an author, how often authors, judges, splitters and rankers err, and SeqCV's rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

Term = tuple[int, int]
"""Number of the section that fixes it, and its number there."""
Line = tuple[int, Term, tuple[object, ...]]
"""Number of the section that the line stands in, the term and its value."""

AGENTS = 3
MAJORITY = 2
ROUNDS = 10
SPLIT_TRIES = 3


@dataclass(frozen=True)
class Rates:
    """Error rates."""

    term: float
    """For each term that is written."""
    judges: tuple[float, float, float]
    """For a judgement of each agent."""
    split: float
    rank: float


@dataclass(frozen=True)
class Shape:
    """The kind of document."""

    sections: int
    fixes: int
    uses: int
    undeclared: float


class Document:
    """One random document, and the number of its wrong lines once it is written."""

    def __init__(self, shape: Shape, rates: Rates, seed: str) -> None:
        self._rates = rates
        self._rng = Random(seed)
        self._altered = 0
        self._parents: list[list[int]] = []
        self._terms: list[list[Term]] = []
        for section in range(shape.sections):
            self._add(section, shape)

    def parallel_faults(self) -> int:
        """Each author sees the sections that it declares to depend on."""
        sections: list[list[Line]] = []
        for number, terms in enumerate(self._terms):
            visible = _joined(sections[parent] for parent in sorted(self._parents[number]))
            sections.append(self._drafted(number, terms, visible)[0])
        return self._faults(sections)

    def sequential_faults(self) -> int:
        """Each author sees all earlier sections."""
        sections: list[list[Line]] = []
        for number, terms in enumerate(self._terms):
            sections.append(self._drafted(number, terms, _joined(sections))[0])
        return self._faults(sections)

    def seqcv_faults(self, depth: int) -> int:
        """Three agents, with this many splits above a part at most."""
        sections: list[list[Line]] = []
        for number, terms in enumerate(self._terms):
            sections.append(self._agreed(number, terms, _joined(sections), depth))
        return self._faults(sections)

    def _add(self, section: int, shape: Shape) -> None:
        parents = self._rng.sample(range(section), min(section, self._rng.choice((1, 2))))
        self._parents.append(parents)
        above: set[int] = set()
        left = list(parents)
        while left:
            each = left.pop()
            above.add(each)
            left.extend(self._parents[each])
        near = [(parent, number) for parent in parents for number in range(shape.fixes)]
        far = [(each, number) for each in range(section) if each not in above for number in range(shape.fixes)]
        self._rng.shuffle(near)
        self._rng.shuffle(far)
        used: list[Term] = []
        for _ in range(shape.uses):
            if self._rng.random() < shape.undeclared and far:
                used.append(far.pop())
            elif near:
                used.append(near.pop())
        self._terms.append([(section, number) for number in range(shape.fixes)] + used)

    def _drafted(self, section: int, terms: Sequence[Term], seen: Iterable[Line]) -> tuple[list[Line], bool]:
        """A draft, and whether it is wrong: with the chance that any term is, one value is altered."""
        lines = [(section, term, self._right(section, term, seen)) for term in terms]
        if self._rng.random() >= 1 - (1 - self._rates.term) ** len(terms):
            return lines, False
        self._altered += 1
        at = self._rng.randrange(len(lines))
        lines[at] = (section, terms[at], ("altered", self._altered))
        return lines, True

    def _right(self, section: int, term: Term, seen: Iterable[Line]) -> tuple[object, ...]:
        """The value for an author who sees these lines: given, fixed in a line, used in one, or else invented."""
        if term[0] == section:
            return ("given", term)
        used = [(where, value) for where, each, value in seen if each == term]
        fixed = [value for where, value in used if where == term[0]]
        return (fixed or [value for _, value in used] or [("invented", section, term)])[0]

    def _agreed(self, section: int, terms: Sequence[Term], seen: list[Line], depth: int) -> list[Line]:
        """SeqCV: rounds of drafts, judged by all; a split where fewer than two agents pass; a choice by rank."""
        complete: dict[int, tuple[list[Line], bool]] = {}
        for _ in range(ROUNDS):
            drafts = {agent: self._drafted(section, terms, seen) for agent in range(AGENTS) if agent not in complete}
            approvals = {agent: self._approvals(wrong=wrong) for agent, (_, wrong) in drafts.items()}
            passed = [agent for agent in drafts if approvals[agent] >= MAJORITY]
            if len(passed) + len(complete) < MAJORITY:
                if depth and len(terms) > 1 and self._splits():
                    middle = (len(terms) + 1) // 2
                    first = self._agreed(section, terms[:middle], seen, depth - 1)
                    return first + self._agreed(section, terms[middle:], seen + first, depth - 1)
                best = max(drafts, key=lambda agent: (approvals[agent], -agent))
                passed = sorted({*passed, best})
            complete |= {agent: drafts[agent] for agent in passed}
            if len(complete) == AGENTS:
                break
        return self._chosen(complete)

    def _approvals(self, *, wrong: bool) -> int:
        return sum(wrong == (self._rng.random() < error) for error in self._rates.judges)

    def _splits(self) -> bool:
        return any(self._rng.random() >= self._rates.split for _ in range(SPLIT_TRIES))

    def _chosen(self, complete: dict[int, tuple[list[Line], bool]]) -> list[Line]:
        """The version with most points: right versions are equal, and each wrong one is different."""
        versions: dict[str, int] = {}
        for agent in sorted(complete):
            lines, _ = complete[agent]
            versions.setdefault(repr(lines), agent)
        labels = {agent: self._rng.random() for agent in versions.values()}
        points, firsts = dict.fromkeys(labels, 0), dict.fromkeys(labels, 0)
        for ranker in range(AGENTS):
            ranked = sorted(
                (agent for agent in labels if agent != ranker), key=lambda agent: (complete[agent][1], labels[agent])
            )
            if len(ranked) > 1 and len(labels) > 1:
                best, second = ranked[:2]
                if self._rng.random() < self._rates.rank:
                    best, second = second, best
                points[best] += 2
                points[second] += 1
                firsts[best] += 1
        return complete[max(labels, key=lambda agent: (points[agent], firsts[agent], -agent))][0]

    def _faults(self, sections: Iterable[Sequence[Line]]) -> int:
        """Lines with another value than the given one, or than the one in the line that fixes the term."""
        lines = _joined(sections)
        fixed = {term: value for section, term, value in lines if term[0] == section}
        return sum(value != (("given", term) if term[0] == section else fixed[term]) for section, term, value in lines)


def _joined(sections: Iterable[Sequence[Line]]) -> list[Line]:
    return [line for section in sections for line in section]
