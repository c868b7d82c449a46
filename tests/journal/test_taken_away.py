"""A live run whose journal is taken away: it stops at once, and a copy goes on."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from microagents import Result
from microagents.journal import live_files
from microagents.journal.messages import RecordedDecision
from tests.benchmarks.taken_away import (
    IN_FLIGHT,
    WAYS,
    copy_of,
    folder_removed,
    log_truncated,
    older_written_over,
    removed,
    take_away,
)
from tests.benchmarks.taken_away import undisturbed as undisturbed_process
from tests.journal.walks import JOURNAL, MODEL, RUNS, digests, go_on, problems, sql, undisturbed, walk

Way = Callable[[Path, Path], None]
LENGTH = 40
PACED = f"{MODEL},latency=0.002"
"""A model whose run commits between its steps: else one commit may hold them all, and an older copy lacks nothing."""


def walk_without(way: Way) -> Result:
    """A walk whose journal is taken away amid it, after an older copy was made."""
    decided = 0

    def on_decision(_: RecordedDecision) -> None:
        nonlocal decided
        decided += 1
        if decided == LENGTH // 4:
            copy_of(JOURNAL, Path("older"))
        if decided == LENGTH // 2:
            way(JOURNAL, Path("older"))

    return walk(length=LENGTH, models=PACED, on_decision=on_decision, speculate=False)


def copies() -> list[Path]:
    return [each.absolute() for each in Path().rglob("r.saved-*/r.sqlite")]


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_run_without_its_journal_stops_and_its_copy_goes_on_to_the_same_end(way: Way) -> None:
    stopped = walk_without(way)
    (copy,) = copies()
    assert (stopped.outcome, stopped.journal) == ("stopped", copy)
    assert f"saved in {str(copy)!r}; resume run r with --runs-dir {copy.parent}" in str(stopped.reason)
    assert (copy.stat().st_mode & 0o777, copy.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert problems(copy) == []
    assert digests(go_on(runs_dir=copy.parent, trust_journal=False).account) == undisturbed(LENGTH)


@pytest.mark.slow
@pytest.mark.parametrize("way", [removed, log_truncated, older_written_over])
def test_at_most_the_calls_in_flight_are_bought_after_it(way: Way, tmp_path: Path) -> None:
    bought = take_away(way, tmp_path, undisturbed_process())
    assert bought is None or bought <= IN_FLIGHT


@pytest.mark.slow
def test_a_log_that_is_cut_amid_a_commit_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    check, commits = live_files.JournalFiles.check_content, 0

    def check_and_cut(files: live_files.JournalFiles) -> None:
        nonlocal commits
        check(files)
        commits += files._rows.db.in_transaction
        if files._rows.db.in_transaction and commits == LENGTH // 2:
            log_truncated(JOURNAL, JOURNAL)

    monkeypatch.setattr(live_files.JournalFiles, "check_content", check_and_cut)
    stopped = walk(length=LENGTH, models=PACED, speculate=False)
    (copy,) = copies()
    assert (stopped.outcome, stopped.journal) == ("stopped", copy)
    assert digests(go_on(runs_dir=copy.parent, trust_journal=False).account) == undisturbed(LENGTH)


def test_a_file_that_is_put_in_the_place_of_the_journal_is_left_as_it_is() -> None:
    walk_without(older_written_over)
    assert JOURNAL.read_bytes() == Path("older").read_bytes()
    assert sorted(each.name for each in RUNS.glob("r.sqlite*")) == ["r.sqlite"]
    assert problems() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [lambda: os.utime(JOURNAL), lambda: sql("CREATE VIEW ours AS SELECT path FROM place"), problems],
    ids=["touched", "a view", "read"],
)
def test_a_journal_that_still_holds_all_rows_is_written_on(change: Callable[[], object]) -> None:
    def changing(_journal: Path, _older: Path) -> None:
        change()

    ended = walk_without(changing)
    assert (digests(ended.account), copies(), problems()) == (undisturbed(LENGTH), [], [])


def test_a_copy_goes_where_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    elsewhere = tmp_path / "elsewhere"
    monkeypatch.setattr(live_files, "_folders", lambda _: iter((tmp_path / "file", elsewhere)))
    stopped = walk_without(folder_removed)
    assert stopped.journal is not None
    assert stopped.journal.is_relative_to(elsewhere)
    assert problems(stopped.journal) == []


def test_where_no_copy_can_be_written_nobody_is_sent_to_resume_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(live_files, "_folders", lambda _: iter((tmp_path / "file",)))
    stopped = walk_without(removed)
    assert "could not be saved in" in str(stopped.reason)
    assert (stopped.journal, stopped.go_on) == (None, None)
