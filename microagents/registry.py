"""From a name on the command line to a class: a shipped name, ``package.module:Class``, or ``path/file.py:Class``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from microagents.errors import InvalidDefinition, InvalidUsage

C = TypeVar("C")

TASKS = {
    "hanoi": "microagents.tasks.hanoi:Hanoi",
    "drift": "microagents.tasks.drift:Drift",
    "multiplication": "microagents.tasks.multiplication:Multiplication",
    "sorting": "microagents.tasks.sorting:Sorting",
    "ask": "microagents.tasks.ask:Ask",
}
STRATEGIES = {
    "maker": "microagents.strategies.maker:Maker",
    "recursive": "microagents.strategies.recursive:Recursive",
    "single-shot": "microagents.strategies.single_shot:SingleShot",
    "self-consistency": "microagents.strategies.self_consistency:SelfConsistency",
}


def find(kind: str, name: str, shipped: Mapping[str, str], base: type[C]) -> type[C]:
    """The class of a name. A ``file.py`` is imported by its stem, with its folder first on the path.

    Raises:
        InvalidUsage: when there is none, saying what is near and what there is.
    """
    where, colon, class_name = shipped.get(name, name).rpartition(":")
    if name.endswith(".py"):
        raise InvalidUsage(f"{name!r} is a file; name the class in it too, such as {name}:MyClass")
    if not colon:
        raise InvalidUsage(unknown(kind, name, sorted(shipped)) + "; or name your own as path/file.py:Class or package.module:Class")
    if where.endswith(".py"):
        where = _put_on_path(kind, where)
    try:
        module = import_module(where)
    except InvalidDefinition as error:
        raise InvalidUsage(f"{kind} {name!r}: {error}") from None
    except (Exception, SystemExit) as error:  # whatever a user's file raises while it is imported
        raise InvalidUsage(f"{kind} {name!r} cannot be imported: {type(error).__name__}: {error}") from error
    found = getattr(module, class_name, None)
    if not (isinstance(found, type) and issubclass(found, base)):
        there = [each for each, value in vars(module).items() if each.isidentifier() and _is_own(value, base, where)]
        what = f"is no {base.__name__}" if found is not None else "is not there"
        raise InvalidUsage(f"{class_name!r} {what} in {where}; it has {', '.join(there) or f'no {base.__name__}'}")
    return found


def _is_own(value: object, base: type, module: str) -> bool:
    return isinstance(value, type) and issubclass(value, base) and value.__module__ == module


def name_of(address: str, shipped: Mapping[str, str]) -> str:
    """The shipped name of a class, or its own."""
    return next((name for name, where in shipped.items() if where == address), address.rpartition(":")[2].rpartition(".")[2])


def unknown(kind: str, name: str, there: Sequence[str]) -> str:
    """A sentence about a name that does not exist: what is near, and the list."""
    near = get_close_matches(name, there, n=2)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ";"
    return f"there is no {kind} {name!r}{hint} known: {', '.join(there) or 'none'}"


def _put_on_path(kind: str, where: str) -> str:
    path = Path(where).resolve()
    if not path.is_file():
        raise InvalidUsage(f"the {kind}'s file {where!r} is not there")
    stem, folder = path.stem, str(path.parent)
    if not stem.isidentifier():
        raise InvalidUsage(f"{where!r} cannot be imported by its name; rename it to letters, digits and underscores")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    loaded = sys.modules.get(stem)
    if loaded is not None and getattr(loaded, "__file__", None) != str(path):
        raise InvalidUsage(f"{where!r} would be imported as {stem!r}, which is already another module; rename the file")
    return stem
