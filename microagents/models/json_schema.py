"""The JSON schema of a reply in the form that providers take: all objects closed, all fields required, no references at the root."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

from microagents.replies.reply import Reply
from microagents.replies.reply_forms import schema

_NOT_TAKEN = (
    *("default", "title", "uniqueItems", "examples", "deprecated", "readOnly", "writeOnly"),
    *("discriminator", "propertyNames"),
)
"""Keywords that providers refuse, or do not need."""
_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
"""Formats of texts that providers know."""
_BOUNDS = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "pattern", "minItems", "maxItems", "minProperties", "maxProperties"),
)
"""Keywords of bounds, which some providers refuse. The format instructions state them, and the parser checks them."""


@lru_cache(maxsize=256)
def strict_schema(reply: type[Reply], *, has_bounds: bool = True) -> dict[str, Any]:
    """Build the schema of a reply class, as OpenAI (``strict``) and, without its bounds, Anthropic take it.

    Raises:
        InvalidDefinition: JSON has no form for the type of a field.
    """
    whole = schema(reply)
    left_out = _NOT_TAKEN if has_bounds else (*_NOT_TAKEN, *_BOUNDS)
    parts = {name: _closed(part, left_out) for name, part in whole["$defs"].items()}
    name = whole["$ref"].rpartition("/")[2]
    root: dict[str, Any] = parts[name]
    if json.dumps(whole["$ref"]) not in json.dumps(parts):
        del parts[name]
    if not parts:
        return root
    return {**root, "$defs": parts}


def schema_name(reply: type[Reply]) -> str:
    """Name a schema: only letters, digits and underscores, at most 64."""
    return re.sub(r"\W", "_", reply.__name__, flags=re.ASCII)[:64]


def _closed(part: Any, left_out: tuple[str, ...]) -> Any:
    if isinstance(part, list):
        return [_closed(each, left_out) for each in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:  # beside which OpenAI takes nothing
        return {"$ref": part["$ref"]}
    if "prefixItems" in part:
        part = _as_plain_array(part)
    closed = {name: _closed(value, left_out) for name, value in part.items() if name not in left_out}
    if "oneOf" in closed:
        closed["anyOf"] = closed.pop("oneOf")
    if closed.get("format", "date") not in _FORMATS:
        del closed["format"]
    if "properties" in part:  # a field may be called title
        fields = {name: _closed(value, left_out) for name, value in part["properties"].items()}
        closed |= {"properties": fields, "required": list(fields), "additionalProperties": False}
    return closed


def _as_plain_array(part: dict[str, Any]) -> dict[str, Any]:
    """Write the schema of a fixed tuple as an array of so many items: servers refuse ``items: false``."""
    kinds = []
    for kind in part["prefixItems"]:
        if kind not in kinds:
            kinds.append(kind)
    items = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    rest = {name: value for name, value in part.items() if name != "prefixItems"}
    return {**rest, "items": items}
