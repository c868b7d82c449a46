"""Gold columns: right values in the rows of a file that judge replies and reach no prompt."""

from __future__ import annotations

import json
from datetime import date
from typing import Literal

import pytest
from msgspec import structs

from microagents import Call, Model, Prompt, Reply, RowTask, Sample, run_sync
from microagents.base.plain_values import read_cell
from tests.cli.commands import COMPLETED, WRONG, WRONG_USAGE, Ran, microagents, write

FILLING = """
    import json
    from microagents import Model, Sample


    class Fills(Model):
        async def complete(self, call):
            assert "gold" not in call.prompt.user, call.prompt.user
            place = call.prompt.user.rpartition("place: ")[2].partition("\\n")[0]
            kind = "village" if place == "Bonn" else "city"
            return Sample(text=json.dumps({"kind": kind, "size": len(place)}))
"""
ROWS = """id,place,kind,gold
1,Paris,city,5
2,Bonn,city,4
3,Rome,,
4,Ulm,village,3
5,Nice,city,
"""
ASKED = ["-o", "ask=What is it?", "-o", "columns=kind: city|village, size: int?"]
GOLD = ["--gold", "kind", "--gold", "gold=size"]


def ran(command: str, *words: str, rows: str = ROWS) -> Ran:
    write("fills.py", FILLING)
    write("in.csv", rows)
    return microagents(command, "rows", "--inputs", "in.csv", "--model", "fills.py:Fills", *ASKED, *words)


def test_gold_columns_judge_rows_and_fields_say_what_was_confused_and_reach_no_prompt() -> None:
    found = ran("run", "--run-id", "r", "--json", *GOLD)
    assert (found.code, found.json["right"], found.json["errors"], found.json["checked"]) == (WRONG, False, 2, 4)
    accuracy = found.json["accuracy"]
    assert (accuracy["judged"], accuracy["right"]) == (4, 2)
    assert {name: each["share"] for name, each in accuracy["fields"].items()} == {"kind": 0.5, "size": 1.0}
    pairs = [(each["field"], each["right"], each["given"], each["count"]) for each in accuracy["confused"]]
    assert pairs == [("kind", "city", "village", 1), ("kind", "village", "city", 1)]
    shown = microagents("show", "r")
    assert "4 of them checked by its gold columns; 2 of 4 steps WRONG, the first at input 1" in shown.out
    assert shown.rows["accuracy"].startswith("2 of 4 judged rows right, 50.0% (15.0% to 85.0%); kind 50.0% (")
    assert 'right -> given: kind: "city" -> "village" (1), kind: "village" -> "city" (1)' in shown.rows["accuracy"]
    assert microagents("show", "r", "--json").json["accuracy"] == accuracy


def test_a_resumed_run_keeps_its_gold_columns() -> None:
    stopped = ran("run", "--run-id", "r", "--max-calls", "6", "--concurrency", "1", *GOLD)
    assert "--max-calls 6 is reached" in stopped.err
    resumed = microagents("resume", "r", "--max-calls", "inf", "--json")
    assert (resumed.json["accuracy"]["judged"], resumed.json["accuracy"]["right"]) == (4, 2)


@pytest.mark.parametrize(
    ("words", "rows", "said"),
    [
        (
            ["--gold", "kin=kind"],
            ROWS,
            "the gold column 'kin' of 'in.csv' is missing, or empty in every row; the first row has id, place, kind, gold;",
        ),
        (["--gold", "place=name"], ROWS, "must name a voted field of the reply that no other one names, not 'name'"),
        (
            ["--gold", "kind"],
            ROWS.replace("4,Ulm,village", "4,Ulm,town"),
            "line 5 of 'in.csv': the gold column 'kind' has 'town', and the field kind allows \"city\" or \"village\"",
        ),
        (["--gold", "gold=size"], ROWS.replace(",5\n", ",five\n"), "has 'five', and the field size allows <integer>"),
        (
            ["--gold", "kind"],
            "place,kind\nRome,\nUlm, \n",
            "the gold column 'kind' of 'in.csv' is missing, or empty in every row",
        ),
        (
            ["--gold", "kind", "-o", "ask=A {kind}?"],
            ROWS,
            "has no column 'kind', which FillTable.prompt needs; it has id",
        ),
    ],
)
@pytest.mark.parametrize("command", ["run", "measure", "compare", "try"])
def test_gold_that_cannot_judge_is_refused_in_one_sentence(
    command: str, words: list[str], rows: str, said: str
) -> None:
    found = ran(command, *words, rows=rows)
    assert (found.code, said in found.reason) == (WRONG_USAGE, True), found.err


@pytest.mark.parametrize("words", [[], ["--inputs", "in.jsonl"]])
def test_gold_of_other_work_than_rows_is_refused(words: list[str]) -> None:
    write("in.jsonl", '{"disks": 3}\n')
    found = microagents("run", "hanoi", "--gold", "disks", *words)
    assert (found.code, "rows" in found.reason) == (WRONG_USAGE, True), found.err


@pytest.mark.slow
def test_a_measurement_samples_rows_with_gold_and_judges_each_field() -> None:
    found = ran("measure", "--json", *GOLD).json["models"][0]
    assert (found["steps"], found["judged"], found["p"]["share"]) == (4, True, pytest.approx(0.5, abs=0.2))
    assert {name: each["share"] for name, each in found["fields"].items()} == {"kind": 0.5, "size": 1.0}
    confused = {(each["right"], each["given"]): each["count"] for each in found["confused"]}
    assert confused == {("city", "village"): 10, ("village", "city"): 10}
    said = ran("measure", *GOLD).out
    assert 'right -> given (samples): kind: "city" -> "village" (10)' in said


def test_a_comparison_counts_rows_that_are_right_by_gold_among_those_that_have_it() -> None:
    found = ran("compare", "-k", "1", "-k", "2", *GOLD)
    assert found.code == COMPLETED, found.err
    assert found.out.count("2 of 4  50.0%") == 2
    assert 'right -> given: kind: "city" -> "village" (1)' in found.out
    row = ran("compare", "-k", "1", "-k", "2", "--json", *GOLD).json["rows"][0]
    assert (row["solved"], row["judged"], row["repeat"], row["accuracy"]["fields"]["size"]["share"]) == (2, 4, 5, 1.0)


def test_a_comparison_of_rows_that_nothing_judges_says_so_and_how_far_replies_agree() -> None:
    rows = ROWS.replace("gold", "number")
    found = ran("compare", "-k", "1", "-k", "2", rows=rows)
    assert found.code == COMPLETED, found.err
    assert "? (5 completed)" in found.out
    assert "nothing is judged: replies that agree may be wrong alike" in found.out
    first, second = ran("compare", "-k", "1", "-k", "2", "--json", rows=rows).json["rows"]
    assert (first["agreement"], second["agreement"], second["valid"], second["solved"]) == (None, 1.0, 1.0, None)


def test_equal_rows_with_different_gold_are_each_judged_by_their_own() -> None:
    rows = "place,kind\nRome,city\nRome,village\nRome,city\n"
    found = ran("run", "--json", "--gold", "kind", rows=rows).json
    assert (found["accuracy"]["judged"], found["accuracy"]["right"], found["shared"]) == (3, 2, 1)


class Cleaned(Reply, frozen=True):
    name: str

    def __post_init__(self) -> None:
        if not self.name.islower():
            structs.force_setattr(self, "name", self.name.lower())


class Clean(RowTask[Cleaned]):
    def prompt(self, row: dict[str, str]) -> Prompt:
        return Prompt(user=json.dumps(row))


class Lowers(Model):
    async def complete(self, call: Call) -> Sample:
        assert "truth" not in call.prompt.user
        return Sample(text=f"name = {json.dumps(json.loads(call.prompt.user)['n'])}")


def test_gold_is_read_as_the_reply_reads_its_values_in_python_too_also_without_a_journal() -> None:
    rows = Clean.rows([{"n": "paris", "truth": "Paris"}, {"n": "rom", "truth": "Rome"}], gold={"truth": "name"})
    result = run_sync(rows, models=Lowers(), runs_dir=None)
    assert result.accuracy is not None
    assert (result.accuracy.right, result.accuracy.judged, result.right) == (1, 2, False)
    assert [(each.right, each.given) for each in result.accuracy.confused] == [("Rome", "rom")]


def test_blanks_around_a_cell_are_a_part_of_texts_alone() -> None:
    assert (read_cell(Literal["city"], " city\u00a0"), read_cell(date, " 2030-01-02 ")) == ("city", date(2030, 1, 2))
    assert read_cell(str, " city ") == " city "


def test_a_try_shows_the_first_five_rows_with_prompt_reply_and_fields() -> None:
    rows = "place,kind\n" + "".join(f"{name},city\n" for name in ("Paris", "Bonn", "Rome", "Ulm", "Nice", "Oslo"))
    found = ran("try", "--gold", "kind", rows=rows)
    lines = [line.split() for line in found.out.splitlines()]
    head = lines.index(["input", "prompt", "reply", "kind", "size", "right"])
    assert [line[0] for line in lines[head + 1 : head + 6]] == ["0", "1", "2", "3", "4"]
    assert lines[head + 1][-3:] == ['"city"', "5", "yes"]
    assert lines[head + 2][-3:] == ['"village"', "4", "WRONG"]
    assert not lines[head + 6]
    shown = ran("try", "--json", rows=rows.replace("kind", "sort")).json["rows"]
    assert [each["user"] for each in shown][1] == "What is it?\n\nplace: Bonn\nsort: city"
    assert [reply["vote"]["kind"] for each in shown for reply in each["replies"]][:2] == ["city", "village"]


def test_a_question_about_any_row_of_a_file_is_shown_in_full() -> None:
    shown = ran("try", "--one", "--input", "1", "-k", "1", *GOLD)
    assert (shown.code, "place: Bonn" in shown.out, "gold:" in shown.out) == (COMPLETED, True, False)
    assert "decided, WRONG by the task's own oracle; 1 call" in shown.out
    assert "input 9 is not there; inputs are numbered from 0 to 4" in ran("try", "--one", "--input", "9").reason


JUDGING = """
    import json
    from microagents import Model, Prompt, Reply, RowTask, Sample


    class Size(Reply, frozen=True):
        name: str
        size: int


    class Sizes(RowTask[Size]):
        def prompt(self, row):
            return Prompt(user=row["n"])

        def oracle(self, row):
            return Size(name=row["n"], size=len(row["n"]))


    class Near(Sizes):
        def correct(self, row, reply):
            return abs(reply.size - len(row["n"])) <= 1


    class NeverAsked(Sizes):
        def oracle(self, row):
            raise RuntimeError("gold columns take my place")


    class OneTooMany(Model):
        async def complete(self, call):
            size = len(call.prompt.user)
            return Sample(text=f"name = {json.dumps(call.prompt.user)}\\nsize = {size + size // 4}")
"""


@pytest.mark.parametrize(
    ("task", "words", "right", "shares", "confused"),
    [
        ("Sizes", [], 1, {"name": 1.0, "size": 0.5}, [(4, 5)]),
        pytest.param("Near", [], 2, {"name": 1.0, "size": 1.0}, [], marks=pytest.mark.slow),
        ("NeverAsked", ["--gold", "s=size"], 1, {"size": 0.5}, [(5, 3)]),
    ],
)
def test_an_oracle_judges_by_field_too_unless_gold_columns_or_a_check_of_ones_own_do(
    task: str, words: list[str], right: int, shares: dict[str, float], confused: list[tuple[int, int]]
) -> None:
    write("sizes.py", JUDGING)
    write("in.csv", "n,s\nUlm,5\nRome,5\n")
    given = (f"sizes.py:{task}", "--inputs", "in.csv", "--model", "sizes.py:OneTooMany", "--json", *words)
    found = microagents("run", *given).json["accuracy"]
    assert (found["right"], {name: each["share"] for name, each in found["fields"].items()}) == (right, shares)
    assert [(each["right"], each["given"]) for each in found["confused"]] == confused
    assert microagents("compare", *given, "-k", "1").json["rows"][0]["solved"] == right
    assert microagents("measure", *given).json["models"][0]["p"]["share"] == pytest.approx(right / 2, abs=0.26)
