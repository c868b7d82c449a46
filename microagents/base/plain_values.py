"""Values of any library as values that JSON has, and back by their declared types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, ValuesView
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache, partial
from typing import Any, get_args, get_origin

import msgspec
from pydantic import BaseModel, PydanticUserError, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import to_jsonable_python
from pydantic_core.core_schema import DecimalSchema

from microagents.base.errors import InvalidUsage

MAX_DIGITS = 1_000
"""Places of a decimal that are written out; beyond them it has an exponent."""
_WRITTEN = (BaseModel, msgspec.Struct, date, timedelta, bytearray, range, dict, list, tuple)
"""Classes whose subclasses are written, too, such as the times of pandas."""
_MISSING = ("NaTType", "NAType")
"""Types of the missing values of pandas."""
_WRITERS = ("to_dicts", "to_pylist", "tolist")
"""Methods by which tables and arrays of polars, pyarrow and numpy give lists."""
_in_order = msgspec.json.Encoder(order="deterministic").encode


def plain(value: object, *, canonical: bool = False) -> Any:
    """Return a value as JSON-like values: of numpy, pandas and the like, models, structs, dates; a set is a list in order.

    Args:
        value: the value.
        canonical: write equal values alike: decimals without trailing zeros, sets inside structs in order, too.

    Raises:
        TypeError, ValueError, RecursionError: JSON lacks a part of it. A library's own type may raise anything.
    """
    parts = partial(plain, canonical=canonical)
    match value:
        case Mapping():
            return {_key(name): parts(each) for name, each in value.items()}
        case list() | tuple() | range() | ValuesView():
            return [parts(each) for each in value]
        case AbstractSet():
            return sorted(map(parts, value), key=_in_order)
        case Decimal():
            if canonical:
                return _digits_of(value)
            return str(value)
        case BaseModel():
            return parts(value.model_dump())
    if type(value).__name__ in _MISSING:
        return None
    found = msgspec.to_builtins(
        value,
        builtin_types=(Decimal,),
        enc_hook=_known,
        str_keys=True,
        order="deterministic" if canonical else None,
    )
    if isinstance(found, dict | list | Decimal):
        return parts(found)
    return found


def in_python(value: Any) -> Any:
    """Return a number or an array of numpy and the like, or a text of a class derived from `str`, as a value of Python.

    Any other value stays as it is.
    """
    if isinstance(value, str) and not isinstance(value, Enum):
        return str.__str__(value)
    if is_table(value):
        return _known(value)
    return value


def write_value(value: object) -> Any:
    """Write an instance of a class of pydantic's, or a number or an array of numpy, as JSON-like values that are read back.

    Raises:
        ValueError: pydantic does not know its class.
    """
    if is_table(value):
        return in_python(value)
    return to_jsonable_python(value, by_alias=True, round_trip=True)


def number_in(text: str) -> float | str:
    """Read a fraction in JSON as the float of the same value; as its text if there is none, so that no digit is lost."""
    number = float(text)
    if Decimal(repr(number)) == Decimal(text):
        return number
    return text


def read_as(kind: Any, found: Any) -> Any:
    """Read JSON-like values as a type of Python, msgspec or pydantic.

    Raises:
        Exception: they are not of the type, or have more parts. A validator of the user may raise anything.
    """
    read = msgspec.convert(found, kind, dec_hook=read_by_pydantic, str_keys=True)
    if not _is_whole(found, msgspec.json.decode(encode(read))):
        raise ValueError(f"they have more parts than a {kind}")
    return read


def read_cell(kind: Any, cell: Any) -> Any:
    """Read a cell of a table as a type: a text also as the number, date or JSON that it writes, and without blanks around it.

    It raises as `read_as`.
    """
    if isinstance(cell, str):
        for written in (cell, cell.strip()):
            with suppress(msgspec.ValidationError):
                return msgspec.convert(written, kind, strict=False, dec_hook=read_by_pydantic)
        cell = msgspec.json.decode(cell)
    return read_as(kind, cell)


def _is_whole(found: Any, written: Any) -> bool:
    """Return whether written values have every part of the JSON-like values that were found."""
    match found, written:
        case dict(), dict():
            return found.keys() <= written.keys() and all(_is_whole(found[name], written[name]) for name in found)
        case list(), list():
            return len(found) == len(written) and all(map(_is_whole, found, written))
    return True


class WithNumbers(GenerateJsonSchema):
    """Generator of schemas in which a decimal is a number: that a text is accepted, too, helps nobody who writes nothing but texts."""

    def decimal_schema(self, schema: DecimalSchema) -> dict[str, Any]:
        """Return the schema of a decimal."""
        found: dict[str, Any] = {"type": "number", "format": "decimal"}
        self.update_with_validations(found, schema, self.ValidationsMapping.numeric)
        return found


adapter_of: Callable[[Any], TypeAdapter[Any]] = lru_cache(maxsize=256)(TypeAdapter)
"""Returns pydantic's validator of a type."""


def read_by_pydantic(kind: type, found: object, *, strict: bool | None = None) -> Any:
    """Read JSON-like values as a type that pydantic knows, whether they name fields by alias or not.

    Raises:
        Exception: they are not of the type. A validator of the user may raise anything.
    """
    return adapter_of(kind).validate_json(msgspec.json.encode(found), strict=strict, by_alias=True, by_name=True)


def field_names(kind: Any) -> tuple[str, ...]:
    """Name the fields of a struct, model or dataclass; none of any other type."""
    if issubclass(kind, msgspec.Struct):
        return tuple(kind.__struct_fields__)
    if issubclass(kind, BaseModel):
        return tuple(kind.model_fields)
    if is_dataclass(kind):
        return tuple([field.name for field in fields(kind)])
    return tuple([field.name for field in getattr(kind, "__attrs_attrs__", ())])


def values_of(value: Any) -> dict[str, Any]:
    """Return the values of a struct, model or dataclass by their names in JSON, also those beside a model's fields.

    None of any other value.
    """
    if isinstance(value, BaseModel):
        return dict(value)
    kind = type(value)
    names = field_names(kind)
    written = kind.__struct_encode_fields__ if isinstance(value, msgspec.Struct) else names
    return {name: getattr(value, field) for name, field in zip(written, names, strict=True)}


def read_fields(kind: Any, found: Any) -> dict[str, Any]:
    """Read JSON-like values as a struct, and return its fields; raises as `read_as`."""
    return values_of(read_as(kind, found))


def reply_in(written: bytes, kind: Any) -> Any:
    """Read a reply from JSON: its fields in their declared types; JSON-like values if its class is None, or another one by now."""
    found = msgspec.json.decode(written)
    with suppress(Exception):
        if kind is None:
            return found
        return read_fields(kind, found)
    return found


def _digits_of(number: Decimal) -> str:
    """Write a decimal so that equal ones are the same text: 1.50 as 1.5."""
    if not number:
        return "0"
    text = f"{number:f}" if abs(number.adjusted()) < MAX_DIGITS else str(number)
    if "." in text:
        return text.rstrip("0").rstrip(".")
    return text


def unwritable(hint: Any) -> type | None:
    """Return the class in an annotation whose values JSON lacks; None if there is none, as far as types say it."""
    for part in get_args(hint):
        if (found := unwritable(part)) is not None:
            return found
    if not isinstance(hint, type) or get_origin(hint) is not None or getattr(hint, "_is_protocol", False):
        return None
    if hint is object or issubclass(hint, _WRITTEN) or field_names(hint) or is_table(hint):
        return None
    kind: type = hint
    try:
        TypeAdapter(kind)
    except PydanticUserError:
        return kind
    return None


def is_table(value: object) -> bool:
    """Return whether a value, or the values of a class, are tables or arrays of pandas, polars, pyarrow or numpy."""
    return any(hasattr(value, name) for name in ("iloc", *_WRITERS))


def refuse_twice(names: Sequence[str], where: str) -> None:
    """Refuse a name that two columns have.

    Raises:
        InvalidUsage: there is one.
    """
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InvalidUsage(f"the column {min(twice)!r} stands twice in {where}; nothing was started; rename one")


def _key(name: object) -> str:
    found = plain(name)
    if isinstance(found, str):
        return found
    return msgspec.json.encode(found).decode()


def _known(value: Any) -> Any:
    """Return a value that msgspec does not know as one of plainer types: of a model the form in JSON that it reads back."""
    if hasattr(value, "iloc"):  # of pandas, whose missing values are of several types
        filled = value.astype(object).where(value.notna(), None)
        if hasattr(value, "columns"):
            return filled.to_dict("records")
        return filled.to_dict()
    if getattr(getattr(value, "dtype", None), "kind", "") in ("M", "m"):  # times of numpy, which are else numbers
        return value.astype(str).tolist()
    writer = next((getattr(value, name) for name in _WRITERS if hasattr(value, name)), None)
    if writer is None:
        return to_jsonable_python(value)
    found = writer()
    if type(found) is type(value):  # a number of numpy that is wider than any of Python
        return float(found)
    return found


encode = msgspec.json.Encoder(enc_hook=_known).encode
"""Write a value of any library as JSON; a number that it lacks is null."""


def jsonable(value: object) -> Any:
    """Return a value as a journal keeps it: a date and a decimal are texts, and a number that JSON lacks is None."""
    try:
        written = encode(value)
    except Exception:  # noqa: BLE001 - missing values of pandas, say, of which each library raises something else
        written = encode(plain(value))
    return msgspec.json.decode(written)
