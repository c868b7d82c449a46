"""The task `rows`: a table filled in without a file of code."""

from __future__ import annotations

import csv
import json
import re
from datetime import date
from decimal import Decimal
from pathlib import Path
from random import Random

import pytest

from microagents.base.messages import address_of, resolve
from microagents.elections.races import row_end
from microagents.replies.reply import Reply
from microagents.replies.reply_forms import decoder_of, json_form
from microagents.runs.settings import validated
from microagents.tasks.rows import FillTable, reply_with
from tests.cli.commands import COMPLETED, UNDECIDED, WRONG_USAGE, microagents, write

SPLITTING = """
    import json
    from microagents import Model, Sample


    class Splits(Model):
        async def complete(self, call):
            name, country = call.prompt.user.partition("\\n")[0].removeprefix("Split ").split(", ")
            if country == "?":
                country = f"unknown {call.id.seq}"
            return Sample(text=json.dumps({"name": name, "country": country, "year": None, "kind": "city"}))
"""
COLUMNS = "columns=name, country, year: int?, kind: city|village"


def run(*words: str) -> tuple[int, str]:
    write("splits.py", SPLITTING)
    write("in.csv", "id,place\n1,Paris, France\n".replace("Paris, France", '"Paris, France"') + '2,"Rome, Italy"\n')
    ran = microagents("run", "rows", "--inputs", "in.csv", "--model", "splits.py:Splits", "--run-id", "r", *words)
    return ran.code, ran.err


def test_a_table_is_filled_in_by_one_command_and_resumed_without_a_call() -> None:
    code, said = run("--output", "out.csv", "-o", "ask=Split {place}", "-o", COLUMNS)
    assert code == COMPLETED, said
    with Path("out.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["country"] for row in rows] == ["France", "Italy"]
    assert [*rows[0]] == ["id", "place", "state", "why", "name", "country", "year", "kind"]
    shown = microagents("show", "r", "--verify")
    assert (shown.code, "digests match" in shown.out) == (COMPLETED, True), shown.err
    again = microagents("resume", "r", "-o", "again.csv")
    assert again.code == COMPLETED, again.err
    assert Path("again.csv").read_bytes() == Path("out.csv").read_bytes()


def test_an_open_cell_is_named_with_its_votes() -> None:
    write("unsure.py", SPLITTING)
    write("in.csv", 'place\n"Atlantis, ?"\n')
    words = ["--model", "unsure.py:Splits", "-o", "ask=Split {place}", "-o", COLUMNS, "-s", "max_draws=4"]
    ran = microagents("run", "rows", "--inputs", "in.csv", *words)
    assert ran.code == UNDECIDED
    assert 'open: country (1 x "unknown 0", 1 x "unknown 1", 1 x "unknown 2", 1 x "unknown 3")' in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ask=Split {plac}", COLUMNS], "has no column 'plac', which FillTable.prompt needs; it has id, place"),
        (
            ["ask=Split", "columns=name: texts"],
            "the type 'texts'; known are text, int, decimal, date, bool, and other words, each once, with |",
        ),
        (["ask=Split", "columns=a b"], "'a b' in columns cannot be read"),
        (["ask=Split", "columns=a, a: int"], "columns name 'a' twice"),
        (["ask=Split", "columns=a,"], "'' in columns cannot be read"),
        (["ask=Split", "columns=a: x|x"], "the type 'x|x'"),
        (["ask=Split", "columns=a: int|text"], "the type 'int|text'"),
        (["ask=Split", "columns=vote"], "'vote' in columns is a name with a meaning"),
        (["ask=Split", "columns=__doc__"], "'__doc__' in columns is a name with a meaning"),
        (["ask=Split", "columns=class"], "'class' in columns is a name with a meaning"),
        (["ask=Split {place", "columns=a"], "'{place' in ask has a brace that is not around the name of a column"),
        (["ask=Split {}", "columns=a"], "'{}' in ask has a brace"),
        (["ask=Split { }", "columns=a"], "'{ }' in ask has a brace"),
        (["ask=Split", "columns=a", "fiels=b"], "no option of task 'rows' named 'fiels'; did you mean 'files'?"),
        (["ask=Split"], "task 'rows' needs columns; give it with -o columns=VALUE"),
        (["ask= ", "columns=a"], "ask must be a question, not blanks"),
    ],
)
def test_columns_that_cannot_be_read_or_are_not_there_are_refused(words: list[str], said: str) -> None:
    code, error = run(*[part for word in words for part in ("-o", word)])
    assert (code, len(error.splitlines()), said in error) == (WRONG_USAGE, 1, True), error
    assert "line 2" not in error  # the fault is not in a row


def test_doubled_braces_of_a_question_are_braces() -> None:
    options = {"ask": 'Say {{"name": { place }}}', "columns": "a", "row": {"place": "Rome"}}
    assert validated(FillTable, "rows", options).prompt({"place": "Rome"}).user == 'Say {"name": Rome}'


def test_each_type_of_a_column_reads_its_values_and_no_others() -> None:
    reply = reply_with("a, b: int, c: decimal, d: date?, e: bool, f: x|y, g: int[]?, h: text[]")
    text = b'{"a":"t","b":1,"c":"1.50","d":"2024-02-29","e":true,"f":"x","h":["u"]}'
    found = decoder_of(reply).decode(text)
    values = [getattr(found, name) for name in "abcdefgh"]
    assert values == ["t", 1, Decimal("1.50"), date(2024, 2, 29), True, "x", None, ["u"]]
    with pytest.raises(ValueError, match="Invalid enum value 'z'"):
        decoder_of(reply).decode(text.replace(b'"x"', b'"z"'))


@pytest.mark.parametrize("more", [0, 200])
def test_a_class_of_replies_is_found_at_its_address_by_another_process(more: int) -> None:
    columns = ["größe: decimal", "tag: date", *(f"column_{number}" for number in range(more))]
    address = address_of(reply_with(", ".join(columns)))
    reply_with.cache_clear()
    assert resolve(address, Reply).__struct_fields__[:2] == ("größe", "tag")


@pytest.mark.filterwarnings("error")
def test_rows_are_made_from_python_with_the_class_of_their_columns() -> None:
    ask, columns = "Where is {place}?", "größe: groß|klein"
    (task,) = FillTable.rows([{"place": "Rome"}], ask=ask, columns=columns)
    assert task == FillTable(row={"place": "Rome"}, ask=ask, columns=columns)
    assert json_form(type(task).reply_type()) == '{"größe": "groß" or "klein"}'


def test_a_question_without_columns_is_followed_by_the_row() -> None:
    task = validated(FillTable, "rows", {"ask": "Where is it?", "columns": "a", "row": {"place": "Rome", "n": 2}})
    assert task.prompt(task.row).user == "Where is it?\n\nplace: Rome\nn: 2"


COUNTING = """
    import json
    from microagents import Model, Prompt, Reply, RowTask, Sample


    class Word(Reply, frozen=True):
        word: str


    class Ask(RowTask[Word]):
        def prompt(self, row):
            return Prompt(user=row["place"])


    class Flagging(Ask):
        def flag(self, row, reply):
            return None


    class Answers(Model):
        async def complete(self, call):
            return Sample(text='word = "x"' if "bad" not in call.prompt.user else "none")
"""


def counted(*words: str) -> dict[str, object]:
    write("counting.py", COUNTING)
    write("in.csv", "id,place\n1,Rome\n2,Bern\n3,Rome\n4,bad\n5,bad\n6,Rome\n")
    model = ["--model", "counting.py:Answers", "-s", "max_draws=4", "--json"]
    found: dict[str, object] = microagents("run", *words, "--inputs", "in.csv", "--run-id", "r", *model).json
    return {name: found[name] for name in ("calls", "shared", "inputs_done", "outcome")}


@pytest.mark.parametrize(
    ("words", "calls", "shared"),
    [
        (["counting.py:Ask"], 3 + 3 + 4, 2),
        (["counting.py:Ask", "--share", "off"], 4 * 3 + 2 * 4, 0),
        (["counting.py:Flagging"], 4 * 3 + 2 * 4, 0),
        (["counting.py:Ask", "--concurrency", "1"], 3 + 3 + 4, 2),
    ],
)
def test_rows_that_ask_the_same_are_asked_once(words: list[str], calls: int, shared: int) -> None:
    assert counted(*words) == {"calls": calls, "shared": shared, "inputs_done": 4, "outcome": "undecided"}


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("seed", range(3))
def test_each_row_ends_once_also_while_the_ending_of_its_equal_is_passed_on(seed: int) -> None:
    write("ends.py", COUNTING)
    rng = Random(seed)
    places = [rng.choice([f"{rng.choice(['bad', 'Rome'])} {number // 3}", f"new {number}"]) for number in range(60)]
    write("in.csv", "id,place\n" + "".join(f"{number},{place}\n" for number, place in enumerate(places)))
    words = ["--inputs", "in.csv", "--model", "ends.py:Answers", "-s", "max_draws=4", "--concurrency", "2", "--stream"]
    lines = [json.loads(line) for line in microagents("run", "ends.py:Ask", *words).out.splitlines()]
    assert sorted(line["input"] for line in lines) == list(range(60))


def test_a_person_who_decides_a_row_decides_its_equals() -> None:
    counted("counting.py:Ask")
    decided = microagents("decide", "r", "3/step/0", '{"word": "y"}')
    assert decided.code == COMPLETED, decided.err
    resumed = microagents("resume", "r", "-o", "out.csv", "--json")
    assert (resumed.code, resumed.json["shared"], resumed.json["calls"]) == (COMPLETED, 3, 10), resumed.err
    with Path("out.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["word"], row["why"]) for row in rows[3:5]] == [("y", ""), ("y", "asks the same as input 3")]


UNSURE = """
    import json
    from microagents import Model, Sample


    class Unsure(Model):
        async def complete(self, call):
            state = "a" if call.id.seq != 1 or "Rome" in call.prompt.user else "b"
            code = call.id.seq if "Bern" in call.prompt.user else 7
            return Sample(text=json.dumps({"state": state, "code": code}))
"""


def test_trust_columns_say_how_sure_each_cell_is_and_take_no_name_of_another_column() -> None:
    write("sure.py", UNSURE)
    write("in.csv", "place,samples\nRome,x\nParis,x\nBern,x\nRome,x\n")
    words = ["-o", "ask=Where is {place}?", "-o", "columns=state, code: int", "--trust-columns", "-s", "max_draws=6"]
    ran = microagents("run", "rows", "--inputs", "in.csv", "-o", "out.csv", "--model", "sure.py:Unsure", *words)
    assert ran.code == UNDECIDED, ran.err
    with Path("out.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["samples"] for row in rows] == ["x"] * 4
    shown = ("row_state", "state", "state_agreement", "code_agreement", "row_samples", "settled_by", "open")
    assert [tuple(row[name] for name in shown) for row in rows] == [
        ("decided", "a", "3/3", "3/3", "3", "vote", ""),
        ("decided", "a", "4/5", "5/5", "5", "vote", ""),
        ("undecided", "", "5/6", "1/6", "6", "", "code"),
        ("decided", "a", "3/3", "3/3", "3", "shared", ""),
    ]


@pytest.mark.slow
def test_rows_without_an_oracle_are_tried_and_measured_by_their_agreement_each_row_by_itself() -> None:
    write("sure.py", UNSURE)
    write("in.csv", "place\nParis\nParis\nRome\n")
    words = [
        "--inputs",
        "in.csv",
        "--model",
        "sure.py:Unsure",
        "-o",
        "ask=Where is {place}?",
        "-o",
        "columns=state, code: int",
    ]
    tried = microagents("try", "rows", *words)
    assert tried.code == COMPLETED, tried.err
    assert "it replies in the form asked for; whether rightly is not known without an oracle" in tried.out
    measured = microagents("measure", "rows", *words)
    assert measured.code == COMPLETED, measured.err
    assert "differ   at 2 of 3: 0, 1" in measured.out
    assert "no chance and no k; they need the task's `oracle`" in measured.out


def test_a_person_decides_the_open_cells_of_a_row_and_the_others_stay_as_they_lead() -> None:
    write("sure.py", UNSURE)
    write("in.csv", "place\nBern\n")
    words = ["-o", "ask=Where is {place}?", "-o", "columns=state, code: int", "-s", "max_draws=6", "--run-id", "r"]
    ran = microagents("run", "rows", "--inputs", "in.csv", "-o", "out.csv", "--model", "sure.py:Unsure", *words)
    assert ran.code == UNDECIDED, ran.err
    shown = microagents("show", "r", "0/step/0")
    assert "open: code: 1 x 0, 1 x 1, 1 x 2" in shown.out
    assert 'state: 5 x "a", 1 x "b"' in shown.out
    queue = microagents("decide", "r", stdin="cod=1\ncode=12\n")
    assert "there is no field of Filled called 'cod'; did you mean 'code'?" in queue.out
    assert "Say the open fields, such as code=0; the others stay as they lead." in queue.out
    resumed = microagents("resume", "r")
    assert resumed.code == COMPLETED, resumed.err
    with Path("out.csv").open(encoding="utf-8-sig", newline="") as file:
        assert [(row["state"], row["code"]) for row in csv.DictReader(file)] == [("a", "12")]
    assert 'decided for {"state":"a","code":12}' in microagents("show", "r", "0/step/0").out


JUDGED = """
    import json
    from random import Random
    from microagents import Model, Prompt, Reply, RowTask, Sample


    class Six(Reply, frozen=True):
        a: int
        b: int
        c: int
        d: int
        e: int
        f: int


    class Fill(RowTask[Six]):
        format = "json"

        def prompt(self, row):
            return Prompt(user=f"Row {row['n']}")

        def oracle(self, row):
            return Six(a=0, b=0, c=0, d=0, e=0, f=0)


    class Errs(Model):
        async def complete(self, call):
            rng = Random(f"{call.id.election.path}/{call.id.seq}")
            return Sample(text=json.dumps({name: int(rng.random() > 0.85) for name in "abcdef"}))
"""


@pytest.mark.slow
def test_a_measurement_of_rows_judges_each_field_and_promises_by_the_law_of_votes_by_field() -> None:
    write("judged.py", JUDGED)
    write("in.csv", "n\n" + "".join(f"{number}\n" for number in range(40)))
    measured = microagents("measure", "judged.py:Fill", "--inputs", "in.csv", "--model", "judged.py:Errs")
    assert measured.code == COMPLETED, measured.err
    assert "p            0.3" in measured.out  # of whole rows, so votes on these would hurt
    assert "\nfield  right\na      0." in measured.out
    said = re.search(r"at k = 3 by field: (.*) calls a row, all fields right in (.{6}),", measured.out)
    assert said is not None
    end = row_end([0.85] * 6, 3, 100)
    assert float(said[1]) == pytest.approx(end.draws, rel=0.25)
    assert float(said[2]) == pytest.approx(end.right, abs=0.03)
    assert "verdict  votes help" in measured.out


PROSE = """
    import json
    from typing import Annotated
    from microagents import Model, Prompt, Reply, RowTask, Sample, Unvoted


    class Noted(Reply, frozen=True):
        name: str
        note: Annotated[str, Unvoted]


    class Note(RowTask[Noted]):
        format = "json"

        def prompt(self, row):
            return Prompt(user=row["place"])


    class Rambles(Model):
        async def complete(self, call):
            return Sample(text=json.dumps({"name": "x", "note": f"words {call.id.seq}"}))
"""


def test_a_field_without_a_vote_has_no_agreement_and_settles_nothing() -> None:
    write("prose.py", PROSE)
    write("in.csv", "place\nRome\n")
    words = ["-o", "out.csv", "--model", "prose.py:Rambles", "--trust-columns"]
    ran = microagents("run", "prose.py:Note", "--inputs", "in.csv", *words)
    assert ran.code == COMPLETED, ran.err
    with Path("out.csv").open(encoding="utf-8-sig", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["note"], row["name_agreement"], row["settled_by"]) == ("words 0", "3/3", "vote")
    assert "note_agreement" not in row


CERTAIN = """
    import json
    from math import log
    from microagents import Model, Sample
    from microagents.replies.masses import Mass, digest_of_text


    class Tells(Model):
        async def complete(self, call):
            text = json.dumps({"name": "x", "land": "y"})
            assert call.needs_mass
            return Sample(text=text, mass=Mass(log=log(0.9), text=digest_of_text(text)))
"""


def test_votes_by_field_ask_for_the_masses_that_certify_them() -> None:
    write("tells.py", CERTAIN)
    write("in.csv", "place\n" + "".join(f"{number}\n" for number in range(8)))
    words = ["-o", "ask=Split {place}", "-o", "columns=name, land", "-s", "certain=on", "--json"]
    ran = microagents("run", "rows", "--inputs", "in.csv", "--model", "tells.py:Tells", *words)
    assert ran.code == COMPLETED, ran.err
    assert ran.json["calls"] < 3 * 8
