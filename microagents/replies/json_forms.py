"""The form of a JSON value for a model to fill in, such as ``[<integer from 1 to 5>, <text>]``, from its JSON schema.

It states all that the parser demands: bounds, lengths, patterns and the values to choose from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

AGAIN = "<again the form around this"
"""Start of the form of a value inside a value of the same type."""
ANYTHING = "<any JSON value>"
_FORMS = {"integer": "<integer>", "number": "<number>", "boolean": "true or false", "null": "null"}
_FORMATS = {
    "decimal": "<decimal number>",
    "date": '"<YYYY-MM-DD>"',
    "date-time": '"<date and time as in ISO 8601>"',
    "time": '"<hh:mm:ss>"',
    "duration": '"<duration as in ISO 8601>"',
    "uuid": '"<UUID>"',
}


def form_of(schema: Any, defs: Mapping[str, Any], above: tuple[str, ...] = ()) -> str:
    """Write the form of a value.

    Args:
        schema: its schema.
        defs: the definitions to which references lead.
        above: names of the definitions around it.
    """

    def inner(part: Any) -> str:
        return form_of(part, defs, above)

    match schema:
        case {"$ref": str(reference)}:
            name = reference.rpartition("/")[2]
            if name not in above:
                return form_of(defs[name], defs, (*above, name))
            return f"{AGAIN} with {', '.join(map(json.dumps, defs[name].get('properties', ())))}>"
        case {"enum": list(values)}:
            return " or ".join(map(json.dumps, values))
        case {"anyOf": list(members)} | {"oneOf": list(members)}:
            return " or ".join(map(inner, members))
        case {"properties": dict(fields)}:
            return "{" + ", ".join(f"{json.dumps(name)}: {inner(each)}" for name, each in fields.items()) + "}"
        case {"type": "object"}:
            return (
                f'{{"<key>": {inner(schema.get("additionalProperties"))}, ...}}{_counted(schema, "Properties", "key")}'
            )
        case {"prefixItems": list(items)}:
            return "[" + ", ".join(map(inner, items)) + "]"
        case {"type": "array"}:
            return f"[{inner(schema.get('items'))}, ...]{_counted(schema, 'Items', 'item')}"
    return _scalar_form(schema)


def _scalar_form(schema: Any) -> str:
    match schema:
        case {"const": value}:
            return json.dumps(value)
        case {"format": str(name)} if name in _FORMATS:
            return _FORMATS[name].replace("number>", f"number{_bounds(schema)}>")
        case {"contentEncoding": "base64"}:
            return f'"<base64{_length(schema, "Length", "character")}>"'
        case {"type": "string"}:
            patterns = [f" that matches the pattern {each}" for name, each in schema.items() if name == "pattern"]
            return f'"<text{_length(schema, "Length", "character")}{"".join(patterns)}>"'
        case {"type": str(kind)} if kind in _FORMS:
            return _FORMS[kind].replace(">", f"{_bounds(schema)}>")
    return ANYTHING


def _bounds(schema: Mapping[str, Any]) -> str:
    """Write the bounds of a number, such as `` from 1 to 5``."""
    least, most = schema.get("minimum"), schema.get("maximum")
    bounds = {
        "of at least": least,
        "of at most": most,
        "above": schema.get("exclusiveMinimum"),
        "below": schema.get("exclusiveMaximum"),
    }
    if least is not None and most is not None:
        bounds = {f"from {least} to": most}
    said = " and ".join(f"{word} {bound}" for word, bound in bounds.items() if bound is not None)
    if "multipleOf" in schema:
        said += f", a multiple of {schema['multipleOf']}"
    if not said:
        return ""
    return f" {said}"


def _length(schema: Mapping[str, Any], of: str, unit: str) -> str:
    """Write the bounds of a length, such as `` of 1 to 20 characters``."""
    least, most = schema.get(f"min{of}", 0), schema.get(f"max{of}")
    if most is None:
        if not least:
            return ""
        return f" of at least {least} {unit}{'s' * (least != 1)}"
    many = f"{unit}{'s' * (most != 1)}"
    if least == most:
        return f" of exactly {most} {many}"
    if least:
        return f" of {least} to {most} {many}"
    return f" of at most {most} {many}"


def _counted(schema: Mapping[str, Any], of: str, unit: str) -> str:
    said = _length(schema, of, unit).removeprefix(" of ")
    if not said:
        return ""
    return f" ({said})"
