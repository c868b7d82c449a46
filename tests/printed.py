"""The console blocks of the documents, done again: ``python -m tests.printed [--write] [PAGE...]``.

A block is indented by four spaces; a line ``$ COMMAND`` in it is done, and the lines below are what it prints. ``...`` stands for
anything. The commands of a page share a shell, in a folder of its own with a copy of the examples. Times, rates, ids, shares of a cent, and
where lines break are not compared. With ``--write`` the page gets what is printed now, where it differs.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
INDENT, ANY, PROMPT = "    ", "...", "    $ "
COLUMNS, WAIT_S = "100", 600
ALIKE = (
    (r"\d\d\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(\+\d\d:\d\d|Z| UTC)?", "TIME"),
    (r"-\d{8}-\d{6}-[0-9a-f]{8}\b", "-ID"),
    (r"\b\d[\d,]* \w+ (a second|an hour)\b", "RATE"),
    (r"\b\d[\d,]*(\.\d+)?( ms| s| min| h)\b", "TIME"),
    (r"\$0\.00\d\d\b", "CENT"),  # a reply that quotes the time of day has another length each time
    (r"^.*: line \d+: +\d+ Killed .*$", "Killed"),
)


class Printed(Struct, frozen=True, kw_only=True):
    """A command of a page, and what stands below it."""

    line: int
    """Index of its line."""
    command: str
    first: int
    """Index of the first line that it prints."""
    expected: tuple[str, ...]


def pages() -> list[Path]:
    """The pages with commands and what they print."""
    return [page for page in sorted(DOCS.glob("*.md")) if commands_of(page.read_text(encoding="utf-8").splitlines())]


def commands_of(lines: list[str]) -> list[Printed]:
    """The commands of a page."""
    found = []
    for number, line in enumerate(lines):
        if not line.startswith(PROMPT):
            continue
        first = number + 1
        command = line.removeprefix(PROMPT)
        while command.endswith("\\"):
            command = command[:-1] + lines[first].strip()
            first += 1
        end = first
        while (
            end < len(lines) and (lines[end].startswith(INDENT) or not lines[end]) and not lines[end].startswith(PROMPT)
        ):
            end += 1
        while end > first and not lines[end - 1]:  # a blank line belongs to a block where the block goes on
            end -= 1
        expected = tuple(each.removeprefix(INDENT) for each in lines[first:end])
        found.append(Printed(line=number, command=command, first=first, expected=expected))
    return found


def done(commands: list[str]) -> list[list[str]]:
    """What each of some commands prints, one after the other in one shell."""
    with tempfile.TemporaryDirectory() as folder:
        for each in ("examples", "gallery"):
            shutil.copytree(
                DOCS / each, Path(folder, "docs", each), ignore=shutil.ignore_patterns("runs", "__pycache__")
            )
        script = "".join(f"{{ {each}\n}} > {folder}/{number}.out 2>&1\n" for number, each in enumerate(commands))
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("MICROAGENTS_")},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": COLUMNS,
        }
        subprocess.run(["bash"], input=script, text=True, check=False, cwd=folder, env=environment, timeout=WAIT_S)
        texts = (Path(folder, f"{number}.out").read_text(encoding="utf-8") for number in range(len(commands)))
        return [text.replace(f"{folder}/", "").rstrip("\n").split("\n") if text.strip() else [] for text in texts]


def is_same(expected: Sequence[str], printed: Sequence[str]) -> bool:
    """Tell whether a command prints what is expected, wherever lines are broken."""
    pattern = ".*".join(re.escape(part) for part in plain(expected).split(ANY))
    return re.fullmatch(pattern, plain(printed), re.DOTALL) is not None


def plain(lines: Sequence[str]) -> str:
    """Lines as one without blanks, in which times are alike."""
    text = "\n".join(lines)
    for pattern, name in ALIKE:
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    return "".join(text.split())


def compared(page: Path, *, write: bool = False) -> list[str]:
    """The differences between a page and what its commands print."""
    lines = page.read_text(encoding="utf-8").splitlines()
    commands = commands_of(lines)
    differences = []
    for command, printed in reversed(list(zip(commands, done([each.command for each in commands]), strict=True))):
        if is_same(command.expected, printed):
            continue
        where = f"{page.name}:{command.line + 1}: {command.command}"
        differences.append("\n".join([where, *difflib.unified_diff(command.expected, printed, lineterm="", n=1)]))
        lines[command.first : command.first + len(command.expected)] = [f"{INDENT}{each}".rstrip() for each in printed]
    if write and differences:
        page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return differences[::-1]


def main() -> int:
    """Compare pages; returns 1 where one differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("page", nargs="*", type=Path)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    differences = [each for page in given.page or pages() for each in compared(page, write=given.write)]
    sys.stdout.write("\n\n".join(differences) + "\n" if differences else "every command prints what its page says\n")
    return int(bool(differences))


if __name__ == "__main__":
    raise SystemExit(main())
