"""The form of a JSON value for a model to fill in, such as ``[<integer from 1 to 5>, <text>]``, from its JSON schema.

It states all that the parser demands: bounds, lengths, patterns and the values to choose from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

AGAIN = "<again the form around this"
"""Start of the form of a value inside a value of the same type."""
ANYTHING = "<any JSON value>"
_json = partial(json.dumps, ensure_ascii=False)
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
            return f"{AGAIN} with {', '.join(map(_json, defs[name].get('properties', ())))}>"
        case {"enum": list(values)}:
            return " or ".join(map(_json, values))
        case {"anyOf": list(members)} | {"oneOf": list(members)}:
            return " or ".join(map(inner, members))
        case {"properties": dict(fields)}:
            return "{" + ", ".join(f"{_json(name)}: {inner(each)}" for name, each in fields.items()) + "}"
        case {"type": "object"}:
            counted = _length(schema, "Properties", "key", " ({})")
            return f'{{"<key>": {inner(schema.get("additionalProperties"))}, ...}}{counted}'
        case {"prefixItems": list(items)}:
            return "[" + ", ".join(map(inner, items)) + "]"
        case {"type": "array"}:
            counted = _length(schema, "Items", "item", " ({})")
            return f"[{inner(schema.get('items'))}, ...]{counted}"
    return _scalar_form(schema)


def _scalar_form(schema: Any) -> str:
    match schema:
        case {"const": value}:
            return _json(value)
        case {"format": str(name)} if name in _FORMATS:
            return _FORMATS[name].replace("number>", f"number{_bounds(schema)}>")
        case {"contentEncoding": "base64"}:
            return f'"<base64{_length(schema, "Length", "character")}>"'
        case {"type": "string", "pattern": str(pattern)}:
            return f'"<text{_length(schema, "Length", "character")} that matches the pattern {pattern}>"'
        case {"type": "string"}:
            return f'"<text{_length(schema, "Length", "character")}>"'
        case {"type": str(kind)} if kind in _FORMS:
            return _FORMS[kind].replace(">", f"{_bounds(schema)}>")
    return ANYTHING


_BOUNDS = {
    "minimum": "of at least",
    "maximum": "of at most",
    "exclusiveMinimum": "above",
    "exclusiveMaximum": "below",
}


def _bounds(schema: Mapping[str, Any]) -> str:
    """Write the bounds of a number, such as `` from 1 to 5``."""
    bounds = {word: schema[name] for name, word in _BOUNDS.items() if name in schema}
    if "minimum" in schema and "maximum" in schema:
        bounds = {f"from {schema['minimum']} to": schema["maximum"]}
    said = " and".join([f" {word} {bound}" for word, bound in bounds.items()])
    if "multipleOf" in schema:
        said += f", a multiple of {schema['multipleOf']}"
    return said


def _length(schema: Mapping[str, Any], of: str, unit: str, frame: str = " of {}") -> str:
    """Write the bounds of a length, such as `` of 1 to 20 characters``."""
    least, most = schema.get(f"min{of}", 0), schema.get(f"max{of}")
    last = most
    if most is None:
        said, last = f"at least {least}", least
    elif least == most:
        said = f"exactly {most}"
    elif least:
        said = f"{least} to {most}"
    else:
        said = f"at most {most}"
    if most is None and not least:
        return ""
    return frame.format(f"{said} {unit}{'s' * (last != 1)}")
