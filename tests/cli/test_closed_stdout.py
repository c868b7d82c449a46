"""Commands whose reader leaves before they have written all, as `head` does."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

import pytest

from microagents.cli import GROUPS
from microagents.cli.reporting import READER_LEFT
from tests.cli.commands import COMPLETED, INTERRUPTED, WAIT_S, Ran, microagents, write
from tests.forking import Forked

DRIFT = ("drift", "-o", "length=3", "--model", "sim:perfect")
WORDS: Sequence[tuple[str, ...]] = (
    ("init", "x.py"),
    ("try", *DRIFT[:3], "--model", "sim:perfect", "--steps", "3"),
    ("run", *DRIFT),
    ("run", *DRIFT, "--json", "--no-journal"),
    ("resume", "r"),
    ("list",),
    ("list", "--json"),
    ("show", "r"),
    ("show", "r", "--json"),
    ("show", "r", "0/step/1"),
    ("view", "r", "-o", "out.html"),
    ("view", "r", "--no-open"),
    ("decide", "r"),
    ("export", "r"),
    ("export", "r", "--format", "csv"),
    ("doctor",),
    ("measure", *DRIFT, "--steps", "3", "--runs-dir", "measured"),
    ("plan", "--p", "0.99", "--steps", "100"),
    ("compare", *DRIFT, "-k", "1", "--repeat", "2"),
    ("step", *DRIFT),
    ("graph", "drift"),
    ("ctl", "r", "status"),
    ("rm", "r", "--yes"),
    ("serve", "drift", "--port", "0"),
    ("--help",),
    ("run", "--help-all"),
    ("--version",),
)


def without_reader(*words: str) -> Ran:
    """The command with a stdout that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed, Forked(*words, stdout=closed) as process:
        _, err = process.communicate(timeout=WAIT_S)
    return Ran(process.returncode, "", err)


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_a_command_without_a_reader_ends_without_a_word(words: tuple[str, ...]) -> None:
    assert microagents("run", *DRIFT, "--run-id", "r").code == COMPLETED
    ran = without_reader(*words)
    assert (ran.code, ran.err) == (READER_LEFT, "")


def test_every_command_is_tried() -> None:
    assert {words[0] for words in WORDS if words[0][0] != "-"} == {name for names in GROUPS.values() for name in names}


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
