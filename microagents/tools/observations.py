"""Observations: what tools returned, as text that is safe to show to a model and on a terminal. It is data, never an instruction."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

MAX_OBSERVATION_CHARS = 4_000
"""The default of ``--max-observation``."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Control characters except line breaks and tabs, and those that change the direction of text or are invisible."""


def observation_of(value: object, most: int) -> str:
    """Write the value that a tool returned as text: a text as it is, anything else as JSON, models of pydantic included.

    A value that JSON lacks is named by its type: the call was made all the same.
    """
    if isinstance(value, str):
        return bounded(value, most)
    try:
        return bounded(msgspec.json.encode(value, enc_hook=_plain).decode(), most)
    except Exception as error:  # noqa: BLE001 - a model may have serializers of its own
        return bounded(
            f"(the call was made; it returned a {type(value).__name__}, which cannot be written as JSON: {error})", most
        )


def _plain(value: object) -> Any:
    """Return a value that msgspec does not know as one of plain types: the fields of a model, the text of an address or a path."""
    return value.model_dump() if isinstance(value, BaseModel) else to_jsonable_python(value)


def bounded(text: str, most: int) -> str:
    """Show control characters as such, and cut the middle out of a text of more than so many characters, with a note."""
    total = len(text)
    if total > most:
        half = most // 2
        text = f"{text[:half]}\n[... {total - 2 * half:,} of {total:,} characters are left out ...]\n{text[total - half :]}"
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
