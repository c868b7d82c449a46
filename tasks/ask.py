"""A free question, answered in words."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from microagents.replies.reply import Reply
from microagents.systems.questions.problem import Problem

MAX_CHARS = 100_000


class Answer(Reply, frozen=True):
    """An answer in words. Answers are compared as they are written, so ask for a short form of them."""

    answer: str


class Ask(Problem[Answer]):
    """Answer a question. It needs a real model: ``--model``."""

    text: Annotated[str, Field(min_length=1, max_length=MAX_CHARS)]
    """The question, complete in itself; text=@FILE reads it from a file."""

    @field_validator("text")
    @classmethod
    def _says_something(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("text is blank; write the question, or name a file that contains it: -o text=@FILE")
        return value

    def statement(self) -> str:
        return self.text
