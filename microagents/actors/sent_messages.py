"""Messages that the code of a role sends, as far as its source shows them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from textwrap import dedent
from types import CodeType
from typing import Any

from microagents.base.messages import Message
from microagents.base.sources import PARSING

SENDING = ("ask", "stream", "tell")
"""Names of the methods that send a message."""


def sent_by(role: type) -> Mapping[type[Message], str]:
    """Find the messages that a role makes where it sends them, as in ``self.ask(Review())``, in its methods and those of its bases.

    Returns:
        For each message the method, the file and the line that send it first.
    """
    found: dict[type[Message], str] = {}
    for base in role.__mro__:
        functions = filter(inspect.isfunction, vars(base).values())
        for method in map(inspect.unwrap, functions):
            code = method.__code__
            for line, made in _made_in(code):
                message = _value_of(made, _names_in(method))
                if isinstance(message, type) and issubclass(message, Message):
                    place = f"{Path(code.co_filename).name}:{code.co_firstlineno + line - 1}"
                    found.setdefault(message, f"{method.__qualname__} ({place})")
    return found


def _names_in(method: Any) -> Mapping[str, Any]:
    try:
        return {**method.__globals__, **inspect.getclosurevars(method).nonlocals}
    except ValueError:  # a variable of an outer function has no value yet
        return {}


@lru_cache(maxsize=4_096)  # to read the source takes most of the start of a short run
def _made_in(code: CodeType) -> tuple[tuple[int, ast.expr], ...]:
    """For each message that is made where it is sent: its line in the source of a method, and the call that makes it."""
    try:
        with PARSING:
            tree = ast.parse(dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError, ValueError):  # no source, as in a program that is typed in
        return ()
    found = list[tuple[int, ast.expr]]()
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=sends), args=[ast.Call(func=made), *_]) if sends in SENDING:
                found.append((node.lineno, made))
    return tuple(found)


def _value_of(node: ast.expr, names: Mapping[str, Any]) -> object:
    match node:
        case ast.Name(id=name):
            return names.get(name)
        case ast.Attribute(value=value, attr=name):
            return getattr(_value_of(value, names), name, None)
    return None
