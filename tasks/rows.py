"""A table to fill in, without a file of code: a question with the names of columns in it, and the columns of the reply."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from functools import lru_cache
from keyword import iskeyword
from types import new_class
from typing import Annotated, Any, Literal, Self

import msgspec
from pydantic import Field, ModelWrapValidatorHandler, field_validator, model_validator

from microagents.base.errors import InvalidUsage
from microagents.base.messages import make_on_demand
from microagents.replies.chat import Prompt
from microagents.replies.media import File
from microagents.replies.reply import Reply
from microagents.systems.chains.row_task import Row, RowTask

TYPES: dict[str, Any] = {"text": str, "int": int, "decimal": Decimal, "date": date, "bool": bool}
_COLUMN = re.compile(r"(?P<name>[^\W\d]\w*)\s*(?::\s*(?P<type>.*?))?\s*(?P<list>\[\])?\s*(?P<optional>\?)?", re.DOTALL)
_BRACES = re.compile(r"\{\{|\}\}|\{\s*(?P<column>[^{}\s][^{}]*?)\s*\}|(?P<alone>[{}])")
"""Braces of a question: doubled, around the name of a column, or alone, which is refused."""


class Filled(Reply, frozen=True):
    """The columns that were asked for."""


class FillTable(RowTask[Filled]):
    """Ask one question about each row of ``--inputs``, and add the columns of the reply. It needs a real model: ``--model``."""

    format = "json"

    ask: Annotated[str, Field(min_length=1)]
    """The question, with the names of columns in braces: 'Split {place} into its name and country.' Without any, the row follows it.
    {{ and }} are braces."""
    columns: Annotated[str, Field(min_length=1)]
    """The columns of the reply: 'name, year: int?, tags: text[], kind: city|village'. A type is text, int, decimal, date, bool or words
    with | between them; [] makes a list of it, and ? lets it be missing."""

    files: str = ""
    """Columns with the path, or an https address, of a picture or a PDF: 'scan' or 'front, back'. The question gets the files; a cell
    may be empty."""

    def __new__(cls, /, **options: Any) -> Self:
        """Make a task of the class that has the columns."""
        if cls is FillTable and isinstance(options.get("columns"), str):
            made: Self = super().__new__(_rows_with(options["columns"]))
            return made
        return super().__new__(cls)

    def __reduce__(self) -> tuple[Any, ...]:
        """Let another process make it again of its options, which say its class."""
        return _of_options, (self.model_dump(),)

    @model_validator(mode="wrap")
    @classmethod
    def _with_its_reply(cls, given: Any, handler: ModelWrapValidatorHandler[FillTable]) -> FillTable:
        if cls is not FillTable or not isinstance(given, dict) or not isinstance(given.get("columns"), str):
            return handler(given)
        return cls(**given)

    @field_validator("ask")
    @classmethod
    def _has_columns_in_its_braces(cls, ask: str) -> str:
        if not ask.strip():
            raise ValueError("ask must be a question, not blanks")
        columns_in(ask)
        return ask

    def prompt(self, row: Row, /) -> Prompt:
        """Fill the columns of the row into the question.

        Raises:
            InvalidUsage: the row lacks a column of files, or its file cannot be read or is neither a picture nor a PDF.
        """
        columns = [each.strip() for each in self.files.split(",") if each.strip()]
        for each in columns:
            if each not in row:
                raise InvalidUsage(f"files names the column {each!r}, and the row has {', '.join(row)}")
        paths = [row[each] for each in columns]
        files = tuple([File(str(path)) for path in paths if path])
        if columns_in(self.ask):
            return Prompt(user=filled(self.ask, row), files=files)
        shown = {name: value for name, value in row.items() if name not in columns}
        return Prompt(user=filled(self.ask, shown) if shown else self.ask, files=files)


def _of_options(options: dict[str, Any]) -> FillTable:
    return FillTable(**options)


def filled(ask: str, row: Row) -> str:
    """Fill the columns of a row into a question; the row follows a question that names none.

    Raises:
        KeyError: the question names a column that the row does not have.
    """
    asked = _BRACES.sub(lambda found: _text(row[found["column"]]) if found["column"] else found[0][0], ask)
    if columns_in(ask):
        return asked
    lines = [f"{name}: {_text(value)}" for name, value in row.items()]
    return "\n".join([asked, "", *lines])


def columns_in(ask: str) -> list[str]:
    """List the columns that a question names, each once.

    Raises:
        ValueError: a brace stands alone, or around nothing.
    """
    braces = list(_BRACES.finditer(ask))
    for found in braces:
        if found["alone"]:
            raise ValueError(
                f"{ask[found.start() :]!r:.40} in ask has a brace that is not around the name of a column; write {{{{ and }}}} for braces"
            )
    return list(dict.fromkeys([found["column"] for found in braces if found["column"]]))


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


@lru_cache(maxsize=256)
def reply_with(columns: str) -> type[Filled]:
    """Make the class of replies with some columns.

    Raises:
        ValueError: the columns cannot be read.
    """
    annotations: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for column in columns.split(","):
        found = _COLUMN.fullmatch(column.strip())
        if found is None:
            raise ValueError(
                f"{column.strip()!r:.80} in columns cannot be read; write names of letters, digits and _, each with a type unless it is "
                "a text: 'name, year: int?, kind: city|village'"
            )
        name = found["name"]
        if name in annotations:
            raise ValueError(f"columns name {name!r} twice; rename one")
        if name.startswith("_") or hasattr(Filled, name) or iskeyword(name):
            raise ValueError(f"{name!r} in columns is a name with a meaning in Python, or here; add a letter to it")
        annotations[name] = _type_of(found, column.strip())
        if found["optional"]:
            annotations[name] = annotations[name] | None
            defaults[name] = None
    body = {"__annotations__": annotations, **defaults}
    made: type[Filled] = _named(Filled, f".columns_{columns.encode().hex()}", body, frozen=True, kw_only=True)
    return made


def _type_of(found: re.Match[str], column: str) -> Any:
    word = found["type"] or "text"
    values = [each.strip() for each in word.split("|")]
    kind: Any
    if word in TYPES:
        kind = TYPES[word]
    elif len(values) > 1 and all(values) and len(set(values)) == len(values) and TYPES.keys().isdisjoint(values):
        kind = Literal[tuple(values)]
    else:
        raise ValueError(
            f"{column!r:.80} in columns has the type {word!r:.40}; known are {', '.join(TYPES)}, and other words, each once, with | "
            "between them"
        )
    if found["list"]:
        return list[kind]
    return kind


def _named(base: type[Any], made: str, body: dict[str, Any], **options: Any) -> Any:
    """Make a class that is found again at an address in this module."""
    body |= {"__module__": __name__, "__qualname__": f"{base.__qualname__}{made}", "__doc__": base.__doc__}
    return new_class(base.__name__, (base,), options, lambda namespace: namespace.update(body))


@lru_cache(maxsize=256)
def _rows_with(columns: str) -> Any:
    """Make the class of tasks with some columns. At its address stands `FillTable`, which makes it again of the same options."""
    reply = reply_with(columns)
    return _named(FillTable, "", {"reply_type": classmethod(lambda _: reply)})


make_on_demand("columns", lambda _, text: reply_with(bytes.fromhex(text).decode()))
