"""What holds for every command: its reader may leave before it has written all, and its folder may lead nowhere."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from microagents.cli import GROUPS
from microagents.cli.reporting import READER_LEFT
from tests.cli.commands import COMPLETED, INTERRUPTED, STOPPED, WAIT_S, WRONG_USAGE, Ran, microagents, write
from tests.forking import Forked

DRIFT = ("drift", "-o", "length=3", "--model", "sim:perfect")
WORDS: Sequence[tuple[str, ...]] = (
    ("init", "x.py"),
    ("try", *DRIFT[:3], "--model", "sim:perfect", "--steps", "3"),
    ("run", *DRIFT),
    ("run", *DRIFT, "--json"),
    ("resume", "r"),
    ("list",),
    ("list", "--json"),
    ("show", "r"),
    ("show", "r", "--json"),
    ("show", "r", "0/step/1"),
    ("view", "r", "-o", "out.html"),
    ("view", "r", "--no-open"),
    ("view", "--no-open"),
    ("decide", "r"),
    ("export", "r"),
    ("export", "r", "--format", "csv"),
    ("try", "--setup"),
    ("measure", *DRIFT, "--steps", "3"),
    ("plan", "--p", "0.99", "--steps", "100"),
    ("compare", *DRIFT, "-k", "1", "--repeat", "2"),
    ("try", "--one", *DRIFT),
    ("show", "drift", "--graph"),
    ("ctl", "r", "status"),
    ("list", "--remove", "r", "--yes"),
    ("serve", "drift", "--port", "0"),
    ("--help",),
    ("--version",),
)


ANYWHERE = ("init", "plan", "serve", "--setup", "--one", "--graph", "--help", "--version")
"""Words of commands that use no folder of runs here."""


QUICK = ("run", "list", "show", "ctl", "--help")
"""Commands that quick tests try: one of each way to write, and one that uses no folder."""
TRIED = [
    words if words[0] in QUICK and "--json" not in words else pytest.param(words, marks=pytest.mark.slow)
    for words in WORDS
]


def without_reader(*words: str) -> Ran:
    """The command with a stdout that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed, Forked(*words, stdout=closed) as process:
        _, err = process.communicate(timeout=WAIT_S)
    return Ran(process.returncode, "", err)


@pytest.mark.slow
@pytest.mark.parametrize("words", TRIED, ids=" ".join)
def test_a_command_without_a_reader_ends_without_a_word(words: tuple[str, ...]) -> None:
    assert microagents("run", *DRIFT, "--run-id", "r").code == COMPLETED
    ran = without_reader(*words)
    assert (ran.code, ran.err) == (READER_LEFT, "")


@pytest.mark.slow
@pytest.mark.parametrize("words", TRIED, ids=" ".join)
def test_a_folder_that_is_a_link_to_itself_gets_one_sentence(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("loop").symlink_to("loop")
    monkeypatch.setenv("MICROAGENTS_RUNS_DIR", "loop")
    ran = without_reader(*words)
    uses_folder = not {*ANYWHERE} & {*words} and words != ("view", "--no-open")
    assert ran.err.count("\n") == uses_folder, ran.err
    assert ("loop" in ran.err) == uses_folder
    assert ran.code in ((WRONG_USAGE, STOPPED) if uses_folder else (READER_LEFT,))
    assert "space" not in ran.err


def test_a_folder_may_be_named_like_an_address() -> None:
    where = ("--runs-dir", "./file:x?mode=ro#y%41")
    assert microagents("run", *DRIFT, "--run-id", "r", "--max-calls", "3", *where).code == STOPPED
    for words in (
        ("resume", "r", "--max-calls", "inf"),
        ("show", "r", "--verify"),
        ("export", "r"),
        ("ctl", "r", "status"),
    ):
        assert microagents(*words, *where).code == COMPLETED, words
    assert microagents("list", *where).out.startswith("r  completed")
    assert microagents("list", "--remove", "r", "--yes", *where).code == COMPLETED
    assert "there is no run in" in microagents("list", *where).out


def test_every_command_is_tried() -> None:
    assert {words[0] for words in WORDS if words[0][0] != "-"} == {name for names in GROUPS.values() for name in names}


@pytest.mark.slow
def test_a_run_whose_stream_is_left_saves_and_can_be_resumed() -> None:
    write("in.jsonl", "".join(f'{{"length": {length}}}\n' for length in range(2, 40)))
    words = ("run", "drift", "--inputs", "in.jsonl", "--stream", "--concurrency", "1", "--run-id", "r")
    with Forked(*words, "--model", "sim:perfect@latency=0.001") as process:
        assert process.stdout
        first = json.loads(process.stdout.readline())
        process.stdout.close()
        err = process.stderr.read() if process.stderr else ""
        assert process.wait(WAIT_S) == INTERRUPTED
    assert (first["input"], first["outcome"]) == (0, "completed")
    assert "microagents resume r" in err
    assert not {"Traceback", "BrokenPipe"} & {*err.split()}
    assert microagents("resume", "r").code == COMPLETED
    assert microagents("show", "r", "--verify").code == COMPLETED
