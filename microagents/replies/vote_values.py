"""Values as votes compare them: with a hash, and texts in one form of Unicode."""

from __future__ import annotations

import unicodedata
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import is_dataclass
from decimal import Decimal
from functools import partial
from operator import is_

from msgspec import Struct, structs
from pydantic import BaseModel

from microagents.base.errors import InvalidDefinition
from microagents.base.plain_values import in_python, is_table, values_of


def composed(value: Hashable) -> Hashable:
    """Return a value with its texts in Unicode's composed form (NFC): texts that differ only in it look alike."""
    match value:
        case str():
            if value.isascii():
                return value
            return unicodedata.normalize("NFC", value)
        case tuple() | frozenset():
            parts = [composed(each) for each in value]
            if all(map(is_, parts, value)):
                return value
            return type(value)(parts)
        case Struct():
            changed = {name: composed(getattr(value, name)) for name in value.__struct_fields__}
            is_same = all(changed[name] is getattr(value, name) for name in changed)
            if is_same:
                return value
            return structs.replace(value, **changed)
    return value


def hashable(value: object, *, typed: bool = False) -> Hashable:
    """Return the value itself if it has a hash, else its contents as tuples and frozen sets.

    Args:
        value: the value.
        typed: return the contents in any case, each number with its type: ``1``, ``True`` and ``1.0`` are equal.
    """
    if not typed:
        with suppress(TypeError):
            hash(value)
            return value
    if is_table(value):
        value = in_python(value)
    parts = partial(hashable, typed=typed)
    match value:
        case bool() | int() | float() | Decimal():
            return type(value), value
        case dict():
            return frozenset((key, parts(item)) for key, item in value.items())
        case set() | frozenset():
            return frozenset(map(parts, value))
        case list() | tuple():
            return tuple(map(parts, value))
        case BaseModel() | Struct():
            return type(value), parts(values_of(value))
    if is_dataclass(value):
        return type(value), parts(values_of(value))
    if typed:
        return hashable(value)
    raise InvalidDefinition(f"{type(value).__name__} {value!r} cannot be compared in a vote; override vote()")
