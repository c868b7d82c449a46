"""Consistency: a generated document whose sections fix values of terms that later sections must repeat."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from random import Random
from typing import Annotated, Self

from msgspec import Struct, structs
from pydantic import Field

from microagents.replies.chat import Prompt
from microagents.replies.reply import Reply
from microagents.systems.documents.document import WorkedDocument
from microagents.systems.documents.questions import (
    Part,
    Parts,
    Segment,
    ToRank,
    ToSplit,
    ToSummarize,
    ToValidate,
    ToWrite,
    Validation,
    asked_in,
)

VALUES = {
    "step size": "eta_{}",
    "data set": "birch-{}",
    "limit": "{}",
    "unit": "u{}",
    "index": "i_{}",
    "model": "oak-{}",
    "seed": "{}",
    "table": "T{}",
}
"""The names of terms, and the forms of their values."""
OPEN = "?"
"""In an objective: the value that the term's own section fixes."""
MAX_PARENTS = 2
SPLIT_ERROR = 0.05
RANK_ERROR = 0.05
"""Error rates of the simulated model for splits and rankings."""
_LINE = re.compile(r"Section (\d+): the ([a-z ]+) of section (\d+) is (\S+)")


class Term(Struct, frozen=True, order=True):
    """A term, which the section of this number fixes."""

    name: str
    section: int


class Line(Struct, frozen=True):
    """A line of the text, or of an objective: a section fixes a term of its own, or uses another section's."""

    section: int
    term: Term
    value: str

    def __str__(self) -> str:
        return f"Section {self.section}: the {self.term.name} of section {self.term.section} is {self.value}"

    @property
    def fixes(self) -> bool:
        """Whether the line fixes its term."""
        return self.section == self.term.section


class Section(Struct, frozen=True):
    """A section of the document."""

    number: int
    parents: tuple[int, ...]
    """Numbers of the sections that it declares to depend on."""
    lines: tuple[Line, ...]
    """Its lines, as its objective lists them."""


class Consistency(WorkedDocument):
    """Write sections that fix values of terms and use earlier sections' values; a used value must be the fixed one.

    An author who does not see the section that fixes a value must invent it. The simulated model imitates a model that
    does so, and that alters a value now and then.
    """

    sections: Annotated[int, Field(ge=1, le=200)] = 8
    """Number of sections."""
    fixes: Annotated[int, Field(ge=1, le=len(VALUES))] = 2
    """Number of terms that each section fixes."""
    uses: Annotated[int, Field(ge=0, le=50)] = 3
    """Maximum number of earlier terms that each section uses; fewer if there are fewer."""
    undeclared: Annotated[float, Field(ge=0, le=1)] = 0.3
    """Chance that a use is of a section that no declared dependency leads to, if there is one; else it is of a declared parent."""
    error: Annotated[float, Field(ge=0, le=1)] = 0.05
    """Error rate of the simulated model for each term that it writes."""
    accuracy: Annotated[float, Field(ge=0, le=1)] | None = 0.9
    """Share of right judgements of the simulated model; None for each model's own."""
    instance: Annotated[int, Field(ge=0)] = 0
    """Number of the random document; each gives another document."""

    @cached_property
    def plan(self) -> tuple[Section, ...]:
        """Sections."""
        rng = Random(f"{self.sections} {self.fixes} {self.uses} {self.undeclared} {self.instance}")
        planned: list[Section] = []
        reached: dict[int, set[int]] = {}  # the sections that lead to each
        for number in range(1, self.sections + 1):
            parents = rng.sample(range(1, number), min(number - 1, rng.randint(1, MAX_PARENTS)))
            reached[number] = {*parents}.union(*(reached[each] for each in parents))
            fixed = [Term(name, number) for name in rng.sample(sorted(VALUES), self.fixes)]
            declared = [
                line.term for section in planned if section.number in parents for line in section.lines if line.fixes
            ]
            hidden = [
                line.term
                for section in planned
                if section.number not in reached[number]
                for line in section.lines
                if line.fixes
            ]
            used = _drawn(rng, hidden, declared, self.undeclared, self.uses)
            lines = [Line(number, term, _value(term, f"fixed {self.instance}")) for term in fixed]
            lines += [Line(number, term, OPEN) for term in used]
            planned.append(Section(number, tuple(sorted(parents)), tuple(lines)))
        return tuple(planned)

    def statement(self) -> str:
        return (
            f"Write the settings of a system, in {self.sections} sections. Each section fixes the values of some terms, and later sections "
            "use them. The text consists of lines such as `Section 5: the limit of section 3 is 417`, and of nothing else. The objective "
            f"of a section lists its lines. Where it has {OPEN} in place of a value, write the value that the section of this term fixes."
        )

    def subtasks(self) -> Sequence[Part]:
        return [Part(id=each.number, objective=_objective(each.lines), depends_on=each.parents) for each in self.plan]

    def checks(self, text: str) -> dict[str, bool | None]:
        return {"consistent": not self.contradictions(text)}

    def contradictions(self, text: str) -> int:
        """Count the lines of the document that are missing, repeated, wrong, or not asked for."""
        lines, strange = _lines_in(text)
        return strange + len(_faults([line for section in self.plan for line in section.lines], _values(lines), lines))

    def variant(self, number: int) -> Self:
        return type(self)(**self.model_dump(exclude={"instance"}), instance=self.instance + number)

    def expert_segment(self, asked: ToWrite) -> Segment:
        """Write all lines that are left, each with the value that the question shows, or else with an invented one."""
        known = _values(_lines_in(asked.finished)[0] + _lines_in(asked.written)[0])
        lines = []
        for line in _left(asked):
            value = line.value
            if value == OPEN:
                value = known.get(line.term) or _value(line.term, f"invented by {line.section}")
            lines.append(structs.replace(line, value=value))
        return Segment(justify="all lines that are left", text=_text(lines), status="complete", mode="continue")

    def mistaken_segment(self, asked: ToWrite, right: Segment, rng: Random) -> Segment:  # noqa: ARG002 - the segment has the terms
        """Alter one value of the segment."""
        lines, _ = _lines_in(right.text)
        if lines:
            at = rng.randrange(len(lines))
            lines[at] = structs.replace(lines[at], value=_value(lines[at].term, f"altered {rng.random()}"))
        return structs.replace(right, text=_text(lines))

    def expert_validation(self, asked: ToValidate) -> Validation:
        """Object when a line contradicts the subtask or the text, is missing, repeated or not asked for."""
        before = [] if asked.mode == "override" else _lines_in(asked.written)[0]
        lines, strange = _lines_in(asked.segment)
        done = {line.term for line in before}
        left = [line for line in _lines_in(asked.subtask)[0] if line.term not in done]
        if asked.status != "complete":
            given = {line.term for line in lines}
            left = [line for line in left if line.term in given]
        faults = _faults(left, _values(_lines_in(asked.finished)[0] + before), lines)
        if strange:
            faults.append("there is text that is no line of a section")
        return Validation(reason="; ".join(faults) or "all lines are there and right", passes=not faults)

    def expert_parts(self, asked: ToSplit) -> Parts:
        """Split into two parts with half of the lines each; a single line cannot be split."""
        lines, _ = _lines_in(asked.subtask)
        middle = (len(lines) + 1) // 2
        halves = [half for half in (lines[:middle], lines[middle:]) if half]
        subtasks = [Part(id=number, objective=_objective(half), depends_on=()) for number, half in enumerate(halves, 1)]
        return Parts(subtasks=tuple(subtasks))

    def faults_in(self, asked: ToRank, text: str) -> int:
        """Count the faults that the question shows."""
        return len(_faults(_lines_in(asked.subtask)[0], _values(_lines_in(asked.finished)[0]), _lines_in(text)[0]))

    def difficulty(self, prompt: Prompt, reply: type[Reply]) -> float | None:  # noqa: ARG002 - the prompt says what is wanted
        asked = asked_in(prompt)
        match asked:
            case ToWrite():
                return 1 - (1 - self.error) ** len(_left(asked))
            case ToValidate():
                if self.accuracy is None:
                    return None
                return 1 - self.accuracy
            case ToSplit():
                return SPLIT_ERROR
            case ToRank():
                return RANK_ERROR
            case ToSummarize():
                return 0.0


def _drawn(rng: Random, hidden: list[Term], declared: list[Term], share: float, number: int) -> list[Term]:
    """Draw distinct terms, about this share of them hidden. Declared ones stand in for hidden ones, not the reverse."""
    hidden, declared = rng.sample(hidden, len(hidden)), rng.sample(declared, len(declared))
    drawn = []
    for _ in range(number):
        pool = hidden if rng.random() < share and hidden else declared
        drawn += [pool.pop()] if pool else []
    return drawn


def _value(term: Term, source: str) -> str:
    """Make up a value for a term, other for each source."""
    digest = blake2b(f"{term.name} {term.section} {source}".encode(), digest_size=8).digest()
    return VALUES[term.name].format(100_000 + int.from_bytes(digest) % 900_000)


def _text(lines: Iterable[Line]) -> str:
    return "\n".join(map(str, lines))


def _objective(lines: Sequence[Line]) -> str:
    return f"Write these lines of section {lines[0].section}, with values in place of each {OPEN}:\n{_text(lines)}"


def _lines_in(text: str) -> tuple[list[Line], int]:
    """Read the lines of sections in a text, and count the other lines that are not blank."""
    matches = [_LINE.fullmatch(each) for each in text.splitlines() if each.strip()]
    lines = [Line(int(each[1]), Term(each[2], int(each[3])), each[4]) for each in matches if each is not None]
    return lines, len(matches) - len(lines)


def _values(lines: Iterable[Line]) -> dict[Term, str]:
    """Read the value of each term: the one that its section fixes; without that line, the first one used."""
    values: dict[Term, str] = {}
    for line in sorted(lines, key=lambda each: not each.fixes):
        values.setdefault(line.term, line.value)
    return values


def _left(asked: ToWrite) -> list[Line]:
    done = {line.term for line in _lines_in(asked.written)[0]}
    return [line for line in _lines_in(asked.subtask)[0] if line.term not in done]


def _faults(wanted: Iterable[Line], known: Mapping[Term, str], lines: Iterable[Line]) -> list[str]:
    """Compare lines with the wanted ones. A used value is wrong only if the known one is another."""
    left = {(line.section, line.term): line.value for line in wanted}
    faults = []
    for line in lines:
        value = left.pop((line.section, line.term), None)
        right = known.get(line.term, line.value) if value == OPEN else value
        if right is None:
            faults.append(f"not asked for, or there twice: {line}")
        elif line.value != right:
            faults.append(f"not {right}: {line}")
    return [
        *faults,
        *(f"missing: the {term.name} of section {term.section} in section {section}" for section, term in left),
    ]
