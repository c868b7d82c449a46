"""The JSON schema of a reply in the form that providers take: all objects closed, all fields required, no references at the root."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from microagents.replies.chat import Reply, schema

_NOT_TAKEN = ("default", "title")
"""Keywords that providers refuse, or do not need."""


@lru_cache(maxsize=256)
def strict_schema(reply: type[Reply]) -> dict[str, Any]:
    """Build the schema of a reply class, as OpenAI (``strict``) and Anthropic take it.

    Raises:
        InvalidDefinition: JSON has no form for the type of a field.
    """
    whole = schema(reply)
    parts = {name: _closed(part) for name, part in whole.get("$defs", {}).items()}
    root = parts.pop(whole["$ref"].rpartition("/")[2]) if "$ref" in whole else _closed(whole)
    return {**root, "$defs": parts} if parts else root


def schema_name(reply: type[Reply]) -> str:
    """Name a schema: only letters, digits and underscores, at most 64."""
    return re.sub(r"\W", "_", reply.__name__, flags=re.ASCII)[:64]


def _closed(part: Any) -> Any:
    if isinstance(part, list):
        return [_closed(each) for each in part]
    if not isinstance(part, dict):
        return part
    closed = {name: _closed(value) for name, value in part.items() if name not in _NOT_TAKEN}
    if "properties" in part:
        fields = {name: _closed(value) for name, value in part["properties"].items()}  # a field may be called title
        closed |= {"properties": fields, "required": list(fields), "additionalProperties": False}
    return closed
