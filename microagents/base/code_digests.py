"""Digests of users' code: a class with all that it names in the files of its project, without comments, docstrings and layout.

Code of this package and of installed libraries is left out: it changes with their versions, not by an edit.
"""

from __future__ import annotations

import ast
import itertools
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, resolve_name
from pathlib import Path
from symtable import SymbolTable, symtable

from microagents.base.sources import PARSING
from microagents.base.text_digests import digest_of

Place = tuple[str, str]
"""A module, and a name in it; `ALL` for all that it defines."""
ALL = "*"
_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def code_digest(kinds: Iterable[type]) -> str | None:
    """Return the digest of the code of classes; None without a class of a user, or where its code is in no file, as in a notebook."""
    roots = [(kind.__module__, kind.__qualname__) for kind in kinds if not _is_ours(kind.__module__)]
    tops = frozenset(module.partition(".")[0] for module, _ in roots)
    modules: dict[str, _Module | None] = {}
    shapes, seen, todo = list[str](), set[Place](), list(roots)
    while todo:
        place = todo.pop()
        if place in seen:
            continue
        seen.add(place)
        module, name = place
        if module not in modules:
            modules[module] = _read(module, tops)
        read = modules[module]
        if read is not None:
            for node in read.defining(name):
                shapes.append(repr(_shape(node)))
                todo.extend(read.named_in(node))
            todo.extend(read.imported_as(name))
        elif place in roots:
            return None
    if not roots:
        return None
    text = "\n".join(sorted(shapes))
    return digest_of(text).hex()


class _Module:
    """The definitions and imports at the top of a module."""

    def __init__(self, name: str, tree: ast.Module, *, is_package: bool) -> None:
        self._package = name if is_package else name.rpartition(".")[0]
        self._name = name
        self._defined: dict[str, list[ast.stmt]] = {}
        self._imported: dict[str, list[Place]] = {}
        self._tree = tree
        for node in tree.body:
            if isinstance(node, ast.Expr) or _is_main(node):  # what a script does, such as its call of `run`
                continue
            for each in _bound_in(node):
                self._defined.setdefault(each, []).append(node)
            for each, place in self._imports_in(node):
                self._imported.setdefault(each, []).append(place)

    def defining(self, name: str) -> list[ast.stmt]:
        """List the statements that define a name, or a class by its qualified name."""
        if name == ALL:
            nodes = itertools.chain.from_iterable(self._defined.values())
            return list({id(node): node for node in nodes}.values())
        first, *parts = name.replace(".<locals>", "").split(".")
        found = self._defined.get(first, [])
        for part in parts:
            inner = [each for node in found for each in ast.walk(node)]
            found = [each for each in inner if isinstance(each, _Definition) and each.name == part]
        return found

    def imported_as(self, name: str) -> list[Place]:
        """List the places that a name may be imported from."""
        if name == ALL:
            return [place for places in self._imported.values() for place in places]
        if name in self._imported or name in self._defined:
            return self._imported.get(name, [])
        return [(module, name) for module, _ in self._imported.get(ALL, [])]

    def named_in(self, node: ast.stmt) -> Iterator[Place]:
        """Yield the places of all that a statement names outside of itself."""
        with suppress(SyntaxError):  # a class in a function may name what is bound around it
            for name in _globals(symtable(ast.unparse(node), self._name, "exec")):
                yield self._name, name
        for _, place in self._imports_in(node):
            yield place

    def _imports_in(self, statement: ast.stmt) -> Iterator[tuple[str, Place]]:
        for node in ast.walk(statement):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield alias.asname or alias.name.partition(".")[0], (alias.name, ALL)
            elif isinstance(node, ast.ImportFrom):
                module = resolve_name("." * node.level + (node.module or ""), self._package)
                for alias in node.names:
                    yield alias.asname or alias.name, (module, alias.name)
                    yield alias.asname or alias.name, (f"{module}.{alias.name}", ALL)  # if it is a module


def _read(name: str, tops: frozenset[str]) -> _Module | None:
    """Parse a module of the project; None for one of a library, or without a source."""
    main = sys.modules["__main__"]
    try:
        spec = _spec(name) if name != "__main__" else getattr(main, "__spec__", None)
        file = None if spec is None else spec.origin
        if spec is None and name == "__main__":
            file = getattr(main, "__file__", None)
        if file is None or _is_ours(name) or (name.partition(".")[0] not in tops and _is_of_library(file)):
            return None
        is_package = spec is not None and spec.submodule_search_locations is not None
        named = name if spec is None else spec.name  # `python -m` calls a module __main__
        source = Path(file).read_bytes()
        with PARSING:
            tree = ast.parse(source)
        return _Module(named, tree, is_package=is_package)
    except (ImportError, OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _spec(name: str) -> ModuleSpec | None:
    """Find a module without importing it or its packages."""
    reached, *parts = name.split(".")
    spec = find_spec(reached)
    for part in parts:
        if spec is None or spec.submodule_search_locations is None:
            return None
        reached = f"{reached}.{part}"
        spec = PathFinder.find_spec(reached, spec.submodule_search_locations)
    return spec


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "microagents"


@lru_cache(maxsize=1024)
def _is_of_library(file: str) -> bool:
    paths = sysconfig.get_paths()
    folders = [paths[each] for each in ("stdlib", "platstdlib", "purelib", "platlib")]
    return file.startswith(tuple(folders)) or "site-packages" in file or not file.endswith(".py")


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "'__main__'" in ast.unparse(node.test)


def _bound_in(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement at the top of a module binds or changes."""
    if isinstance(statement, _Definition):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, _Definition):
            yield node.name
        elif isinstance(getattr(node, "ctx", None), ast.Store):
            target = node
            while isinstance(target, ast.Attribute | ast.Subscript):
                target = target.value
            if isinstance(target, ast.Name):
                yield target.id


def _globals(table: SymbolTable) -> Iterator[str]:
    """Yield the names that a scope and those in it take from the top of their module."""
    is_top = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_global() or (is_top and symbol.is_referenced()):
            yield symbol.get_name()
    for child in table.get_children():
        yield from _globals(child)


def _shape(node: object) -> object:
    """Return a syntax tree as tuples, without positions, docstrings and empty fields, which differ from one Python to another."""
    if isinstance(node, list):
        return [_shape(each) for each in node]
    if not isinstance(node, ast.AST):
        return node
    fields = {name: value for name, value in ast.iter_fields(node) if name != "kind" and value not in (None, [])}
    if isinstance(node, _Definition) and ast.get_docstring(node, clean=False) is not None:
        fields["body"] = fields["body"][1:]
    if isinstance(node, ast.JoinedStr):
        fields["values"] = [each for each in node.values if getattr(each, "value", None) != ""]  # 3.12 adds empty ones
    return type(node).__name__, [(name, _shape(value)) for name, value in fields.items()]
