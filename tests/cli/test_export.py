"""`microagents export`: the decisions of a run as rows of jsonl, csv and parquet."""

from __future__ import annotations

import csv
import json
import sqlite3
from contextlib import closing
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import COMPLETED, WRONG_USAGE, Ran, microagents

NOISY = (
    *("drift", "-o", "length=12", "--model", "sim:perfect@error=0.4,flag=0.3,price_out=1", "-k", "2"),
    *("--run-id", "r"),
)
STALEMATE = ("drift", "--model", "sim:perfect@error=0.02,alternatives=1", "-s", "max_draws=3", "--run-id", "r")


def exported(*words: str) -> list[dict[str, Any]]:
    ran = microagents("export", "r", *words)
    assert (ran.code, ran.err) == (COMPLETED, "")
    return [json.loads(line) for line in ran.out.splitlines()]


def assert_refused(ran: Ran, said: str) -> None:
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (WRONG_USAGE, "", 1)
    assert said in ran.err


def test_each_decision_is_a_row_and_the_rows_add_up_to_the_account() -> None:
    run = microagents("run", *NOISY, "--json").json
    rows = exported()
    assert [row["path"] for row in rows] == [f"0/step/{step}" for step in range(12)]
    assert {(row["run_id"], row["input"], row["outcome"]) for row in rows} == {("r", 0, "decided")}
    assert rows[-1]["value"] == {"number": run["result"]["number"]}
    assert sum(row["votes"] for row in rows) == run["valid"]
    assert sum(sum(row["flags"].values()) for row in rows) == sum(run["flagged"].values())
    assert sum(row["other_votes"] for row in rows) > 0
    assert all(row["votes"] - row["other_votes"] >= 2 for row in rows)
    assert 0 < sum(row["cost_usd"] for row in rows) <= run["cost_usd"]
    assert all(row["input_ended_at"] >= run["created_at"] for row in rows)


def test_a_file_whose_ending_names_no_format_is_refused_and_a_written_one_is_named() -> None:
    microagents("run", *NOISY)
    assert_refused(microagents("export", "r", "-o", "rows.xlsx"), "end it in .jsonl, .csv, .parquet, or give --format")
    ran = microagents("export", "r", "-o", "rows.csv")
    assert (ran.code, ran.out, ran.err) == (COMPLETED, "", "written to rows.csv\n")


def test_csv_holds_the_same_rows_with_a_column_for_each_field() -> None:
    microagents("run", *NOISY)
    rows, plain = list(csv.DictReader(StringIO(microagents("export", "r", "--format", "csv").out))), exported()
    assert [name.partition(".")[0] for name in rows[0]] == sorted(
        [name.partition(".")[0] for name in rows[0]], key=list(plain[0]).index
    )
    for row, right in zip(rows, plain, strict=True):
        flags = {name.partition(".")[2]: int(each) for name, each in row.items() if name[:6] == "flags." and each}
        assert (int(row["value.number"]), flags) == (right["value"]["number"], right["flags"])
        assert (row["path"], int(row["votes"]), float(row["cost_usd"]), row["settled_by"]) == (
            right["path"],
            right["votes"],
            right["cost_usd"],
            "",
        )


def test_parquet_holds_the_same_rows() -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    microagents("run", *NOISY)
    microagents("export", "r", "--format", "parquet", "--output", "r.parquet")
    rows = parquet.read_table("r.parquet").to_pylist()
    assert [row | {name: json.loads(row[name]) for name in ("value", "flags")} for row in rows] == exported()


def test_without_pyarrow_parquet_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("microagents.base.packages.find_spec", lambda _: None)
    microagents("run", *NOISY)
    assert_refused(microagents("export", "r", "--output", "r.parquet"), "pip install pyarrow")
    assert not Path("r.parquet").exists()


@pytest.mark.slow
def test_what_was_undecided_says_by_whom_and_when_it_was_settled() -> None:
    (path,) = microagents("run", *STALEMATE, "--json").json["undecided_at"]
    last = exported()[-1]
    assert (last["path"], last["outcome"], last["value"], last["votes"], last["other_votes"]) == (
        path,
        "undecided",
        None,
        3,
        None,
    )
    microagents("decide", "r", path, '{"number": 5}')
    microagents("resume", "r", "--on-undecided", "leader")
    rows = {row["path"]: row for row in exported()}
    assert (rows[path]["outcome"], rows[path]["value"]) == ("person", {"number": 5})
    assert "@" in rows[path]["settled_by"]
    assert rows[path]["settled_at"] is not None
    leaders = [row for row in rows.values() if row["outcome"] == "leader"]
    assert leaders
    assert {(row["settled_by"], row["settled_at"]) for row in leaders} == {("leader", None)}


def test_an_existing_file_is_kept_and_a_folder_that_is_not_there_is_named() -> None:
    microagents("run", *NOISY)
    Path("mine.csv").write_text("mine", encoding="utf-8")
    assert_refused(
        microagents("export", "r", "--format", "csv", "--output", "mine.csv"), "'mine.csv' exists; it was kept"
    )
    assert Path("mine.csv").read_text(encoding="utf-8") == "mine"
    assert_refused(microagents("export", "r", "--output", "nowhere/r.jsonl"), "'nowhere/r.jsonl' cannot be written")
    assert_refused(microagents("export", "nobody"), "there is no run 'nobody'")


def test_a_damaged_row_ends_the_export_with_one_sentence_and_leaves_no_file() -> None:
    microagents("run", *NOISY)
    with closing(sqlite3.connect("runs/r.sqlite", isolation_level=None)) as db:
        db.execute("UPDATE decision SET value = '{' WHERE key = (SELECT max(key) FROM decision)")
    ran = microagents("export", "r", "--output", "r.jsonl")
    assert (ran.code, len(ran.err.splitlines()), Path("r.jsonl").exists()) == (WRONG_USAGE, 1, False)
