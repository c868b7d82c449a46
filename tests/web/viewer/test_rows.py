"""A run on rows as a table: what its page is told of the rows, of their cells, and of all rows at once."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from array import array
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest

from microagents.journal.requests import this_user
from microagents.web.viewer import report
from tests.cli.commands import UNDECIDED, Ran, microagents, started, write
from tests.cli.test_gold import GOLD, ran
from tests.journal.seal import sealed
from tests.web.viewer.test_server import MARKUP, asked, get

ROWS = 60
SHEET = """
    from microagents import Prompt, Reply, RowTask

    class Place(Reply, frozen=True):
        name: str
        country: str
        year: int

    class Sheet(RowTask[Place]):
        def prompt(self, row: dict[str, str]) -> Prompt:
            return Prompt(user=row["place"])

        def expert(self, prompt: Prompt, reply: type[Reply]) -> Place:
            name, _, country = prompt.user.partition(", ")
            return Place(name=name, country=country.upper(), year=1900)

        def oracle(self, row: dict[str, str]) -> Place:
            return self.expert(self.prompt(row), Place)
"""
NOISY = ("-k", "2", "-s", "max_draws=5", "--model", "sim:perfect@error=0.4,flag=0.1", "--run-id", "r")


def run_sheet(
    *words: str, rows: int = ROWS, do: Callable[..., Ran] = microagents, more: str = ""
) -> list[dict[str, Any]]:
    """Run a table with errors; returns the rows of its output. Row 1 has a text like markup, and row 2 equals row 0."""
    write("sheet.py", dedent(SHEET) + indent(dedent(more), "    "))
    places = [f"place {number}, land {number % 7}" for number in range(rows)]
    places[1:3] = [f"{MARKUP}, 50%", places[0]]
    Path("in.jsonl").write_text("".join(json.dumps({"place": each, "no": no}) + "\n" for no, each in enumerate(places)))
    do("run", "sheet.py", "--inputs", "in.jsonl", "-o", "out.jsonl", "--trust-columns", *NOISY, *words)
    return [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]


def all_rows(rows: int = ROWS) -> list[dict[str, Any]]:
    status, _, found = get(f"/api/run/r/rows?of={','.join(map(str, range(rows)))}")
    assert status == 200, found
    return list(found)


def agreements() -> tuple[list[float], list[float]]:
    found = array("f", get("/api/run/r/agreement")[2])
    return list(found[: len(found) // 2]), list(found[len(found) // 2 :])


def test_the_table_says_of_each_cell_what_the_trust_columns_say() -> None:
    written, shown = run_sheet(), all_rows()
    for out, row in zip(written, shown, strict=True):
        assert row["row"] == {name: out[name] for name in ("place", "no")}
        assert (row["samples"], row["settled_by"]) == (out["samples"], out["settled_by"])
        for name, (own, votes) in row["agreement"].items():
            assert out[f"{name}_agreement"] == f"{own}/{votes}"
            assert votes == sum(number for _, number in row["cells"][name])
        assert ", ".join(row["open"]) == (out["open"] or "")
        if row["outcome"] == "completed":
            assert row["reply"] == {name: out[name] for name in ("name", "country", "year")}
    assert {row["outcome"] for row in shown} == {"completed", "undecided"}
    assert any(row["flagged"] for row in shown)


def test_rows_are_ordered_by_their_least_agreement_and_equal_rows_have_that_of_the_first() -> None:
    run_sheet()
    shown, (least, flagged) = all_rows(), agreements()
    for row, share, has_flag in zip(shown, least, flagged, strict=True):
        wanted = min((own / votes for own, votes in row["agreement"].values()), default=0.0)
        assert (round(share, 6), has_flag) == (round(wanted, 6), row["flagged"] > 0)
    assert least[0] == least[2]
    assert 0 < min(least) < max(least) == 1


def test_a_row_without_an_election_has_no_agreement() -> None:
    run_sheet("--max-calls", "12", "--concurrency", "2")
    shown, (least, _) = all_rows(), agreements()
    assert [row["path"] is None for row in shown] == [share == 2 for share in least]
    assert shown[-1] == {**shown[-1], "outcome": None, "cells": {}, "waits": False, "samples": 0}


def test_cells_that_the_oracle_has_otherwise_are_wrong() -> None:
    run_sheet()
    wrong = get("/api/run/r/wrong")[2]
    shown = all_rows()
    assert wrong["wrong"] == [row["input"] for row in shown if row["is_wrong"]] != []
    assert wrong["judged"] == sum(row["reply"] is not None for row in shown)
    assert len(wrong["wrong"]) == microagents("show", "r", "--json").json["errors"]
    for row in shown:
        name, _, country = row["row"]["place"].partition(", ")
        right = {"name": name, "country": country.upper(), "year": 1900}
        if row["reply"] is not None:
            assert row["right"] == {each: value for each, value in right.items() if row["reply"][each] != value}


def test_a_text_is_searched_in_rows_replies_and_reasons_and_not_in_names_of_columns() -> None:
    run_sheet()

    def search(text: str) -> list[int]:
        return list(array("I", asyncio.run(asked("GET", "/api/run/r/search", params={"text": text}))[2]))

    shown = all_rows()
    assert search("land 3") == [number for number in range(3, ROWS) if number % 7 == 3]
    assert search("LAND 3") == search("land 3")
    assert search("50%") == search("<script>") == [1]
    assert search("place 0") == [0, 2], "the second has no row of its own in the journal"
    assert search("undecided") == [row["input"] for row in shown if row["outcome"] == "undecided"]
    assert search("no_") == search("!") == search('{"') == []
    assert search("") == list(range(ROWS))


def test_a_person_decides_cells_and_they_are_marked_before_and_after_the_run_goes_on() -> None:
    run_sheet()
    row = next(each for each in all_rows() if each["waits"])
    field = row["open"][0]
    other = 1234 if field == "year" else "elsewhere"
    value = json.dumps({field: other})
    sent = {"headers": {"authorization": "Bearer t"}, "json": {"path": row["path"], "value": value}}
    assert asyncio.run(asked("POST", "/api/run/r/decide", "t", **sent))[0] == 200
    (waiting,) = get(f"/api/run/r/rows?of={row['input']}")[2]
    assert microagents("resume", "r").code == UNDECIDED
    (taken,) = get(f"/api/run/r/rows?of={row['input']}")[2]
    for found in (waiting, taken):
        assert (found["person"][field], field in found["person_fields"]) == (other, True)
        agreed = {name for name, (own, votes) in found["agreement"].items() if own == votes}
        assert not agreed & set(found["person_fields"]) - {field}
    assert (waiting["reply"], waiting["waits"], waiting["said"]["who"]) == (None, False, this_user())
    assert (taken["reply"], taken["waits"]) == (taken["person"], False)


def test_cells_are_wrong_by_gold_columns() -> None:
    ran("run", "--run-id", "r", *GOLD)
    shown = all_rows(5)
    assert get("/api/run/r/wrong")[2] == {"wrong": [1, 3], "judged": 5}
    assert [row["right"] for row in shown] == [{}, {"kind": "city"}, {}, {"kind": "village"}, {}]
    assert shown[3]["row"] == {"id": "4", "place": "Ulm", "kind": "village", "gold": "3"}


WHOLE = """
    vote_by = "row"

    def result(self, state: dict) -> str:
        return f"{super().result(state)['name']}!"
"""


def test_cells_of_rows_that_are_voted_on_as_a_whole_are_decided_and_results_need_no_fields() -> None:
    run_sheet(more=WHOLE)
    shown = all_rows()
    done, row = (next(each for each in shown if each["waits"] is waits) for waits in (False, True))
    assert done["reply"]["result"].endswith("!")
    assert set(done["cells"]) == {"name", "country", "year"}
    assert "are no replies" in get("/api/run/r/wrong")[2]["note"]
    sent = {"path": row["path"], "value": '{"year": 1234}'}
    decided = asked("POST", "/api/run/r/decide", "t", headers={"authorization": "Bearer t"}, json=sent)
    assert asyncio.run(decided)[0] == 200
    (now,) = get(f"/api/run/r/rows?of={row['input']}")[2]
    assert now["person"] == {**{name: votes[0][0] for name, votes in row["cells"].items()}, "year": 1234}


def test_a_chain_with_an_option_called_row_has_no_table() -> None:
    write("other.py", "from microagents.tasks.drift import Drift\n\nclass Other(Drift):\n    row: dict = {}\n")
    Path("in.jsonl").write_text('{"row": {"a": 1}, "length": 2}\n' * 2)
    microagents("run", "other.py", "--inputs", "in.jsonl", "--model", "sim:perfect", "--run-id", "r")
    assert get("/api/run/r")[2]["is_table"] is False


@pytest.mark.slow
def test_the_table_of_a_stranger_is_shown_without_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    run_sheet(do=started)
    monkeypatch.setenv("XDG_STATE_HOME", str(Path("nobody").absolute()))
    write("sheet.py", "raise SystemExit('imported')")
    shown = all_rows()
    assert len(shown) == ROWS
    assert any(row["open"] for row in shown)
    assert not any(row["is_wrong"] for row in shown)
    assert agreements()[0][0] > 0
    assert "is not marked" in get("/api/run/r/wrong")[2]["note"]


def test_only_rows_of_a_run_on_rows_can_be_read() -> None:
    microagents("run", "drift", "-o", "length=3", "--model", "sim:perfect", "--run-id", "one")
    assert get("/api/run/one")[2]["is_table"] is False
    for path in ("/api/run/one/rows?of=0", "/api/run/r/rows?of=1"):
        assert get(path)[0] == 404
    run_sheet(rows=5)
    assert get("/api/run/r")[2]["is_table"] is True
    for of in ("5", "-1", "x", "0,,x", "9" * 30):
        status, _, body = get(f"/api/run/r/rows?of={of}")
        assert (status, "\n" in body["error"]) == (404, False), of
    assert get("/api/run/r/rows?of=")[2] == []


def test_a_journal_with_other_values_than_a_run_writes_is_refused_in_a_sentence() -> None:
    run_sheet(rows=5)
    for change in (
        "UPDATE decision SET value = '[1]', ballots = NULL",
        "UPDATE decision SET ballots = '[[1]]', counted = 1",
        "UPDATE input SET options = '{\"row\": 3}'",
        "UPDATE input SET result = '[1]'",
        "UPDATE input SET same_as = 99",
        "UPDATE place SET path = '99/step' WHERE path = '1/step'",
    ):
        before = Path("runs/r.sqlite").read_bytes()
        with closing(sqlite3.connect("runs/r.sqlite")) as db, db:
            db.execute(change)
        sealed(Path("runs/r.sqlite"))
        for path in ("rows?of=0,1,2,3,4", "agreement", "search?text=a", "wrong"):
            status, _, body = get(f"/api/run/r/{path}")
            assert status in (200, 404), (change, path)
            if status == 404:
                assert "\n" not in body["error"], (change, path)
        Path("runs/r.sqlite").write_bytes(before)


def test_a_row_that_another_model_settled_has_the_votes_of_that_model() -> None:
    written, shown = run_sheet("--on-undecided", "sim:gpt-4.1-mini"), all_rows()
    least, _ = agreements()
    settled = [row for row in shown if row["settled_by"] == "sim:gpt-4.1-mini"]
    assert (
        [row["input"] for row in settled]
        == [number for number, out in enumerate(written) if out["settled_by"] == "sim:gpt-4.1-mini"]
        != []
    )
    for row in settled:
        assert row["path"].endswith("/step/0/undecided")
        assert row["waits"] is False
        assert row["samples"] == written[row["input"]]["samples"]
        assert round(least[row["input"]], 6) == round(min(own / votes for own, votes in row["agreement"].values()), 6)


def test_a_report_of_a_table_has_its_first_rows_as_the_page_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    run_sheet()

    def told(name: str, most: int) -> tuple[Any, int]:
        monkeypatch.setattr(report, name, most)
        microagents("view", "r", "-o", "r.html")
        content = re.search(r'id="content">(.*?)</script>', Path("r.html").read_text(), re.DOTALL)[1]  # type: ignore[index]
        return json.loads(content), len(content.replace("\\u003c", "<"))

    whole, size = told("MAX_ROWS", 1_000)
    assert whole["rows"] == all_rows()
    assert whole["inputs"] is None, "no dots beside the table"
    assert told("MAX_BYTES", size - 1)[0]["rows"] == all_rows(ROWS // 2)
    assert told("MAX_ROWS", 10)[0]["rows"] == all_rows(10)
