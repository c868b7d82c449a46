"""A long specification, a clause a segment: one model writes, the other checks each clause before the next, and code checks the whole."""

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

FEATURES = ("import", "search", "export", "login", "billing", "audit", "backup", "alerts", "limits", "roles")
CLAUSE = "R{number}. The system shall offer {feature}; a failure of {feature} shall be reported within {number} s.\n"


class Specification(WorkedDocument):
    """microagents run specification.py"""

    features: tuple[str, ...] = FEATURES

    def statement(self) -> str:
        return f"Write a specification, one clause for each of these features, numbered in this order: {' '.join(self.features)}"

    def checks(self, text: str) -> dict[str, bool | None]:
        numbers = [int(each) for each in re.findall(r"^R(\d+)\.", text, re.MULTILINE)]
        return {
            "numbered without a gap": numbers == list(range(1, len(self.features) + 1)),
            **{f"a clause on {each}": f"offer {each};" in text for each in self.features},
        }

    # For the simulated model: an author, a validator, a splitter and a ranker, who read what real ones read.

    def clauses(self, subtask: str) -> list[str]:
        wanted = [each for each in self.features if re.search(rf"\b{each}\b", subtask)]
        return [CLAUSE.format(number=self.features.index(each) + 1, feature=each) for each in wanted]

    def expert_segment(self, asked: ToWrite) -> Segment:
        left = [each for each in self.clauses(asked.subtask) if each.strip() not in asked.written]
        status = "complete" if len(left) <= 1 else "ongoing"
        return Segment(justify="the next clause", text=left[0] if left else "", status=status, mode="continue")

    def mistaken_segment(self, asked: ToWrite, right: Segment, rng: Random) -> Segment:
        text = re.sub(r"\d+", lambda found: str(int(found[0]) + rng.randint(1, 3)), right.text)
        return Segment(justify="the next clause", text=text, status=right.status, mode="continue")

    def expert_validation(self, asked: ToValidate) -> Validation:
        passes = asked.segment.strip() in [each.strip() for each in self.clauses(asked.subtask)]
        return Validation(reason="I compared number and feature.", passes=passes)

    def expert_parts(self, asked: ToSplit) -> Parts:
        names = [each for each in self.features if re.search(rf"\b{each}\b", asked.subtask)]
        return Parts(
            subtasks=tuple(Part(id=number, objective=each, depends_on=()) for number, each in enumerate(names, 1))
        )

    def faults_in(self, asked: ToRank, text: str) -> int:
        return sum(line + "\n" not in self.clauses(asked.subtask) for line in text.splitlines())
