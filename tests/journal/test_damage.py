"""Damage of journals: rows are refused by their place, before a byte is changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from microagents import InvalidUsage
from microagents.journal.sharded import reader_of
from microagents.runs.inspection.decision import inspect_decision
from microagents.runs.inspection.runs import decide, inspect_run
from tests.benchmarks.damage import USES, Left, damaged, journals, used
from tests.journal.walks import (
    JOURNAL,
    RUNS,
    decisions,
    digests,
    go_on,
    on_disk,
    problems,
    put,
    sentence,
    sql,
    undisturbed,
    walk,
    walked,
)


@pytest.fixture(scope="module")
def left() -> Iterator[tuple[Sequence[Left], Path]]:
    with journals() as found:
        yield found


@pytest.mark.slow
def test_no_damage_gives_other_results_and_what_is_refused_is_left_as_it_is_to_the_byte(
    left: tuple[Sequence[Left], Path],
) -> None:
    """The whole set, for hours: ``python -m tests.benchmarks.damage``."""
    there, folder = left
    wrong = []
    for number in range(6):
        random = Random(number)
        one, use = random.choice(there), random.choice(USES)
        name, files = damaged(one, random)
        found = used(one, files, use, folder)
        if found.wrong is not None:
            wrong.append((number, one.name, name, use.__name__, found.wrong))
    assert wrong == []


def changed(statement: str) -> None:
    """Change rows as a damaged disk does: without their checksums."""
    with closing(sqlite3.connect(JOURNAL)) as db, db:
        assert db.execute(statement).rowcount


def test_a_persons_decision_that_is_lost_is_noticed() -> None:
    (path,) = walk(length=3, models="sim:perfect@error=0.5,alternatives=1,flag=0.8", k=9).account.undecided_at
    decide(RUNS, "r", path, '{"number": 5}')
    changed("DELETE FROM log WHERE kind = 'decide'")
    with pytest.raises(InvalidUsage, match="rows of the table input or log are missing"):
        go_on()


KEY = "(SELECT key FROM decision LIMIT 1 OFFSET 9)"


ROWS = "rows of input 0 are missing, or differ from its digest"


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (f"UPDATE decision SET value = replace(value, ':', ':1') WHERE key = {KEY}", ROWS),
        (f"UPDATE decision SET cost_usd = 7 WHERE key = {KEY}", ROWS),
        (f"UPDATE decision SET key = -1 WHERE key = {KEY}", "the row of -1 in the table decision"),
        (
            f"UPDATE decision SET value = x'ff' WHERE key = {KEY}",
            "in the table decision has a value that no run writes",
        ),
        (f"UPDATE decision SET value = CAST(x'22ff22' AS TEXT) WHERE key = {KEY}", "0xff"),
        ("UPDATE sample SET value = '{\"number\":7}' WHERE value NOT LIKE '\"%'", ROWS),
        ("UPDATE reply SET seq = seq + 100", ROWS),
        ("UPDATE place SET path = '0/stop'", ROWS),
        ("UPDATE input SET done = done - 1", "the row of 0 in the table input"),
        ("UPDATE input SET state = replace(state, ':', ':1')", "the row of 0 in the table input"),
        (
            "UPDATE run SET content = json_set(content, '$.wall_s', 99) WHERE part = 'account'",
            "'account' in the table run",
        ),
        ("UPDATE run SET content = json_set(content, '$.epoch', 7) WHERE part = 'lease'", "'lease' in the table run"),
        (
            "UPDATE run SET content = json_set(content, '$.created_at', 'once') WHERE part = 'record'",
            "'record' in the table run",
        ),
        (f"DELETE FROM decision WHERE key = {KEY}", ROWS),
        ("DELETE FROM reply WHERE key = (SELECT max(key) FROM reply)", ROWS),
        ("DELETE FROM sample", ROWS),
    ],
)
def test_a_resume_names_the_damage_and_changes_nothing(statement: str, said: str) -> None:
    put(walked(most=203))
    changed(statement)
    before = on_disk()
    with pytest.raises(InvalidUsage, match="left as it is; begin another run") as raised:
        go_on(max_calls=None)
    assert said in sentence(raised.value)
    assert on_disk() == before


def shown() -> None:
    with reader_of(RUNS, "r") as reader:
        inspect_decision(reader, "0/step/9")


@pytest.mark.slow
def test_one_digit_of_a_recorded_value_is_seen_by_all_who_read_it() -> None:
    put(walked())
    ((value,),) = sql("SELECT value FROM decisions WHERE path = '0/step/9'")
    other = value.replace(value[-2], "1" if value[-2] != "1" else "2")
    changed(f"UPDATE decision SET value = '{other}' WHERE key = {KEY}")
    for read in (decisions, lambda: list(inspect_run(RUNS, "r").decisions()), shown):
        with pytest.raises(InvalidUsage, match=ROWS):
            read()
    assert problems() == [ROWS]


def test_an_input_of_an_earlier_commit_that_came_back_is_seen() -> None:
    walk(max_calls=100)
    (early,) = sql("SELECT * FROM input")
    go_on(max_calls=300)
    with closing(sqlite3.connect(JOURNAL)) as db, db:
        db.execute("DELETE FROM input")
        db.execute(f"INSERT INTO input VALUES ({','.join('?' * len(early))})", early)
    assert problems() == [ROWS, "rows of the table input or log are missing, or differ from the last commit"]
    with pytest.raises(InvalidUsage, match=ROWS):
        go_on(max_calls=None)


@pytest.mark.slow
def test_a_journal_whose_log_was_lost_is_a_beginning_or_is_refused() -> None:
    walk(max_calls=300)
    with closing(sqlite3.connect(JOURNAL)) as db:
        db.execute("PRAGMA journal_mode = WAL")
    assert [path.name for path in JOURNAL.parent.glob("r.*")] == ["r.sqlite"]
    before = on_disk()
    assert problems() == []
    assert on_disk() == before, "a reader makes no log and no index of one"
    assert digests(go_on(max_calls=None).account) == undisturbed()
