"""Messages that the code of a role sends, as far as its source shows them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

from microagents.base.messages import Message

SENDING = ("ask", "stream", "tell")
"""Names of the methods that send a message."""


def sent_by(role: type) -> Mapping[type[Message], str]:
    """Find the messages that a role makes where it sends them, as in ``self.ask(Review())``, in its methods and those of its bases.

    Returns:
        For each message the method, the file and the line that send it first.
    """
    found: dict[type[Message], str] = {}
    for base in role.__mro__:
        for method in map(inspect.unwrap, filter(inspect.isfunction, vars(base).values())):
            for node, message in _sent_in(method):
                code = method.__code__
                place = f"{Path(code.co_filename).name}:{code.co_firstlineno + node.lineno - 1}"
                found.setdefault(message, f"{method.__qualname__} ({place})")
    return found


@cache  # its source takes most of the start of a short run to read
def _sent_in(method: Any) -> list[tuple[ast.Call, type[Message]]]:
    found: list[tuple[ast.Call, type[Message]]] = []
    try:
        tree = ast.parse(dedent(inspect.getsource(method)))
        names = {**method.__globals__, **inspect.getclosurevars(method).nonlocals}
    except (OSError, TypeError, SyntaxError, ValueError):  # no source, as in a program that is typed in
        return found
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=sends), args=[ast.Call(func=called), *_]) if sends in SENDING:
                message = _value_of(called, names)
                if isinstance(message, type) and issubclass(message, Message):
                    found.append((node, message))
    return found


def _value_of(node: ast.expr, names: Mapping[str, Any]) -> object:
    match node:
        case ast.Name(id=name):
            return names.get(name)
        case ast.Attribute(value=value, attr=name):
            return getattr(_value_of(value, names), name, None)
    return None
