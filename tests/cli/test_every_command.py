"""What holds for every command: its reader may leave before it has written all, and its folder may lead nowhere."""

from __future__ import annotations

import json
import os
import sys
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
    ("resume", "r"),
    ("list",),
    ("show", "r"),
    ("show", "r", "0/step/1"),
    ("view", "r", "-o", "out.html"),
    ("decide", "r"),
    ("export", "r"),
    ("measure", *DRIFT, "--steps", "3"),
    ("plan", "--p", "0.99", "--steps", "100"),
    ("compare", *DRIFT, "-k", "1", "--repeat", "2"),
    ("try", "--one", *DRIFT),
    ("show", "drift", "--graph"),
    ("ctl", "r", "status"),
    ("list", "--remove", "r", "--yes"),
    ("serve", "--model", "openai:m@base_url=http://127.0.0.1:9/v1", "--port", "0"),
    ("--help",),
)


ANYWHERE = ("init", "plan", "serve", "--one", "--graph", "--help")
"""Words of commands that use no folder of runs here."""


def without_reader(*words: str) -> Ran:
    """The command with a stdout that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed, Forked(*words, stdout=closed) as process:
        _, err = process.communicate(timeout=WAIT_S)
    return Ran(process.returncode, "", err)


@pytest.mark.slow
@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_a_command_without_a_reader_ends_without_a_word(words: tuple[str, ...]) -> None:
    assert microagents("run", *DRIFT, "--run-id", "r").code == COMPLETED
    ran = without_reader(*words)
    assert (ran.code, ran.err) == (READER_LEFT, "")


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux's")
def test_a_command_whose_stdout_is_a_full_disk_says_so_in_one_sentence() -> None:
    with Path("/dev/full").open("wb") as full, Forked("plan", "--p", "0.99", "--steps", "100", stdout=full) as process:
        _, err = process.communicate(timeout=WAIT_S)
    said = "microagents: stdout was not written to its end: no space left on device; runs stay in their journals\n"
    assert (process.returncode, err) == (STOPPED, said)


@pytest.mark.parametrize("words", [words for words in WORDS if not {*ANYWHERE} & {*words}], ids=" ".join)
def test_a_folder_that_is_a_link_to_itself_gets_one_sentence(words: tuple[str, ...]) -> None:
    Path("loop").symlink_to("loop")
    ran = microagents(*words, env={"MICROAGENTS_RUNS_DIR": "loop"})
    assert (ran.code in (WRONG_USAGE, STOPPED), ran.err.count("\n"), "loop" in ran.err) == (True, 1, True), ran.err
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
    write("in.jsonl", "".join(f'{{"length": {length}}}\n' for length in range(2, 12)))
    words = ("run", "drift", "--inputs", "in.jsonl", "--stream", "--concurrency", "1", "--run-id", "r")
    with Forked(*words, "--model", "sim:perfect@latency=0.01") as process:
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
