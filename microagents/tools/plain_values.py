"""Values of any library as values that JSON has."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import is_dataclass
from decimal import Decimal
from functools import partial
from typing import Any, get_args, get_origin

import msgspec
from pydantic import BaseModel, PydanticUserError, TypeAdapter
from pydantic_core import to_jsonable_python

MAX_DIGITS = 1_000
"""Places of a decimal that are written out; beyond them it has an exponent."""
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
        case dict():
            return {_key(name): parts(each) for name, each in value.items()}
        case list() | tuple():
            return [parts(each) for each in value]
        case AbstractSet():
            return sorted(map(parts, value), key=_in_order)
        case Decimal():
            return _digits_of(value) if canonical else str(value)
        case BaseModel():
            return parts(value.model_dump())
    found = msgspec.to_builtins(
        value,
        builtin_types=(Decimal,),
        enc_hook=_known,
        str_keys=True,
        order="deterministic" if canonical else None,
    )
    return parts(found) if isinstance(found, dict | list | Decimal) else found


def _digits_of(number: Decimal) -> str:
    """Write a decimal so that equal ones are the same text: 1.50 as 1.5."""
    if not number:
        return "0"
    text = f"{number:f}" if abs(number.adjusted()) < MAX_DIGITS else str(number)
    return text.rstrip("0").rstrip(".") if "." in text else text


def unwritable(hint: Any) -> type | None:
    """Return the class in an annotation whose values JSON lacks; None if there is none, as far as types say it."""
    for part in get_args(hint):
        if (found := unwritable(part)) is not None:
            return found
    is_plain = not isinstance(hint, type) or get_origin(hint) is not None or getattr(hint, "_is_protocol", False)
    if is_plain or hint is object or issubclass(hint, BaseModel | msgspec.Struct) or hasattr(hint, "__attrs_attrs__"):
        return None
    if is_dataclass(hint) or any(hasattr(hint, name) for name in ("iloc", *_WRITERS)):
        return None
    kind: type = hint
    try:
        TypeAdapter(kind)
    except PydanticUserError:
        return kind
    return None


def _key(name: object) -> str:
    found = plain(name)
    return found if isinstance(found, str) else msgspec.json.encode(found).decode()


def _known(value: Any) -> Any:
    """Return a value that msgspec does not know as one of plainer types."""
    if isinstance(value, BaseModel):
        return value.model_dump()
    if hasattr(value, "iloc"):  # of pandas, whose missing values are of several types
        filled = value.astype(object).where(value.notna(), None)
        return filled.to_dict("records") if hasattr(value, "columns") else filled.to_dict()
    if getattr(getattr(value, "dtype", None), "kind", "") in ("M", "m"):  # times of numpy, which are else numbers
        return value.astype(str).tolist()
    writer = next((getattr(value, name) for name in _WRITERS if hasattr(value, name)), None)
    return to_jsonable_python(value) if writer is None else writer()
