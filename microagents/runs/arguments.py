"""The check of arguments that Python callers give: a wrong type is refused in one sentence, before anything starts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

from microagents.base.errors import InvalidUsage


def is_list(value: object) -> bool:
    """Whether a value is a sequence, and no text."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


_CALLBACK = ("a function or None", lambda value: value is None or callable(value))
_EVENT = ("an asyncio.Event or None", lambda value: value is None or isinstance(value, asyncio.Event))
_KINDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "run_id": ("the name of a run", lambda value: isinstance(value, str)),
    "runs_dir": ("the path of a folder", lambda value: isinstance(value, str | PathLike)),
    "accept_changes": (
        "a list of names",
        lambda value: is_list(value) and all(isinstance(each, str) for each in value),
    ),
    "inputs": (
        "a list of numbers, from 0",
        lambda value: (
            value is None
            or (is_list(value) and all(isinstance(each, int) and not isinstance(each, bool) for each in value))
        ),
    ),
    "answers": (
        "a dict of texts by place",
        lambda value: isinstance(value, Mapping) and all(isinstance(each, str) for each in value.values()),
    ),
    "options": ("a dict of options by name", lambda value: isinstance(value, Mapping)),
    "on_start": _CALLBACK,
    "on_progress": _CALLBACK,
    "on_decision": _CALLBACK,
    "on_ask": _CALLBACK,
    "on_solution": _CALLBACK,
    "on_ending": _CALLBACK,
    "on_forecast": _CALLBACK,
    "measurement": (
        "a measurement, as measured_from reads it, or None",
        lambda value: value is None or callable(getattr(value, "promise", None)),
    ),
    "interrupt": _EVENT,
    "terminate": _EVENT,
}
"""For each argument what it must be, in words, and whether a value is it."""


def check_arguments(given: Mapping[str, object]) -> None:
    """Refuse arguments of wrong types. Settings are checked by `Settings`."""
    for name, (wanted, fits) in _KINDS.items():
        if name in given and not fits(given[name]):
            raise InvalidUsage(f"{name} must be {wanted}, not {given[name]!r:.100}; nothing was started")
