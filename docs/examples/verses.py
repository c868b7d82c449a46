"""A document that the simulated model can write: SeqCV."""

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


class Verses(WorkedDocument):  # one line for each word of the brief
    brief: str = "rain wind snow"

    def statement(self) -> str:
        return self.brief

    def checks(self, text: str) -> dict[str, bool | None]:
        return {"all lines": all(f"On {word}.\n" in text for word in self.brief.split())}

    # For the simulated model: an author, a validator, a splitter and a ranker.

    def expert_segment(self, asked: ToWrite) -> Segment:
        left = asked.subtask.split()[len(asked.written.splitlines()) :]
        is_last = len(left) == 1
        return Segment(
            justify="the next line",
            text=f"On {left[0]}.\n",
            status="complete" if is_last else "ongoing",
            mode="continue",
        )

    def mistaken_segment(self, asked: ToWrite, right: Segment, rng: Random) -> Segment:
        return Segment(justify="the next line", text="On.\n", status=right.status, mode="continue")

    def expert_validation(self, asked: ToValidate) -> Validation:
        written = asked.written.splitlines()
        word = asked.subtask.split()[len(written)]
        return Validation(reason="I looked for its word.", passes=f"On {word}." in asked.segment)

    def expert_parts(self, asked: ToSplit) -> Parts:
        return Parts(
            subtasks=tuple(
                Part(id=number, objective=word, depends_on=()) for number, word in enumerate(asked.subtask.split(), 1)
            )
        )

    def faults_in(self, asked: ToRank, text: str) -> int:
        return text.count("On.")
