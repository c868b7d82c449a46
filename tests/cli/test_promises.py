"""Tables with a promise on the command line: draw rows, label them, find the thresholds, fill the table."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from microagents.elections.laws import expected_votes
from microagents.runs.driver.forecast import OUTPUT_TOKENS
from tests.cli.commands import COMPLETED, UNDECIDED, WRONG_USAGE, Ran, microagents, write

WORLD = """
    import json
    from random import Random
    from microagents import Model, Sample


    class Doubles(Model):
        def __init__(self, error):
            self.error = error

        async def complete(self, call):
            x = int(call.prompt.user.partition("\\n")[0].removeprefix("Double "))
            draw = Random(f"{self.spec} {x} {call.id.seq}")
            error = self.error * (x % 10 == 0)
            return Sample(text=json.dumps({"y": 2 * x + (draw.random() < error)}))


    class Cheap(Doubles):
        spec = "cheap"

        def __init__(self):
            super().__init__(.5)


    class Strong(Doubles):
        spec = "strong"

        def __init__(self):
            super().__init__(.1)


    class Wrong(Doubles):
        spec = "wrong"

        async def complete(self, call):
            x = int(call.prompt.user.partition("\\n")[0].removeprefix("Double "))
            return Sample(text=json.dumps({"y": 2 * x + 1}))

        def __init__(self):
            super().__init__(1)
"""
CHEAP, STRONG = ["--model", "cheap=world.py:Cheap"], ["--model", "strong=world.py:Strong"]
LABELS = Path("out.labels.csv")


def run(*words: str, models: list[str] | None = None) -> tuple[int, str]:
    write("world.py", WORLD)
    asked = ["rows", "--inputs", "in.csv", "-o", "ask=Double {x}", "-o", "columns=y: int", "--format", "json"]
    ran = microagents("run", *asked, "-o", "out.csv", *(CHEAP + STRONG if models is None else models), *words)
    return ran.code, ran.err


def promised(*words: str, models: list[str] | None = None) -> tuple[int, str]:
    return run("--gold", "right=y", "--wrong-at-most", ".05", *words, models=models)


def given(count: int = 400, header: str = "x", row: str = "{0}") -> None:
    write("in.csv", "\n".join([header, *[row.format(x, 2 * x) for x in range(count)], ""]))


def label(count: int, value: str = "{}") -> None:
    with LABELS.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    for each in rows[:count]:
        each["right"] = value.format(2 * int(each["x"]))
    with LABELS.open("w", newline="") as file:
        lines = csv.DictWriter(file, rows[0])
        lines.writeheader()
        lines.writerows(rows)


def table(path: str = "out.csv") -> list[dict[str, str]]:
    with Path(path).open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_a_table_is_filled_with_a_promise_and_each_row_says_by_which_path_it_came() -> None:
    given()
    code, said = promised()
    assert code == UNDECIDED
    assert "at most 5 % of the rows are wrong (90 %) takes 79 to 287 labels of rows drawn at random" in said
    assert " for the table); there are 0 (" in said
    assert not Path("runs").exists(), "nothing was asked"
    drawn, marks = [[each[name] for each in table(str(LABELS))] for name in ("x", "drawn_row")]
    assert len(drawn) == 287
    assert drawn != sorted(drawn, key=int)
    label(100)
    code, said = promised("--trust-columns")
    assert code == COMPLETED, said
    promise = "at most 5 % of the rows are wrong (90 %), if new rows are like the 100 labelled ones, a random sample"
    assert promise in " ".join(said.split())
    rows = table()
    assert sum(int(each["y"]) != 2 * int(each["x"]) for each in rows) <= 20
    paths = Counter(each["settled_by"] for each in rows)
    assert paths.keys() <= {"cheap", "strong"}
    assert paths["cheap"] > 300
    again = promised("--gold-file", str(LABELS), "--trust-columns")
    assert again[0] == COMPLETED, "the same command is answered from the journals"
    before = len(list(Path("runs").iterdir()))
    label(150)
    code, more = promised("--gold-file", str(LABELS), "--trust-columns")
    (name,) = [each.stem for each in Path("runs").glob("*.sqlite") if "-labels" not in each.stem]
    assert (code, more.count("\n")) == (WRONG_USAGE, 1), more
    assert (
        f"{name} fills the table by the promise of its first 100 labels, and there are 150 now; nothing was asked"
        in more
    )
    assert len(list(Path("runs").iterdir())) == before
    shown = microagents("show", name)
    assert promise in " ".join(shown.out.split())
    code, anew = promised("--gold-file", str(LABELS), "--run-id", f"{name}-150", "--output", "anew.csv")
    assert (code, "like the 150 labelled ones" in " ".join(anew.split())) == (COMPLETED, True), anew
    resumed = microagents("resume", name)
    assert resumed.code == COMPLETED, resumed.err
    label(1, "1{}")
    _, said = promised("--gold-file", str(LABELS))
    assert f"1 label changed since both models were asked, and the new ones count: {marks[0]} (" in said, said
    label(1, "")
    code, said = promised("--gold-file", str(LABELS))
    assert code == UNDECIDED
    assert f"1 label removed since both models were asked, and labels count up to the first gap: {marks[0]}" in said
    assert "there are 0" in said
    Path("out.csv").unlink()
    wrong = ["--on-undecided", "leader", "-s", "promise=kept", "-s", "strong=world.py:Strong", "--strategy", "cascade"]
    code, said = run(*wrong, "--run-id", "other", models=["--model", "world.py:Cheap"])
    assert (code, "--on-undecided takes replies that no label tests" in said) == (WRONG_USAGE, True), said


def test_labels_of_the_first_rows_are_no_random_sample() -> None:
    given(header="x,right", row="{0},{1}", count=200)
    with Path("in.csv").open("a") as file:
        file.writelines(f"{x},\n" for x in range(200, 400))
    code, said = promised()
    assert code == UNDECIDED
    assert "labels of the first rows, or chosen by hand, do not count" in said
    assert sum(each["right"] != "" for each in table(str(LABELS))) > 100, "drawn rows keep the labels that they have"


@pytest.mark.slow
def test_models_that_are_too_often_wrong_promise_nothing_whatever_the_labels() -> None:
    given(header="x,right", row="{0},{1}", count=90)
    wrong = ["--model", "cheap=world.py:Wrong", "--model", "strong=world.py:Wrong"]
    code, said = promised(models=wrong)
    assert code == UNDECIDED
    assert "the strong model is too often wrong where its samples agree" in said
    assert not Path("out.csv").exists()


PRICED = "openai:m@base_url=http://127.0.0.1:9/v1,price_in=0,price_out="


def plan(*words: str, models: list[str]) -> Ran:
    write("world.py", WORLD)
    asked = ["rows", "--inputs", "in.csv", "-o", "ask=Double {x}", "-o", "columns=y: int", "--output", "out.csv"]
    return microagents("plan", *asked, "--gold", "right=y", "--wrong-at-most", ".05", *models, *words)


def test_a_plan_of_a_promise_says_labels_calls_and_cost_before_anything_is_bought() -> None:
    given(1000)
    models = ["--model", f"cheap={PRICED}1000", "--model", f"strong={PRICED}20000"]
    ran = plan("--json", "-s", "rule=first-to", "-s", "k_strong=2", models=models)
    found, (cheap, strong) = ran.json, (expected_votes(0.99, 5), expected_votes(0.99, 2))
    assert (ran.code, found["labels"], found["labelled"], found["missing"]) == (1, [79, 287], 0, 79)
    usd = [OUTPUT_TOKENS * price / 1e6 for price in (1000, 20000)]
    assert found["labelling"] == {
        "calls": pytest.approx(79 * (cheap + strong)),
        "usd": pytest.approx(79 * (cheap * usd[0] + strong * usd[1])),
    }
    assert [each["calls"] for each in found["table"]] == pytest.approx([1000 * cheap, 1000 * (cheap + strong)])
    assert [each["usd"] for each in found["table"]] == pytest.approx(
        [1000 * cheap * usd[0], 1000 * (cheap * usd[0] + strong * usd[1])]
    )
    assert found["least_open"] is None
    assert not LABELS.exists()
    assert not Path("runs").exists()
    said = " ".join(plan(models=models).out.split())
    assert "79 labels are missing at least" in said
    assert "$" in said
    given(50)
    assert "'in.csv' has 50 rows" in plan(models=models).err


@pytest.mark.slow
def test_a_plan_of_a_promise_says_by_a_measurement_how_many_rows_must_stay_open() -> None:
    given(header="x,right", row="{0},{1}", count=100)
    asked = ["rows", "--inputs", "in.csv", "-o", "ask=Double {x}", "-o", "columns=y: int", "--gold", "right=y"]
    write("world.py", WORLD)
    measured = microagents("measure", *asked, "--model", "world.py:Wrong", "--run-id", "m")
    assert measured.code == COMPLETED, measured.err
    models = ["--model", "cheap=world.py:Cheap", "--model", "strong=world.py:Wrong"]
    ran = plan("--from", "m", models=models)
    assert ran.code == COMPLETED, ran.err
    assert "rows that must stay open: at least 95.0%" in ran.out
    other = plan("--from", "m", models=CHEAP + STRONG)
    assert (other.code, "the measurement 'm' is of world.py:Wrong; measure world.py:Strong" in other.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "models", "said"),
    [
        ([], CHEAP, "--wrong-at-most needs two models: --model cheap=SPEC --model strong=SPEC"),
        (
            ["--on-undecided", "leader"],
            None,
            "--on-undecided takes replies that no label tests into a table with a promise",
        ),
        (["--wrong-at-most", "5"], None, "are shares between 0 and 1"),
        (["--strategy", "lead"], None, "--wrong-at-most names the strategy"),
        (["--gold", "other"], None, "the gold column 'other' must name a voted field of the reply"),
    ],
)
def test_a_promise_without_its_needs_is_refused_in_one_sentence(
    words: list[str], models: list[str] | None, said: str
) -> None:
    given(80)
    code, told = promised(*words, models=models)
    assert (code, told.count("\n")) == (WRONG_USAGE, 1), told
    assert said in told


def test_labels_that_do_not_fit_are_refused_in_one_sentence() -> None:
    given(90)
    assert promised()[0] == UNDECIDED
    label(90, "about {}")
    code, said = promised("--gold-file", str(LABELS))
    assert (code, said.count("\n")) == (WRONG_USAGE, 1)
    assert "the gold column 'right' has 'about " in said
    assert "and the field y allows" in said
    assert len({each["right"] for each in table(str(LABELS))}) == 90, "the file of labels stays"
    label(90)
    given(91)
    code, said = promised("--gold-file", str(LABELS))
    assert code == UNDECIDED, "the rows that were drawn are there, and the order is another"
    given(90, row="1{0}")
    code, said = promised("--gold-file", str(LABELS))
    assert (code, said.count("\n")) == (WRONG_USAGE, 1)
    assert "is not as it was drawn from 'in.csv'" in said
    LABELS.unlink()
    given(50)
    assert "'in.csv' has 50 rows, and at most 5 % of the rows are wrong (90 %) takes 79 labels" in promised()[1]


def audit(*words: str, said: str = "") -> tuple[int, str, str]:
    ran = microagents("decide", "--audit", "done.csv", *words, stdin=said)
    return ran.code, ran.out, ran.err


def test_an_audit_goes_on_where_it_was_left_and_ends_with_a_bound() -> None:
    rows = "\n".join(f"{x},decided,,{2 * x},{x}" for x in range(2_000))
    write("done.csv", f"x,state,why,y,z\n{rows}\n2000,undecided,open,,\n")
    code, out, _ = audit("--sample", "5", said="y\nwhat\nn\n\n")
    assert code == COMPLETED
    assert out.rstrip().endswith("1 of 2 random decided rows wrong: at most 97.5 % of 2,000 rows are wrong (95 %)"), out
    first = out.split("\n\n")[0]
    code, out, _ = audit("--sample", "100", said="y\n" * 98)
    assert "3 of 100" in out
    assert first not in out
    assert out.rstrip().endswith("1 of 100 random decided rows wrong: at most 4.5 % of 2,000 rows are wrong (95 %)"), (
        out
    )
    code, _, err = audit("--cells")
    assert (code, err.count("\n")) == (WRONG_USAGE, 1)
    with Path("done.csv").open("a") as file:
        file.write("2001,decided,,1,1\n")
    code, _, err = audit()
    assert (code, err.count("\n")) == (WRONG_USAGE, 1)
    assert "the output has changed since its audit began" in err


def test_of_cells_an_audit_judges_one_of_each_row() -> None:
    write("done.csv", "state,row_state,row_why,y,z\n" + "Ohio,decided,,1,2\n" * 50)
    _, out, _ = audit("--cells", said="y\n" * 50)
    assert out.count("y: 1") + out.count("z: 2") == 50
    assert min(out.count("y: 1"), out.count("z: 2")) > 10
    assert "0 of 50 random decided cells wrong: at most " in out
    assert "of 100 cells are wrong (95 %)" in out
    write("empty.csv", "x\n1\n")
    assert "has no row that a run decided" in microagents("decide", "--audit", "empty.csv").err


@pytest.mark.slow
def test_a_row_below_the_score_of_both_models_waits_for_a_person() -> None:
    given(200)
    cascade = ["--strategy", "cascade", "-s", "strong=world.py:Strong", "-s", "cheap_from=1", "-s", "strong_from=1"]
    code, said = run(*cascade, "--trust-columns", "--run-id", "r", models=["--model", "world.py:Cheap"])
    assert code == UNDECIDED, said
    rows = table()
    decided = [each for each in rows if each["state"] == "decided"]
    assert {each["settled_by"] for each in decided} == {"cheap", "strong"}
    assert all(each["y_agreement"].partition("/")[0] == each["samples"] for each in decided)
    first = next(number for number, each in enumerate(rows) if each["state"] == "undecided")
    assert microagents("decide", "r", f"{first}/step/0", '{"y": 7}').code == COMPLETED
    assert microagents("resume", "r", "-o", "again.csv", "--trust-columns").code in (COMPLETED, UNDECIDED)
    again = table("again.csv")[first]
    assert (again["state"], again["y"], again["settled_by"]) == ("decided", "7", "a person")
