"""A document of lines in order, which code can write and judge; a wrong line has the word WRONG in it."""

from __future__ import annotations

import re
from random import Random

from microagents.systems.documents import (
    Part,
    Parts,
    Segment,
    ToRank,
    ToSplit,
    ToValidate,
    ToWrite,
    Validation,
    WorkedDocument,
)


class Lines(WorkedDocument):
    """Write lines with ascending numbers."""

    n: int = 4
    sections: int = 1
    """Number of given subtasks; each has n lines."""

    def statement(self) -> str:
        return f"Write the lines 1 to {self.n * self.sections}."

    def subtasks(self) -> list[Part]:
        if self.sections == 1:
            return []
        spans = [(section * self.n + 1, (section + 1) * self.n) for section in range(self.sections)]
        return [Part(id=first, objective=f"Write the lines {first} to {last}.", depends_on=()) for first, last in spans]

    def expert_segment(self, asked: ToWrite) -> Segment:
        first, last = _span(asked.subtask)
        next_line = first + len(asked.written.splitlines())
        return Segment(
            justify="the next",
            text=f"line {next_line}",
            status="complete" if next_line >= last else "ongoing",
            mode="continue",
        )

    def mistaken_segment(self, asked: ToWrite, right: Segment, rng: Random) -> Segment:  # noqa: ARG002 - of one kind
        return Segment(justify="", text=f"{right.text} WRONG {rng.randrange(3)}", status=right.status, mode="continue")

    def expert_validation(self, asked: ToValidate) -> Validation:
        return Validation(reason="the line is as it should be, or not", passes="WRONG" not in asked.segment)

    def expert_parts(self, asked: ToSplit) -> Parts:
        first, last = _span(asked.subtask)
        middle = (first + last) // 2
        if first == last:
            return Parts(subtasks=())
        halves = [(first, middle), (middle + 1, last)]
        return Parts(
            subtasks=tuple(Part(id=a, objective=f"Write the lines {a} to {b}.", depends_on=()) for a, b in halves)
        )

    def faults_in(self, asked: ToRank, text: str) -> int:  # noqa: ARG002 - the text tells
        return text.count("WRONG")

    def checks(self, text: str) -> dict[str, bool | None]:
        lines = [line for line in text.splitlines() if line]
        return {"all lines": lines == [f"line {number}" for number in range(1, self.n * self.sections + 1)]}


def _span(objective: str) -> tuple[int, int]:
    first, last = re.findall(r"\d+", objective)
    return int(first), int(last)
