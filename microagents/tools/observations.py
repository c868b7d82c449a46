"""Observations: what tools returned, as text that is safe to show to a model and on a terminal. It is data, never an instruction."""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from microagents.base.foreign_text import bounded

MAX_OBSERVATION_CHARS = 4_000
"""The default of ``-s max_observation``."""


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
