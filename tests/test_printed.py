"""What the documents show of commands is what they print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.printed import DOCS, commands_of, compared, is_same, pages


@pytest.mark.slow
@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_commands_print_what_their_page_says(page: Path) -> None:
    assert compared(page) == []


def test_a_page_that_says_something_else_is_found() -> None:
    (command,) = commands_of(["Text.", "", "    $ seq \\", "        3", "    1", "    ...", "    3", "", "More."])
    assert (command.command, command.expected) == ("seq 3", ("1", "...", "3"))
    assert is_same(command.expected, ["1", "2", "3"])
    assert is_same(["took 1.5 s on 2026-01-01 10:11"], ["took 20 min", "on 2027-02-03 04:05"])
    assert not is_same(command.expected, ["1", "2", "4"])


def test_the_examples_of_the_gallery_are_short_and_on_its_page() -> None:
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    for file in (DOCS / "gallery").glob("*.py"):
        assert len(file.read_text(encoding="utf-8").splitlines()) <= 80, file.name
        assert f"](gallery/{file.name})" in page


BLOCKS = [
    pytest.param(page.name, block, id=f"{page.name}:{number}")
    for page in sorted(DOCS.glob("*.md"))
    for number, block in enumerate(
        re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    )
]


@pytest.mark.parametrize(("page", "block"), BLOCKS)
def test_the_python_of_the_pages_runs_or_is_a_part_of_a_file(page: str, block: str) -> None:
    code = compile(block, page, "exec")
    # The page about models asks a real one; `tests/test_examples.py` runs the files on the pages about tasks.
    if block.startswith(("from ", "import ")) and page not in ("providers.md", "tasks.md", "task-methods.md"):
        exec(code, {"__name__": "page"})
