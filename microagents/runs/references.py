"""References beyond a file that another person may have written: hosts, keys, commands, code and files elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from microagents.actors.registry import MODELS

OPEN_OPTIONS = ("address", "insecure", "tokens", "yes", "run_id")
"""Options whose every value reaches further: another cluster, other machines, money without a question, another journal."""
PLACES_OF_JOURNALS = ("runs_dir",)
"""Options that may name any folder: nothing but journals is read and written there."""
SHOWN_CHARS = 200
"""Of a longer value only the beginning is shown."""
_ELSEWHERE = re.compile(r"\b(?:base_url|api_key_env)\s*=|\bmcp:|\w\.py\b|(?:^|[\s=@,\"'\[])(?:/\w|~/|\.\./)")
_MODULE = re.compile(r"(?<![\w./-])([A-Za-z_][\w.-]*):[A-Za-z_]")
"""``module:Name``, or the spec of a model."""


def references_in(values: Iterable[tuple[str, Any]]) -> list[str]:
    """Return, as NAME = VALUE, the values that name a host, a key, a command, code, or a file outside of their folder.

    Models at the own hosts of registered providers, registered names, numbers and plain texts are none of these.
    """
    return [
        f"{name} = {each:.{SHOWN_CHARS}}"
        for name, value in values
        for each in _leaves(value)
        if _reaches_out(name, each)
    ]


def _reaches_out(name: str, text: str) -> bool:
    option = name.replace("-", "_")
    if option in PLACES_OF_JOURNALS:
        return False
    if option in OPEN_OPTIONS:
        return text.lower() not in ("", "false", "0", "no")
    if _ELSEWHERE.search(text) or (option == "port" and ":" in text):
        return True
    modules = (match[1] for match in _MODULE.finditer(text))
    foreign = [each for each in modules if not each.startswith("microagents.")]
    return any(each not in MODELS.addresses for each in foreign)


def _leaves(value: object) -> Iterator[str]:
    """Yield the texts in a value, and its numbers as texts."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _leaves(name)
            yield from _leaves(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each)
    elif value is not None:
        yield str(value)
