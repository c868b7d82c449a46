"""How the prose of docstrings, error messages and pages reads: turns of phrase that other projects hardly use, per 1,000 words."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.test_house import parsed

ROOT = Path(__file__).parents[1]
CODE = [path for top in ("microagents", "runtimes", "tasks") for path in sorted((ROOT / top).rglob("*.py"))]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "cluster/README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.md"))
CAPS = {
    r"\b(?:those|that) of\b|\bthose that\b": 0.5,
    r"\bwhere\b": 1.5,
    r"\b(?-i:None) where\b": 0.1,
    r"\bof the \w+ of the\b": 0.4,
    r"\bis no (?!longer\b|more than\b)\w+": 0.6,
    r"\b(?:tells?|told|telling)\b": 0.4,
    r"\bof which\b|\bso many\b|\bgoes on\b|\balone\b": 1.5,
}
"""The greatest number of each in 1,000 words. Write the noun again, and if, when, only, states or reports instead."""

MOST_CLAUSES = 1.0
"""The greatest number of clauses with *what* and the like in 1,000 words of docstrings, where a noun would do."""

GUIDE_WORDS = 900
"""The greatest number of words of a guide, without its commands and programs."""

DOCS_WORDS, ALL_WORDS = 20_000, 30_000
"""The greatest number of words of all pages, commands and programs included: without the notebooks of the authors, and with them."""

Passage = tuple[str, str]
"""A place, and the text that stands there."""


def nodes(kind: type[ast.AST]) -> Iterator[tuple[Path, ast.AST]]:
    for path in CODE:
        if not any(each.is_symlink() for each in (path, *path.parents)):  # a link shows a file a second time
            yield from ((path, each) for each in ast.walk(parsed(path.read_text("utf-8"))) if isinstance(each, kind))


def docstrings() -> Iterator[Passage]:
    for path, node in nodes(ast.Expr):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value.value


def errors() -> Iterator[Passage]:
    for path, node in nodes(ast.Raise):
        for each in ast.walk(node):
            if isinstance(each, ast.Constant) and isinstance(each.value, str) and " " in each.value:
                yield f"{path.relative_to(ROOT)}:{each.lineno}", each.value


def pages() -> Iterator[Passage]:
    for path in PAGES:
        yield f"{path.relative_to(ROOT)}", prose(path)


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```|^    .*?$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def pages_below(entry: object) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    for each in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
        yield from pages_below(each)


@pytest.mark.parametrize("passages", [docstrings, errors, pages], ids=lambda each: each.__name__)
def test_prose_has_each_turn_of_phrase_no_more_often_than_its_cap(passages: type[Iterator[Passage]]) -> None:
    found = list(passages())
    words = sum(len(re.findall(r"[A-Za-z']+", text)) for _, text in found)
    assert words > 5_000
    for pattern, cap in CAPS.items():
        places = [f"{place} {hit[0]!r}" for place, text in found for hit in re.finditer(pattern, text, re.IGNORECASE)]
        rate = 1_000 * len(places) / words
        assert rate <= cap, f"{rate:.2f} in 1,000 words, at most {cap}: {', '.join(places[:20])}"


def test_docstrings_name_things() -> None:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    texts = [ast.get_docstring(each) or "" for _, each in nodes(ast.AST) if isinstance(each, kinds)]
    words = re.findall(r"[a-z']+", " ".join(texts).lower())
    clauses = [word for word in words if word in {"what", "whoever", "nobody"}]
    assert 1_000 * len(clauses) / len(words) <= MOST_CLAUSES


def test_a_guide_is_read_in_five_minutes() -> None:
    start, guides, *_ = tomllib.loads((ROOT / "docs/zensical.toml").read_text("utf-8"))["project"]["nav"]
    found = [ROOT / "docs" / name for name in pages_below([start, guides])]
    words = {page.name: len(prose(page).split()) for page in found if page.exists()}
    assert len(words) > 14
    assert {name: number for name, number in words.items() if number > GUIDE_WORDS} == {}


def words_of(pages: Iterable[Path]) -> int:
    """Count the words of pages; the bars of a table are none."""
    return sum(len(re.findall(r"\S*\w\S*", page.read_text("utf-8"))) for page in pages)


def test_the_docs_are_read_in_two_hours_and_the_notebooks_in_one() -> None:
    docs = words_of([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
    assert docs <= DOCS_WORDS
    assert docs + words_of(NOTEBOOKS) <= ALL_WORDS


def test_a_link_reads_as_a_title_and_not_as_a_page_s_file() -> None:
    links = re.compile(r"\[`?[\w/.-]+\.md`?\]\(")
    assert [(page.name, hit) for page in [*PAGES, *NOTEBOOKS] for hit in links.findall(page.read_text("utf-8"))] == []
