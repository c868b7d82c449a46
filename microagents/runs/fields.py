"""Options of tasks and strategies in words: the values that each accepts, its default and its meaning."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, get_type_hints

from msgspec import Struct
from pydantic import BaseModel, PydanticUserError

from microagents.base.docstrings import described_fields
from microagents.base.plain_values import WithNumbers, adapter_of

NOT_BLANK = r"\S"
"""The pattern of texts that have more than blanks."""
_NOUNS = {
    "integer": ("an integer", "integers"),
    "number": ("a number", "numbers"),
    "string": ("a text", "texts"),
    "boolean": ("true or false", "true or false"),
    "object": ("an object, as JSON", "objects"),
    "null": ("nothing", "nothing"),
}
_FORMATS = {"date": "a date such as 2026-01-31", "date-time": "a time such as 2026-01-31T08:00:00", "path": "a path"}


class FieldInWords(Struct, frozen=True, kw_only=True):
    """One option in words."""

    name: str
    values: str
    """The values that it accepts; empty if they cannot be put into words."""
    default: str | None
    """Its default as a user writes it; None without one."""
    required: bool
    meaning: str
    """The docstring of the field."""


def fields_in_words(model: type[BaseModel]) -> list[FieldInWords]:
    """All options of a task or a strategy, the class's own before its bases'."""
    schema = _json_schema(model)
    own = model.__annotations__
    fields = sorted(described_fields(model).items(), key=lambda field: field[0] not in own)
    found = []
    for name, info in fields:
        default = _property(schema, name).get("default")
        meaning = (info.description or "").replace("`", "")
        found.append(
            FieldInWords(
                name=name,
                values=_allowed(schema, name) or "",
                default=None if default is None else _written(default),
                required=info.is_required(),
                meaning=" ".join(meaning.split()),
            )
        )
    return found


@lru_cache(maxsize=256)
def annotations_of(model: type) -> Mapping[str, Any]:
    """Return the types of the fields of a model or of a typed dict, by name."""
    if issubclass(model, BaseModel):
        return {name: info.annotation for name, info in model.model_fields.items()}
    return get_type_hints(model, include_extras=True)


def allowed_values(model: type, name: str) -> str | None:
    """Return the values that a field accepts, such as "an integer from 1 to 64"; None if they cannot be put into words."""
    return _allowed(_json_schema(model), name)


def _json_schema(model: type) -> dict[str, Any]:
    try:
        return adapter_of(model).json_schema(schema_generator=WithNumbers)
    except PydanticUserError:  # a field has a type that JSON does not have
        return {}


def _property(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = schema.get("properties", {}).get(name, {})
    return found


def _allowed(schema: Mapping[str, Any], name: str) -> str | None:
    return _in_words(_property(schema, name), schema.get("$defs", {}))


def _in_words(schema: Mapping[str, Any], defined: Mapping[str, Any]) -> str | None:
    match schema:
        case {"$ref": str(reference)}:
            return _in_words(defined[reference.rpartition("/")[2]], defined)
        case {"enum": list(values)}:
            return f"one of {', '.join(map(_written, values))}"
        case {"const": value}:
            return _written(value)
        case {"anyOf": list(members)}:
            words = [_in_words(each, defined) for each in members if each.get("type") != "null"]
            if None in words:
                return None
            return " or ".join(dict.fromkeys(filter(None, words)))
        case {"type": "array", "items": {"type": str(kind)}} if kind in _NOUNS:
            return f"a list of {_NOUNS[kind][1]}, as JSON"
        case {"type": "array"}:
            return "a list, as JSON"
        case {"type": "string", "format": str(form)} if form in _FORMATS:
            return _FORMATS[form]
        case {"type": str(kind)} if kind in _NOUNS:
            return " ".join([_NOUNS[kind][0], *_bounds(schema)])
    return None


def _bounds(schema: Mapping[str, Any]) -> Iterator[str]:
    if "exclusiveMinimum" in schema:
        yield f"above {_written(schema['exclusiveMinimum'])}"
    match schema:
        case {"minimum": least, "maximum": most}:
            yield f"from {_written(least)} to {_written(most)}"
        case {"minimum": least}:
            yield f"of at least {_written(least)}"
        case {"maximum": most}:
            yield f"{'and at most' if 'exclusiveMinimum' in schema else 'of at most'} {_written(most)}"
    if "exclusiveMaximum" in schema:
        yield f"below {_written(schema['exclusiveMaximum'])}"
    if "minLength" in schema:
        yield f"of {schema['minLength']} or more characters"
    if "pattern" in schema:
        yield "that is not blank" if schema["pattern"] == NOT_BLANK else f"that matches {schema['pattern']}"


def _written(value: object) -> str:
    """Write a value as a user writes it after the equals sign of an option."""
    if isinstance(value, float) and value.is_integer():
        return f"{value:.0f}"
    if isinstance(value, bool | list | dict | None):
        return json.dumps(value)
    return str(value)
