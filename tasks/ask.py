"""A free question, answered in words."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from microagents.replies.reply import Reply
from microagents.systems.questions.problem import Problem
from microagents.tasks.given_text import GivenText

MAX_CHARS = 100_000


class Answer(Reply, frozen=True):
    """An answer in words. Answers are compared as they are written, so ask for a short form of them."""

    answer: str


class Ask(Problem[Answer]):
    """Answer a question. It needs a real model: ``--model``."""

    text: Annotated[GivenText, Field(max_length=MAX_CHARS)]
    """The question, complete in itself; text=@FILE reads it from a file."""

    def statement(self) -> str:
        return self.text
