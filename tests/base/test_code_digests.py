"""Digests of code: what may change a decision changes them, and nothing else does."""

from __future__ import annotations

import gc
import importlib
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from microagents.base.code_digests import code_digest
from microagents.systems import Maker
from microagents.tasks.drift import Drift

TASK = '''"""A task."""
import math
from json import *

import sibling
import shelf.labels
from sibling import base as first
from shelf import books

LIMIT = 3
OTHER = 4


def helper(number: int) -> int:
    """Help."""
    return nested(number)  # by another one


def nested(number: int) -> int:
    return number + LIMIT


def unrelated() -> int:
    return OTHER


class Plain:
    """Base class."""

    def done(self) -> bool:
        return first() > 2


class Mine(Plain):
    """My work."""

    size: int = 7

    def advance(self, result: int) -> int:
        return helper(result) + sibling.more() + books.FEW + math.floor(shelf.labels.MANY)

    def later(self) -> int:
        from late import late

        return late()


class Other:
    def advance(self) -> int:
        return OTHER


result = Mine().done()
if __name__ == "__main__":
    print(Mine())
'''
SIBLING = "def base() -> int:\n    return inner()\n\n\ndef inner() -> int:\n    return 5\n\n\ndef more() -> int:\n    return 1\n"
FILES = {
    "mine.py": TASK,
    "sibling.py": SIBLING,
    "shelf/__init__.py": "",
    "shelf/books.py": "from .labels import MANY\n\nFEW = MANY + 1\n",
    "shelf/labels.py": "MANY = 9\n",
    "late.py": "def late() -> int:\n    return 6\n",
}
Digest = Callable[..., str | None]


@pytest.fixture
def digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Digest]:
    """Digest of the class Mine, with parts of the files replaced."""
    monkeypatch.syspath_prepend(str(tmp_path))
    known = set(sys.modules)

    def digest_with(file: str = "mine.py", old: str = "", new: str = "", kind: str = "Mine") -> str | None:
        for name in set(sys.modules) - known:
            if name.partition(".")[0] in ("mine", "sibling", "shelf", "late"):
                del sys.modules[name]
        assert old in FILES[file]
        for name, text in FILES.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text.replace(old, new) if name == file else text, encoding="utf-8")
        importlib.invalidate_caches()
        return code_digest([getattr(importlib.import_module("mine"), kind), Maker])

    yield digest_with
    for name in set(sys.modules) - known:
        if name.partition(".")[0] in ("mine", "sibling", "shelf", "late"):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("mine.py", "  # by another one", ""),
        ("mine.py", "return number + LIMIT", "return (\n        number\n        + LIMIT\n    )"),
        ("mine.py", "OTHER = 4", "OTHER = 5"),
        ("mine.py", "def unrelated() -> int:\n    return OTHER", "def unrelated() -> int:\n    return 0"),
        ("mine.py", "print(Mine())", "print(Mine().done())"),
        ("sibling.py", "def base() -> int:\n", "# the base\ndef base() -> int:\n"),
    ],
)
def test_comments_docstrings_layout_and_unrelated_code_do_not_count(
    digest: Digest, file: str, old: str, new: str
) -> None:
    before = digest()
    assert before is not None
    assert digest(file, old, new) == before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("mine.py", "return helper(result)", "return 1 + helper(result)"),
        ("mine.py", "size: int = 7", "size: int = 8"),
        ("mine.py", "LIMIT = 3", "LIMIT = 3.0"),
        ("mine.py", "return first() > 2", "return first() > 3"),
        ("sibling.py", "return 5", "return 4"),
        ("shelf/books.py", "MANY + 1", "MANY + 2"),
        ("late.py", "return 6", "return 7"),
    ],
)
def test_what_a_class_names_in_its_project_counts(digest: Digest, file: str, old: str, new: str) -> None:
    assert digest(file, old, new) != digest()


def test_the_digest_does_not_depend_on_what_was_imported_before(digest: Digest) -> None:
    before = digest()
    importlib.import_module("late")
    assert code_digest([sys.modules["mine"].Mine, Maker]) == before


def test_code_of_the_package_and_code_without_a_file_have_no_digest() -> None:
    assert code_digest([Drift, Maker]) is None
    scope = {"__name__": "nowhere"}
    exec("class Typed: pass", scope)  # as a notebook defines a class
    assert code_digest([scope["Typed"], Maker]) is None  # type: ignore[list-item]


class Garbage:
    """A cycle whose end lets other threads run, also while a source is parsed."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        time.sleep(0)


@pytest.mark.slow
def test_threads_that_digest_code_at_once_get_the_digest_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text("class Task:\n" + f"    x = {'-' * 40}1\n" * 40, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    kinds = [importlib.import_module(name).Task for name in ("one", "two")]
    whole = [code_digest([each]) for each in kinds]
    before = gc.get_threshold()
    gc.set_threshold(50)
    try:
        with ThreadPoolExecutor() as pool:
            digests = list(pool.map(lambda kind: (Garbage(), code_digest([kind]))[1], kinds * 10))
    finally:
        gc.set_threshold(*before)
    assert digests == whole * 10
