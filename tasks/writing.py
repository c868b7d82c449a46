"""A text to a brief: a lecture, a page, a program."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Annotated, Literal, Self

from msgspec import structs
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from microagents.base.errors import InvalidUsage
from microagents.replies.reply import Reply
from microagents.systems.documents.document import WorkedDocument
from microagents.systems.documents.questions import (
    Part,
    Parts,
    Segment,
    ToRank,
    ToSplit,
    ToValidate,
    ToWrite,
    Validation,
)
from microagents.systems.documents.subtasks import Graph
from microagents.tasks.given_text import GivenText
from microagents.tasks.requirements import requirements_in

MAX_CHARS = 100_000
FORMS = {
    ".css": "CSS",
    ".htm": "HTML",
    ".html": "HTML",
    ".js": "JavaScript",
    ".md": "Markdown",
    ".py": "Python",
    ".svg": "SVG",
    ".tex": "LaTeX",
    ".ts": "TypeScript",
    ".txt": "plain text",
}
"""Forms of a text by the ending of its file. Of other files the prompt names the ending."""
SEGMENTS = 4
"""Number of segments in which the simulated model writes a subtask."""
WRONG_LINE = "There is more."
BAD_CHARACTER = "bad_character"
_BAD_CHARACTER = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]|\r(?!\n)")


class GivenPart(BaseModel):
    """A given subtask."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: int
    objective: str
    depends_on: tuple[int, ...] = ()
    """Ids of the subtasks whose text must be there before."""


class Writing(WorkedDocument):
    """Write a text to a brief. Simulated models only copy the brief, to try a run without a key: name real ones with ``--model``."""

    brief: Annotated[GivenText, Field(max_length=MAX_CHARS)]
    """The brief; brief=@FILE reads it from a file. Lines ``- check: ...`` are requirements that code checks."""
    output: str | None = None
    """File that the text is written into. Its ending says the form: .tex, .html, .md, .py and others."""
    parts: tuple[GivenPart, ...] = ()
    """Given subtasks, as a JSON list of {"id", "objective", "depends_on"}; parts=@FILE reads it from a file. Without: one for the whole."""

    @field_validator("output")
    @classmethod
    def _is_a_file(cls, value: str | None) -> str | None:
        if value is not None and (not Path(value).name or value.endswith("/") or "\0" in value or os.path.isdir(value)):
            raise ValueError(f"output={value!r} names no file; give it a name and an ending, such as out/lecture.tex")
        return value

    @model_validator(mode="after")
    def _can_be_checked(self) -> Self:
        requirements_in(self.brief, self._ending)
        try:
            Graph.of(self.brief, self.subtasks())
        except InvalidUsage as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def _ending(self) -> str:
        return Path(self.output or "").suffix.lower()

    def statement(self) -> str:
        form = FORMS.get(self._ending, f"a {self._ending} file")
        if self._ending:
            return f"{self.brief.strip()}\n\nForm of the text: {form}, with no code fences around it."
        return self.brief

    def subtasks(self) -> Sequence[Part]:
        return [Part(id=each.id, objective=each.objective, depends_on=each.depends_on) for each in self.parts]

    def output_path(self) -> Path | None:
        if self.output is None:
            return None
        return Path(self.output)

    def checks(self, text: str) -> dict[str, bool | None]:
        return {name: met(text) for name, met in requirements_in(self.brief, self._ending).items()}

    def expert_segment(self, asked: ToWrite) -> Segment:
        lines, is_last = _next_lines(asked.subtask, asked.written)
        status: Literal["complete", "ongoing"] = "complete" if is_last else "ongoing"
        return Segment(justify="the next lines of the subtask", text="\n".join(lines), status=status, mode="continue")

    def mistaken_segment(self, asked: ToWrite, right: Segment, rng: Random) -> Segment:  # noqa: ARG002 - the right one is enough
        return structs.replace(right, text=right.text.swapcase() or WRONG_LINE)

    def expert_validation(self, asked: ToValidate) -> Validation:
        lines, is_last = _next_lines(asked.subtask, asked.written)
        passes = asked.segment.splitlines() == lines and (asked.status == "complete") is is_last
        return Validation(reason="compared with the lines of the subtask", passes=passes)

    def expert_parts(self, asked: ToSplit) -> Parts:
        lines = _lines(asked.subtask)
        middle = (len(lines) + 1) // 2
        halves = ["\n".join(half) for half in (lines[:middle], lines[middle:]) if half]
        subtasks = [Part(id=number, objective=half, depends_on=()) for number, half in enumerate(halves, 1)]
        return Parts(subtasks=tuple(subtasks))

    def faults_in(self, asked: ToRank, text: str) -> int:
        return len(set(_lines(text)) ^ set(_lines(asked.subtask)))

    def flag(self, reply: Reply) -> str | None:
        r"""Flag control characters. They come from single backslashes in JSON: ``"\begin"`` is a backspace and ``egin``."""
        if isinstance(reply, Segment) and _BAD_CHARACTER.search(reply.text):
            return BAD_CHARACTER
        return None


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _next_lines(subtask: str, written: str) -> tuple[list[str], bool]:
    """Choose the lines of the next segment of a copy, and whether none is left after them."""
    lines, done = _lines(subtask), len(_lines(written))
    end = done - (-len(lines) // SEGMENTS)
    return lines[done:end], end >= len(lines)
