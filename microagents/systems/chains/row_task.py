"""A row of a table as a task: one question, whose answer is the row's new columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from operator import not_
from typing import Any, ClassVar, Generic, Literal, Self

import msgspec
from pydantic import Field, model_validator

from microagents.base.errors import InvalidDefinition, InvalidUsage
from microagents.base.plain_values import is_table, jsonable, read_cell, read_fields, refuse_twice
from microagents.replies.chat import Prompt
from microagents.replies.model_replies import as_reply, hints_of
from microagents.replies.reply import Reply, differs
from microagents.replies.reply_fields import fields_of, voted_fields
from microagents.replies.reply_forms import encode_reply, forms_of
from microagents.task import A, ChainTask, Task

Row = dict[str, Any]
"""Values by the name of their column."""
REPLY = "\0reply"
"""Column of the reply in the last state; no file can have it."""
_NO_TABLE = (
    "rows() takes a frame of pandas or polars, a table of pyarrow, or a list of mappings from columns to values that JSON has; nothing "
    "was started, since it got"
)
FIRST_ROWS = 5
"""Number of rows that a person sees with their prompts and replies before the others are paid."""


class RowTask(ChainTask[Row, A, Row], Generic[A]):
    """One question about a row, whose reply is its new columns: ``class Clean(RowTask[Cleaned])``.

    Only ``prompt(row)`` is needed; ``oracle(row)``, ``flag(row, reply)`` and ``verify(row, reply)`` are as in any `ChainTask`.
    """

    required_methods: ClassVar[tuple[str, ...]] = ("prompt",)
    has_one_question = True
    vote_by: ClassVar[Literal["field", "row"]] = "field"
    """Parts that are voted on: each field of the reply over the same samples, until all are decided at once; or the reply as a whole.

    Replies with a ``vote()`` of their own are voted on as a whole."""
    together: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Fields that vote together, because their values belong to each other: ``(("street", "city"),)``."""

    row: Row = Field(min_length=1)
    """The columns of the row: texts, if it is from a CSV file."""
    gold: dict[str, str] = Field(default={}, exclude_if=not_)
    """Columns that hold right values, each with the field of the reply that it judges. ``prompt(row)`` does not get them."""

    @classmethod
    def rows(cls, table: Iterable[Mapping[str, Any]] | Any, **options: Any) -> list[Self]:
        """Make a task for each row of a table: a frame of pandas or polars, a table of pyarrow, or mappings.

        Values are as in a file of JSON lines, so a date is a text.

        Args:
            table: the rows.
            options: other fields of the task, the same for all rows, such as ``gold``.

        Raises:
            InvalidUsage: it is no table, a column stands in it twice, or a gold column is missing, or empty in every row.
        """
        tasks = [cls(row=each, **options) for each in _mappings_of(table)]
        check_gold(tasks, "the table")
        return tasks

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

    @model_validator(mode="after")
    def _with_readable_gold(self) -> Self:
        _ = self.gold_values
        return self

    @cached_property
    def gold_values(self) -> dict[str, Any]:
        """Right values by field, without those whose cells are empty.

        Raises:
            ValueError: a gold column names no voted field, or one that has another, or its cell has no value of the field's type.
        """
        if not self.gold:
            return {}
        kind, found = self.reply_type(), dict[str, Any]()
        fields = {each.encode_name: each for each in fields_of(kind) if each.name in voted_fields(kind)}
        hints = hints_of(kind)
        named = list(self.gold.values())
        for column, name in self.gold.items():
            if name not in fields or named.count(name) > 1:
                raise ValueError(
                    f"the gold column {column!r} must name a voted field of the reply that no other one names, not {name!r}; voted are "
                    f"{', '.join(fields)}: --gold COLUMN=FIELD"
                )
            if column not in self.judging_columns:
                continue
            cell, field = self.row[column], fields[name]
            try:
                found[field.name] = read_cell(hints[field.name], cell)
            except Exception:  # noqa: BLE001 - a validator of the user may raise anything
                raise ValueError(
                    f"the gold column {column!r} has {cell!r:.80}, and the field {name} allows {forms_of(kind)[name]}"
                ) from None
        return found

    @property
    def judging_columns(self) -> list[str]:
        """Gold columns whose cells are not empty."""
        cells = {column: self.row.get(column) for column in self.gold}
        texts = {column: "" if cell is None else str(cell) for column, cell in cells.items()}
        return [column for column, text in texts.items() if text.strip()]

    def right_fields(self, state: Row, /) -> dict[str, Any]:
        """The gold values; without gold columns the values of the oracle's reply."""
        if self.gold:
            return self.gold_values
        return super().right_fields(state)

    def correct(self, state: Row, reply: A, /) -> bool | None:
        """Return whether a reply has all gold values; without gold columns, whether it casts the same vote as the oracle's."""
        if not self.gold:
            return super().correct(state, reply)
        if not self.gold_values:
            return None
        given = as_reply(reply)
        return not any(differs(given, name, right) for name, right in self.gold_values.items())

    def start(self) -> Row:
        """The row without its gold columns."""
        return {name: value for name, value in self.row.items() if name not in self.gold}

    def done(self, state: Row, /) -> bool:
        """Whether the row has its reply."""
        return REPLY in state

    def steps(self) -> int:
        """One: the question about the row."""
        return 1

    def advance(self, state: Row, reply: A, /) -> Row:  # noqa: ARG002 - the reply is all
        """Put the reply in the place of the row."""
        return {REPLY: msgspec.json.decode(encode_reply(as_reply(reply)))}

    def result(self, state: Row, /) -> Row:
        """The reply by its fields: the new columns."""
        return dict(state[REPLY])


def _mappings_of(table: Any) -> list[Row]:
    """Read the rows of a table as JSON-like values.

    Raises:
        InvalidUsage: it is no table, or has no such values, or a column twice.
    """
    names = [str(each) for each in getattr(table, "column_names", getattr(table, "columns", ()))]
    refuse_twice(names, "the table")
    try:
        rows = table if is_table(table) else list(map(dict, table))
        return [dict(each) for each in jsonable(rows)]
    except Exception as error:  # noqa: BLE001 - a library's own type may raise anything
        reason = " ".join(str(error).split())
        raise InvalidUsage(f"{_NO_TABLE} a {type(table).__name__}: {reason}") from None


def check_gold(rows: Sequence[Task], source: str) -> None:
    """Refuse gold columns that judge none of the rows.

    Args:
        rows: the rows; tasks of another kind have no such columns.
        source: the name of their table, for messages.

    Raises:
        InvalidUsage: a gold column is missing, or empty in every row.
    """
    if not rows or not isinstance(rows[0], RowTask):
        return
    first = rows[0]
    for column in first.gold:
        judging = [each.judging_columns for each in rows if isinstance(each, RowTask)]
        if not any(column in columns for columns in judging):
            raise InvalidUsage(
                f"the gold column {column!r} of {source} is missing, or empty in every row; the first row has {', '.join(first.row)}; "
                "nothing was started"
            )
