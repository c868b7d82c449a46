"""A row of a table as a task: one question, whose answer is the row's new columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, ClassVar, Generic, Literal, Self

import msgspec
from pydantic import Field

from microagents.base.errors import InvalidDefinition
from microagents.base.plain_values import is_table, jsonable, read_fields
from microagents.replies.chat import A, Prompt, Reply, voted_fields
from microagents.task import ChainTask

Row = dict[str, Any]
"""Values by the name of their column."""
REPLY = "\0reply"
"""Column of the reply in the last state; no file can have it."""


class RowTask(ChainTask[Row, A, Row], Generic[A]):
    """One question about a row, whose reply is its new columns: ``class Clean(RowTask[Cleaned])``.

    Only ``prompt(row)`` is needed; ``oracle(row)``, ``flag(row, reply)`` and ``verify(row, reply)`` are as in any `ChainTask`.
    """

    required_methods: ClassVar[tuple[str, ...]] = ("prompt",)
    vote_by: ClassVar[Literal["field", "row"]] = "field"
    """Parts that are voted on: each field of the reply over the same samples, until all are decided at once; or the reply as a whole.

    Replies with a ``vote()`` of their own are voted on as a whole."""
    together: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Fields that vote together, because their values belong to each other: ``(("street", "city"),)``."""

    row: Row = Field(min_length=1)
    """The columns of the row: texts, if it is from a CSV file."""

    @classmethod
    def rows(cls, table: Iterable[Mapping[str, Any]] | Any, **options: Any) -> list[Self]:
        """Make a task for each row of a table: a frame of pandas or polars, a table of pyarrow, or mappings.

        Values are as in a file of JSON lines, so a date is a text.

        Args:
            table: the rows.
            options: other fields of the task, the same for all rows.
        """
        rows = table if is_table(table) else list(map(dict, table))
        return [cls(row=each, **options) for each in jsonable(rows)]

    @classmethod
    def read_result(cls, found: Any) -> Row:
        """Read a reply by its fields."""
        return read_fields(cls.reply_type(), found)

    @classmethod
    def reply_type(cls) -> type[Reply]:
        """Return the class of replies to its question.

        Raises:
            InvalidDefinition: the class names no types, or ``together`` names a field that is not voted on, or one twice.
        """
        reply = super().reply_type()
        grouped = list(chain.from_iterable(cls.together))
        for name in grouped:
            if name not in voted_fields(reply) or grouped.count(name) > 1:
                raise InvalidDefinition(
                    f"together of {cls.__name__} must name voted fields of {reply.__name__}, each once; {name!r} is none, or is there "
                    f"twice; voted are {', '.join(voted_fields(reply))}"
                )
        return reply

    def fields_of_vote(self, reply: type[Reply], /) -> tuple[tuple[str, ...], ...]:
        """Name the voted fields of its replies, each alone or with those that it votes together with."""
        if self.vote_by == "row" or reply is not self.reply_type() or reply.vote is not Reply.vote:
            return ()
        grouped = list(chain.from_iterable(self.together))
        alone = [(name,) for name in voted_fields(reply) if name not in grouped]
        return *self.together, *alone

    def prompt(self, row: Row, /) -> Prompt:
        """Ask the question about the row. The format instructions are added to it."""
        raise NotImplementedError

    def start(self) -> Row:
        """The row."""
        return self.row

    def done(self, state: Row, /) -> bool:
        """Whether the row has its reply."""
        return REPLY in state

    def steps(self) -> int:
        """One: the question about the row."""
        return 1

    def advance(self, state: Row, reply: A, /) -> Row:  # noqa: ARG002 - the reply is all
        """Put the reply in the place of the row."""
        return {REPLY: msgspec.to_builtins(reply)}

    def result(self, state: Row, /) -> Row:
        """The reply by its fields: the new columns."""
        return dict(state[REPLY])
