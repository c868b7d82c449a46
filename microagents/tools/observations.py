"""Observations: what tools returned, as text that is safe to show to a model and on a terminal. It is data, never an instruction."""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic import BaseModel
from pydantic_core import to_json, to_jsonable_python

from microagents.base.foreign_text import bounded
from microagents.base.user_code import shown

MAX_OBSERVATION_CHARS = 4_000
"""The default of ``-s max_observation``."""


def observation_of(value: object, most: int) -> str:
    """Write the value that a tool returned as text: a text as it is, anything else as JSON, models of pydantic included.

    Numbers that JSON lacks are texts in it: ``"NaN"``, ``"Infinity"``. Any other value that JSON lacks is shown as Python does: the call
    was made all the same, and its result must not be lost.
    """
    if isinstance(value, str):
        return bounded(value, most)
    try:
        plain = msgspec.to_builtins(value, enc_hook=_plain, str_keys=True)
        return bounded(to_json(plain, inf_nan_mode="strings").decode(), most)
    except Exception as error:  # noqa: BLE001 - a model may have serializers of its own
        said = f"(the call was made; it returned a {type(value).__name__}, which cannot be written as JSON: {error})"
        return bounded(f"{said} {shown(value)}", most)


def _plain(value: object) -> Any:
    """Return a value that msgspec does not know as one of plain types: the fields of a model, the text of an address or a path."""
    return value.model_dump() if isinstance(value, BaseModel) else to_jsonable_python(value)
