"""A text to a brief: a lecture, a page, a program."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Self

import msgspec
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from microagents.documents.document import Document
from microagents.documents.questions import Part, Segment
from microagents.documents.subtasks import Graph
from microagents.errors import InvalidUsage
from microagents.replies.chat import Reply
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
BAD_CHARACTER = "bad_character"
_BAD_CHARACTER = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]|\r(?!\n)")


class GivenPart(BaseModel):
    """A given subtask."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: int
    objective: str
    depends_on: tuple[int, ...] = ()
    """Ids of the subtasks whose text must be there before."""


class Writing(Document):
    """Write a text to a brief. There is no simulated model for it: name real ones with ``--model``."""

    brief: Annotated[str, Field(max_length=MAX_CHARS)]
    """The brief; brief=@FILE reads it from a file. Lines ``- check: ...`` are requirements that code checks."""
    output: str | None = None
    """File that the text is written into. Its ending says the form: .tex, .html, .md, .py and others."""
    parts: tuple[GivenPart, ...] = ()
    """Given subtasks, as a JSON list of {"id", "objective", "depends_on"}; parts=@FILE reads it from a file. Without: one for the whole."""

    @field_validator("brief")
    @classmethod
    def _says_something(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("brief is blank; write it, or name a file that contains it: -o brief=@FILE")
        return value

    @field_validator("output")
    @classmethod
    def _is_a_file(cls, value: str | None) -> str | None:
        if value is not None and (not Path(value).name or value.endswith("/") or "\0" in value or Path(value).is_dir()):
            raise ValueError(f"output={value!r} names no file; give it a name and an ending, such as out/lecture.tex")
        return value

    @field_validator("parts", mode="before")
    @classmethod
    def _as_json(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise ValueError(f'parts is no JSON list of {{"id", "objective", "depends_on"}}: {error}') from None

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
        return f"{self.brief.strip()}\n\nForm of the text: {form}, with no code fences around it." if self._ending else self.brief

    def subtasks(self) -> Sequence[Part]:
        return [Part(id=each.id, objective=each.objective, depends_on=each.depends_on) for each in self.parts]

    def output_path(self) -> Path | None:
        return None if self.output is None else Path(self.output)

    def checks(self, text: str) -> dict[str, bool | None]:
        return {name: met(text) for name, met in requirements_in(self.brief, self._ending).items()}

    def flag(self, reply: Reply) -> str | None:
        r"""Flag control characters. They come from single backslashes in JSON: ``"\begin"`` is a backspace and ``egin``."""
        return BAD_CHARACTER if isinstance(reply, Segment) and _BAD_CHARACTER.search(reply.text) else None
