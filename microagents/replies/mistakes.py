"""Plausible wrong replies, derived from right ones by the types of their fields."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from random import Random
from typing import Any, TypeVar

import msgspec
from msgspec import inspect as types
from pydantic import BaseModel

from microagents.base.plain_values import in_python
from microagents.replies.reply import Reply, vote_of
from microagents.replies.reply_fields import fields_of
from microagents.replies.reply_forms import decoder_of, encode_reply

A = TypeVar("A", bound=Reply)
_TRIES = 100
"""Attempts per field: bounds in its annotation may exclude a new value."""


def one_field_altered(right: A, rng: Random) -> A:
    """Change one field to another value of its type, so that the vote differs."""
    fields = fields_of(type(right))
    for field in rng.sample(fields, len(fields)):
        for _ in range(_TRIES):
            try:  # a mistake has to respect the bounds in the annotation
                value = _altered(in_python(getattr(right, field.name)), field.type, rng)
                altered = encode_reply(msgspec.structs.replace(right, **{field.name: value}))
                wrong: A = decoder_of(type(right)).decode(altered)
            except (ValueError, OverflowError):
                continue
            if vote_of(wrong) != vote_of(right):
                return wrong
    raise ValueError(f"no field of {right!r} can be altered; define the method `mistake` of the task")


def _altered(value: Any, info: types.Type, rng: Random) -> Any:
    match info:
        case types.Metadata():
            return _altered(value, info.type, rng)
        case types.LiteralType(values=values) | types.EnumType(cls=values):
            return rng.choice([other for other in values if other != value] or [value])
        case types.UnionType():
            return _altered(value, _member(value, info), rng)
        case types.StructType() if info.fields:
            field = rng.choice(info.fields)
            return msgspec.structs.replace(value, **{field.name: _altered(getattr(value, field.name), field.type, rng)})
    match value:
        case BaseModel():
            name = rng.choice(list(type(value).model_fields))
            changed = {**dict(value), name: _altered(getattr(value, name), types.AnyType(), rng)}
            return type(value).model_validate(changed, by_name=True)
        case bool():
            return not value
        case int():
            return value + rng.choice((-10, -2, -1, 1, 2, 10))
        case float():
            return value * rng.choice((0.1, 0.9, 1.1, 10.0)) + rng.choice((-1.0, 1.0))
        case Decimal():
            return value + rng.choice((-1, 1)) * Decimal(1).scaleb(int(value.as_tuple().exponent) + rng.randrange(3))
        case str():
            return rng.choice((value[::-1], f"{value} {rng.randrange(10)}".strip()))
        case date():
            return value + timedelta(days=rng.choice((-30, -1, 1, 30)))
        case list() | tuple() if value:
            items, at = list(value), rng.randrange(len(value))
            items[at] = _altered(items[at], _item_type(info, at, items[at]), rng)
            return type(value)(items)
    return value


def _item_type(info: types.Type, at: int, item: Any) -> types.Type:
    if isinstance(info, types.TupleType):
        return info.item_types[at]
    if isinstance(info, types.CollectionType):
        return info.item_type
    return types.type_info(type(item))


def _member(value: Any, union: types.UnionType) -> types.Type:
    literal = next((part for part in union.types if isinstance(part, types.LiteralType) and value in part.values), None)
    if literal is None:
        return types.type_info(type(value))
    return literal
