"""Observations: what tools returned, as text that is safe to show to a model and on a terminal. It is data, never an instruction."""

from __future__ import annotations

import msgspec

from microagents.foreign_text import bounded

MAX_OBSERVATION_CHARS = 4_000
"""The default of ``--max-observation``."""


def observation_of(value: object, most: int) -> str:
    """Write the value that a tool returned as text: a text as it is, anything else as JSON.

    A value that JSON lacks is named by its type: the call was made all the same.
    """
    if isinstance(value, str):
        return bounded(value, most)
    try:
        return bounded(msgspec.json.encode(value).decode(), most)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        return bounded(
            f"(the call was made; it returned a {type(value).__name__}, which cannot be written as JSON: {error})", most
        )
