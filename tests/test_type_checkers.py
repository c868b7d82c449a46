"""Type checkers in their strict form accept all examples of the docs, as users write them, and find a wrong type of a result."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROWS = """
from microagents import Prompt, Reply, RowTask


class Label(Reply, frozen=True):
    label: str


class Labels(RowTask[Label]):
    def prompt(self, row: dict[str, str]) -> Prompt:
        return Prompt(user=row["text"])

    def oracle(self, row: dict[str, str]) -> Label | None:
        return Label(label=row["right"]) if "right" in row else None

    def flag(self, row: dict[str, str], reply: Label) -> str | None:
        return None if reply.label in row["text"] else "made_up"
"""
"""What docs/tasks.md says of the oracle and the flag of rows."""
TYPED = """
from microagents import ChainTask, Prompt, Reply, Result, RowTask, run_sync


class Sum(Reply, frozen=True):
    total: int


class Sums(ChainTask[list[int], Sum]):
    def start(self) -> list[int]:
        return [1, 2]

    def done(self, state: list[int]) -> bool:
        return len(state) == 1

    def prompt(self, state: list[int]) -> Prompt:
        return Prompt(user=f"{state[0]} + {state[1]}")

    def advance(self, state: list[int], reply: Sum) -> list[int]:
        return [reply.total, *state[2:]]


class Clean(RowTask[Sum]):
    def prompt(self, row: dict[str, object]) -> Prompt:
        return Prompt(user=str(row["text"]))


right: Result[list[int]] = run_sync(Sums(), models="sim:perfect")
rows: Result[dict[str, object]] = run_sync(Clean(row={"text": "2"}), models="sim:perfect")
wrong: Result[int] = run_sync(Sums(), models="sim:perfect")
"""
"""A program elsewhere, whose last line is wrong: the result of these sums is no number."""


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "checker", [("pyright",), ("mypy", "--strict", "--ignore-missing-imports")], ids=lambda each: each[0]
)
def test_a_type_checker_accepts_the_examples_and_finds_a_wrong_type_of_a_result(
    checker: tuple[str, ...], tmp_path: Path
) -> None:
    if find_spec(checker[0]) is None:
        pytest.skip(f"{checker[0]} is not installed")
    for path in (ROOT / "docs/examples").glob("*.py"):
        (tmp_path / path.name).write_text(path.read_text("utf-8"), "utf-8")
    (tmp_path / "rows.py").write_text(ROWS, "utf-8")
    readme = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    for number, block in enumerate(readme):
        (tmp_path / f"readme_{number}.py").write_text(block, "utf-8")
    (tmp_path / "mine.py").write_text(TYPED, "utf-8")
    files = sorted(path.name for path in tmp_path.glob("*.py"))
    found = subprocess.run(
        [sys.executable, "-m", *checker, *files], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    faults = [line for line in found.stdout.splitlines() if "error:" in line or " - error" in line]
    assert len(faults) == 1, found.stdout + found.stderr
    assert re.search(rf"mine.py:{len(TYPED.splitlines())}\b", faults[0])
