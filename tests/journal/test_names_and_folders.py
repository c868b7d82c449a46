"""Names at which there can be no journal, and folders that several runs make at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Thread

import pytest

from microagents.journal.store import Store
from tests.cli.commands import COMPLETED, STOPPED, WRONG_USAGE, microagents, write
from tests.journal.walks import JOURNAL, RUNS, opened, walk


def linked(name: str, to: str) -> None:
    (RUNS / name).symlink_to(to)


@pytest.mark.parametrize(
    "words", [("show",), ("resume",), ("export",), ("list", "--yes", "--remove")], ids=lambda words: words[0]
)
@pytest.mark.parametrize("name", ["nowhere", "itself", "n" * 248, "n" * 255, "n" * 5000])
def test_a_run_that_cannot_be_there_is_said_not_to_be_there(name: str, words: tuple[str, ...]) -> None:
    walk(length=1)
    linked("nowhere.sqlite", "missing.sqlite")
    linked("itself.sqlite", "itself.sqlite")
    ran = microagents(*words, name)
    assert f"there is no run '{name}'" in ran.reason


@pytest.mark.parametrize("words", [("show",), ("resume",), ("export",)], ids=lambda words: words[0])
def test_the_file_of_a_journal_is_answered_with_the_name_of_its_run(words: tuple[str, ...]) -> None:
    walk(length=1)
    for file in ("runs/r.sqlite", "r.sqlite", str(JOURNAL.resolve())):
        ran = microagents(*words, file)
        assert (ran.code, f"{file!r} is the file of a journal; name its run: r" in ran.err) == (WRONG_USAGE, True)
    assert microagents("show", "runs/r.sqlite", "--runs-dir", "other").err.endswith("name its run: r --runs-dir runs\n")


def test_list_names_links_that_lead_nowhere_and_goes_on() -> None:
    walk(length=1)
    linked("nowhere.sqlite", "missing.sqlite")
    linked("itself.sqlite", "itself.sqlite")
    (RUNS / f"{'n' * 248}.sqlite").write_bytes(JOURNAL.read_bytes())
    listed = microagents("list")
    assert (listed.code, len(listed.out.splitlines())) == (COMPLETED, 4)
    assert listed.out.count("cannot be opened") == 2


@pytest.mark.parametrize(
    "words",
    [
        "list --runs-dir {}",
        "show r --runs-dir {}",
        "run hanoi --runs-dir {}",
        "run {}",
        "run {}.py",
        "run hanoi --strategy {}",
        "run writing -o brief=Why? -o output={}.txt",
        "init {}",
    ],
)
@pytest.mark.parametrize("name", ["n" * 300, "itself"])
def test_a_name_that_no_file_can_have_is_refused_in_one_sentence_on_every_python(name: str, words: str) -> None:
    for each in ("itself", "itself.py", "itself.svg", "itself.txt"):
        Path(each).symlink_to(each)
    ran = microagents(*words.format(name).split())
    assert (ran.code in (WRONG_USAGE, STOPPED), ran.out, len(ran.err.splitlines())) == (True, "", 1), ran.err
    assert not RUNS.exists()


def test_a_folder_that_cannot_be_read_is_not_said_to_be_empty() -> None:
    Path("file").touch()
    assert "the folder 'file' cannot be read: not a directory" in microagents("list", "--runs-dir", "file").err
    for folder in ("n" * 300, "file", "file/runs"):
        assert "journals cannot be written into" in microagents("try", "--setup", "--runs-dir", folder).out


def together(count: int, begin: Callable[[int], Store]) -> list[str]:
    """Open stores at the same moment; gives what went wrong."""
    barrier, errors = Barrier(count), []

    def one(number: int) -> None:
        barrier.wait()
        try:
            begin(number).close()
        except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
            errors.append(repr(error))

    threads = [Thread(target=one, args=(number,)) for number in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return errors


@pytest.mark.slow
def test_eight_runs_that_begin_at_once_make_one_folder(tmp_path: Path) -> None:
    for turn in range(20):
        folder = tmp_path / f"{turn}" / "of" / "runs"

        def begin(number: int, folder: Path = folder) -> Store:
            return opened(folder / f"{number}.sqlite")

        assert together(8, begin) == []
        assert {path.name for path in folder.iterdir()} == {".gitignore", *(f"{number}.sqlite" for number in range(8))}


def test_names_that_are_not_in_utf8_hold_a_journal_and_stand_in_none() -> None:
    other = os.fsdecode(b"caf\xe9")
    assert microagents("run", "hanoi", "-o", "disks=2", "--runs-dir", other, "--run-id", "r").code == COMPLETED
    write("towers.jsonl", '{"disks": 1}\n')
    refused = microagents("run", "hanoi", "--inputs", "towers.jsonl", "-o", f"{other}.csv", "--run-id", "named")
    assert (refused.code, "is not in UTF-8" in refused.err) == (WRONG_USAGE, True)
    assert microagents("show", "named").code == WRONG_USAGE
