"""Journals that somebody made to do harm, with the right digests: they are refused at once, and without a traceback."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial

import pytest

from microagents import InvalidUsage, MicroagentsError
from microagents.journal.opening import connect_to_read, unreadable
from tests.cli.commands import COMPLETED, microagents
from tests.journal.test_bad_journals import EVERYONE, USES, assert_refused, everyone
from tests.journal.walks import JOURNAL, problems, put, sentence, sql, walk, walked

ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"


def replaced(table: str, by: str) -> None:
    """Put something else in the place of a table."""
    with closing(sqlite3.connect(JOURNAL)) as db:
        db.executescript(f"DROP TABLE {table}; {by}")


@everyone
@pytest.mark.parametrize(
    ("table", "by"),
    [
        ("decision", f"CREATE VIEW decision AS {ENDLESS} SELECT i, x'00', 0, 1, '1', NULL, 0.0, 0 FROM n"),
        ("run", f"CREATE VIEW run AS {ENDLESS} SELECT i, i, i FROM n WHERE i < 0"),
        ("run", "CREATE TABLE run (part, content, digest AS (length(zeroblob(1000000000))))"),
        ("input", "CREATE TABLE input (input INTEGER PRIMARY KEY, options TEXT NOT NULL)"),
        ("place", ""),
    ],
)
def test_another_thing_in_the_place_of_a_table_is_refused_before_it_is_read(who: str, table: str, by: str) -> None:
    put(walked(40, most=60))
    replaced(table, by)
    assert_refused(who, f"the table {table} is missing" if not by else f"{table} is not the table that a run makes")


@everyone
def test_a_trigger_is_refused(who: str) -> None:
    put(walked(40, most=60))
    with closing(sqlite3.connect(JOURNAL)) as db:
        db.execute(f"CREATE TRIGGER slow AFTER UPDATE ON run BEGIN INSERT INTO place {ENDLESS} SELECT i, i FROM n; END")
    assert_refused(who, "it has a trigger called 'slow'")


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE run SET content = replace(content, '\"inputs\":1', '\"inputs\":1000000000000') WHERE part = 'record'",
        "UPDATE run SET content = json_set(content, '$.experiment.inputs', 1000000000000, '$.experiment.listed', json('true'))",
        "UPDATE run SET content = json_set(content, '$.created_at', 'once') WHERE part = 'record'",
        "UPDATE sample SET value = x'00'",
        "UPDATE sample SET seq = -1 - seq",
        "UPDATE sample SET value = '['",
        "UPDATE decision SET counted = 1000001, ballots = NULL",
        'UPDATE run SET content = replace(content, \'"flagged":{\', \'"flagged":{"rude":"much",\') WHERE part = \'account\'',
        "UPDATE run SET content = json_set(content, '$.wall_s', -1) WHERE part = 'account'",
        "UPDATE input SET done = -1",
        "UPDATE place SET id = 1 << 50",
        "UPDATE run SET content = json_set(content, '$.renewals', 'now') WHERE part = 'lease'",
        "UPDATE run SET content = replace(content, '\"renewals\":', '\"renewals\":1000000000000000000000') WHERE part = 'lease'",
    ],
)
@pytest.mark.usefixtures("little_memory")
def test_a_value_that_no_run_writes_is_refused_with_one_sentence(edit: str) -> None:
    put(walked(40, most=61))  # in the middle of an election, so that it has samples
    sql(edit)
    before = JOURNAL.read_bytes()
    raw = []
    uses: dict[str, Callable[[], object]] = {**{name: partial(use, 40) for name, use in USES.items()}, **EVERYONE}
    for name, use in uses.items():
        put(before)
        try:
            use()
        except MicroagentsError as error:
            sentence(error)
            assert JOURNAL.read_bytes() == before
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what must not be
            raw.append((name, repr(error)))
    assert raw == []
    with pytest.raises(InvalidUsage, match="begin another run"):
        USES["resume"](40)
    assert microagents("list").code == COMPLETED


def test_a_run_that_has_no_problems_and_says_that_it_cuts_some_is_shown_without_a_tree() -> None:
    put(walked(40))
    sql("UPDATE run SET content = replace(content, '\"draws_solution\":false', '\"draws_solution\":true')")
    shown = microagents("show", "r")
    assert (shown.code, shown.err) == (COMPLETED, "")
    assert (
        "cannot be drawn: its journal says that it can, but its strategy microagents.systems.chains.maker:Maker does not"
        in shown.out
    )


@pytest.mark.slow
def test_pages_that_lead_back_to_each_other_are_refused() -> None:
    """A page of the table `decision` is the parent of the same leaf, again and again: it holds more rows than the file has room for."""
    put(walked(most=700))
    (root,) = sql("SELECT rootpage FROM sqlite_master WHERE name = 'decision'")[0]
    content = bytearray(JOURNAL.read_bytes())
    at = (root - 1) * 4096
    assert content[at] == 5, "an interior page"
    cells = int.from_bytes(content[at + 3 : at + 5])
    first = int.from_bytes(content[at + 12 : at + 14])
    for cell in range(cells):
        place = int.from_bytes(content[at + 12 + 2 * cell : at + 14 + 2 * cell])
        content[at + place : at + place + 4] = content[at + first : at + first + 4]
    put(bytes(content))
    assert_refused("resume", "r.sqlite", "begin another run")
    assert problems() != []


@pytest.mark.slow
def test_a_read_that_would_not_end_is_broken_off() -> None:
    walk(length=1)
    with closing(connect_to_read(JOURNAL)) as db, pytest.raises(sqlite3.OperationalError) as raised:
        db.execute(f"{ENDLESS} SELECT count(*) FROM n").fetchone()
    assert "more rows than the file has room for" in sentence(unreadable(JOURNAL, raised.value))
