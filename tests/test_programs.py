"""Each command, and each program among the tests, explains itself with ``--help`` and does nothing else."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from microagents.cli import COMMANDS
from tests.benchmarks import all as benchmarks
from tests.cli.commands import WAIT_S, microagents

ROOT = Path(__file__).parents[1]
PROGRAMS = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "tests").rglob("*.py"))
    if not path.name.startswith("test_") and "\nif __name__ == " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("command", ["", *COMMANDS.addresses])
def test_every_command_explains_itself(command: str) -> None:
    ran = microagents(*command.split(), "--help")
    assert (ran.code, ran.err, ran.out.strip().startswith("Usage: ")) == (0, "", True)


EXPLAIN = """
import argparse, runpy, sys

parse = argparse.ArgumentParser.parse_args
argparse.ArgumentParser.parse_args = lambda *given: parse(*given) and sys.exit(0)
for words in sys.argv[1:]:
    sys.argv = words.split()
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        print(end=f"{ended.code}\\0")
"""
"""All in one process: most of the time of each is its imports."""


@pytest.mark.slow
def test_every_program_explains_itself_and_every_short_form_has_options_that_exist(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    needs = {"tests.pictures_of_pages": "playwright", "tests.training": "torch"}
    programs = [f"{each} --help" for each in PROGRAMS if each not in needs or find_spec(needs[each])]
    short = [f"tests.benchmarks.{name} {each.words}" for name, each in benchmarks.SHORT.items()]
    ran = subprocess.run(
        [sys.executable, "-c", EXPLAIN, *programs, *short],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    said = ran.stdout.split("\0")[:-1]
    explained = said[: len(programs)]
    assert [(each.strip().lower().partition(" ")[0], each[-1]) for each in explained] == [("usage:", "0")] * len(
        programs
    ), ran.stderr
    assert said[len(programs) :] == ["0"] * len(short), ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_every_benchmark_has_a_short_form_or_a_reason_for_none() -> None:
    names = [each.rpartition(".")[2] for each in PROGRAMS if each.startswith("tests.benchmarks.")]
    assert sorted(names) == sorted(["all", *benchmarks.SHORT, *benchmarks.LEFT_OUT])


@pytest.mark.parametrize(
    ("code", "printed", "said"),
    [
        (0, "; 0 wrong, 5 votes; ratio 1.0", []),
        (0, "; 1 wrong, 5 votes; ratio 1.0", ["wrong decisions: 1, expected 0 to 0"]),
        (0, "; 0 wrong, 5 votes\nsolved .9 OUTSIDE", ["solved .9 OUTSIDE", "votes beyond k / the law: not printed"]),
        (1, "a\nValueError: b\n", ["exit code 1: ValueError: b"]),
    ],
)
def test_what_moved_in_a_benchmark_is_said_and_ends_with_1(
    code: int, printed: str, said: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(benchmarks, "run_one", lambda *_: (code, printed))
    assert benchmarks.main(["--short", "tower"]) == bool(said)
    first, *others = capsys.readouterr().out.splitlines()
    assert first.endswith("MOVED" if said else "as expected")
    assert [each.strip() for each in others[:-1]] == said
