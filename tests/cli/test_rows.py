"""Rows in, rows out: a table becomes the inputs of a run, and the same table with the results."""

from __future__ import annotations

import csv
import gzip
import json
import signal
import sys
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from microagents import InvalidUsage, RowTask, run_sync
from microagents.runs.row_files import opened, read_rows
from microagents.runs.row_forms import cell, ending_of
from tests.cli.commands import COMPLETED, UNDECIDED, WRONG_USAGE, Sitting, microagents, write

CLEAN = """
    from microagents import Prompt, Reply, RowTask


    class Cleaned(Reply, frozen=True):
        name: str
        length: int


    class Clean(RowTask[Cleaned]):
        def prompt(self, row):
            return Prompt(system="Clean.", user="City: " + row["city"])

        def flag(self, row, reply):
            return "refused" if "bad" in row["city"] and "good" not in reply.name else None

        def oracle(self, row):
            return Cleaned(name=row["city"].strip().title(), length=len(row["city"]))

        def expert(self, prompt, reply):
            return self.oracle({"city": prompt.user.removeprefix("City: ").partition("\\n\\nReason")[0]})
"""
HARD = [["1", "m\u00fcnchen"], ["2", 'the "old" town,\r\nby the river'], ["3", ""], ["4", " \u2028rome "]]


def table(name: str, *rows: list[str], separator: str = ",", encoding: str = "utf-8") -> None:
    write("clean.py", CLEAN.replace("\\\\n", "\\n"))
    with Path(name).open("w", encoding=encoding, newline="") as file:
        csv.writer(file, delimiter=separator).writerows(rows)


def read(name: str, separator: str = ",") -> list[dict[str, str]]:
    with Path(name).open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file, delimiter=separator))


def clean(*words: str) -> Any:
    return microagents("run", "clean.py", "--model", "sim:perfect", "--run-id", "r", *words)


@pytest.mark.parametrize(
    ("file", "separator", "encoding"),
    [("in.csv", ",", "utf-8"), ("in.tsv", "\t", "utf-8")],
)
def test_a_table_keeps_its_columns_and_gets_those_of_the_reply(file: str, separator: str, encoding: str) -> None:
    table(file, ["id", "city"], *HARD, separator=separator, encoding=encoding)
    output = f"out{Path(file).suffix.lower()}"
    ran = clean("--inputs", file, "-o", output)
    assert (ran.code, ran.out) == (COMPLETED, ""), ran.err
    assert "right: 4 of 4 inputs" in microagents("list").out
    beginning = "id,city,state,why,name,length\r\n1,münchen,".replace(",", separator)
    assert Path(output).read_bytes().removeprefix(b"\xef\xbb\xbf").startswith(beginning.encode())
    assert Path(output).read_bytes().startswith(b"\xef\xbb\xbf") is (output == "out.csv")
    for row, (number, city) in zip(read(output, separator), HARD, strict=True):
        cleaned = {"name": city.strip().title(), "length": str(len(city))}
        assert row == {"id": number, "city": city, "state": "decided", "why": "", **cleaned}


def test_lines_of_json_are_rows_too_and_nothing_is_escaped() -> None:
    table("any.csv", ["city"])
    Path("in.jsonl").write_text('{"city": "k\u00f6ln", "name": 7}\n', encoding="utf-8")
    assert clean("--inputs", "in.jsonl", "--output", "out.jsonl").code == COMPLETED
    (row,) = map(json.loads, Path("out.jsonl").read_text(encoding="utf-8").splitlines())
    assert row == {
        "city": "k\u00f6ln",
        "name": 7,
        "state": "decided",
        "why": None,
        "name_reply": "K\u00f6ln",
        "length": 4,
    }
    for words in (("show", "r", "--json"), ("export", "r"), ("export", "r", "--format", "csv")):
        assert "K\u00f6ln" in microagents(*words).out, words


def test_rows_that_wait_are_marked_and_a_resume_fills_them_in() -> None:
    table("in.csv", ["city"], ["bad one"], ["rome"], ["bad two"])
    ran = clean("--inputs", "in.csv", "-o", "out.csv", "-s", "max_draws=5")
    assert ran.code == UNDECIDED
    assert [(row["state"], row["name"]) for row in read("out.csv")] == [
        ("flagged", ""),
        ("decided", "Rome"),
        ("flagged", ""),
    ]
    assert "microagents decide r 0/step/0" in read("out.csv")[0]["why"]
    assert microagents("decide", "r", "0/step/0", '{"name": "good", "length": 7}').code == COMPLETED
    microagents("resume", "r")
    assert [(row["state"], row["name"]) for row in read("out.csv")] == [
        ("decided", "good"),
        ("decided", "Rome"),
        ("flagged", ""),
    ]
    assert [row["state"] for row in read("out.csv")].count("decided") == 2
    assert microagents("resume", "r", "--output", "other.tsv").code == UNDECIDED
    assert [row["name"] for row in read("other.tsv", "\t")] == ["good", "Rome", ""]


def test_a_completed_run_writes_an_output_that_is_missing_or_new() -> None:
    table("in.csv", ["city"], ["rome"])
    assert clean("--inputs", "in.csv", "-o", f"{'x' * 251}.csv").code == COMPLETED
    written = Path(f"{'x' * 251}.csv").rename("kept.csv").read_bytes()
    assert microagents("resume", "r").code == microagents("resume", "r", "-o", "new.csv").code == COMPLETED
    assert Path(f"{'x' * 251}.csv").read_bytes() == Path("new.csv").read_bytes() == written
    assert (ran := microagents("resume", "r", "--output", "new.xlsx")).code == WRONG_USAGE, ran.err


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([["id", "town"], ["1", "x"]], "'in.csv' has no column 'city', which Clean.prompt needs; it has id, town"),
        ([["city", "id", "city"], ["a", "1", "b"]], "the column 'city' stands twice in the header of 'in.csv'"),
        ([["city", "id"], ["a", "1"], ["b"]], "line 3 of 'in.csv' has 1 cells, and its header 2 columns"),
    ],
)
def test_a_table_that_does_not_fit_gets_one_sentence(rows: list[list[str]], said: str) -> None:
    table("in.csv", *rows)
    ran = clean("--inputs", "in.csv", "-o", "out.csv")
    assert (ran.code, said in ran.err, len(ran.err.splitlines())) == (WRONG_USAGE, True, 1), ran.err
    assert not Path("out.csv").exists()
    assert not Path("runs/r.sqlite").exists()


@pytest.mark.parametrize(
    ("content", "output", "said"),
    [
        (b'city\n"never closed\n', "out.csv", "cannot be read as a table in UTF-8: unexpected end of data"),
        (b"city\nrome\n", "in.csv", "in.csv' exists; it was kept"),
        (
            b"city\nrome\n",
            "no/out.csv",
            "no/out.csv' cannot be written: no such file or directory; nothing was started",
        ),
        (b"city\nrome\n", f"{'x' * 300}.csv", "cannot be written: file name too long; nothing was started"),
        ("city\nz\u00fcrich\n".encode("cp1252"), "out.csv", "iconv -f WINDOWS-1252 -t UTF-8 'in.csv' > utf8.csv"),
        (b"", "out.csv", "'in.csv' holds no input"),
        (b"PK\x03\x04a spreadsheet", "out.csv", "'in.csv' is a spreadsheet, which is neither read nor written"),
        (b"\x1f\x8b\x08never a gzip", "out.csv", "'in.csv' cannot be read:"),
    ],
)
def test_files_that_cannot_be_read_or_written_start_nothing(content: bytes, output: str, said: str) -> None:
    table("any.csv")
    Path("in.csv").write_bytes(content)
    ran = clean("--inputs", "in.csv", "-o", output)
    assert (ran.code, said in ran.err, "Traceback" in ran.err) == (WRONG_USAGE, True, False), ran.err
    assert Path("in.csv").read_bytes() == content


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("content", "written"),
    [
        (
            b"sep=;;;\r\n\r\nid;city\r\n1;rome\r\n",
            b"sep=;\r\nid;city;state;why;name;length\r\n1;rome;decided;;Rome;4\r\n",
        ),
        (
            b";city;;\n1;rome;;\n",  # without the columns that a spreadsheet adds at the end
            b"Unnamed: 0;city;state;why;name;length\r\n1;rome;decided;;Rome;4\r\n",
        ),
        (
            b"price, EUR;city\n1,5;rome\n",
            b"price, EUR;city;state;why;name;length\r\n1,5;rome;decided;;Rome;4\r\n",
        ),
        (b"id;city\r1;rome\r", b"id;city;state;why;name;length\r\n1;rome;decided;;Rome;4\r\n"),
        (b" \n\t\n\nid;city\n1;rome\n \t\n\n", b"id;city;state;why;name;length\r\n1;rome;decided;;Rome;4\r\n"),
        (
            b'"id";"city, or town";city\n1;a;rome\n',
            b"id;city, or town;city;state;why;name;length\r\n1;a;rome;decided;;Rome;4\r\n",
        ),
        (
            b'\n,\n\nid,city\n1,"rome; italy"\n',
            b"id,city,state,why,name,length\r\n1,rome; italy,decided,,Rome; Italy,11\r\n",
        ),
    ],
)
def test_an_output_has_the_form_of_the_table_it_came_from_also_after_a_resume(content: bytes, written: bytes) -> None:
    table("any.csv")
    Path("in.csv").write_bytes(content)
    assert (ran := clean("--inputs", "in.csv", "-o", "out.csv")).code == COMPLETED, ran.err
    assert microagents("resume", "r", "-o", "again.csv").code == COMPLETED
    assert Path("out.csv").read_bytes() == Path("again.csv").read_bytes() == written


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_table_from_stdin_or_of_another_ending_is_read_as_one(separator: str) -> None:
    table("any.csv")
    content = separator.join(["id", "city"]) + "\n" + separator.join(["1", "rome"]) + "\n"
    Path("in.txt").write_text(content, encoding="utf-8")
    assert (ran := clean("--inputs", "in.txt", "-o", "file.csv")).code == COMPLETED, ran.err
    words = ("run", "clean.py", "--inputs", "-", "--run-id", "s", "-o", "stdin.csv", "--model", "sim:perfect")
    assert (ran := microagents(*words, stdin=content)).code == COMPLETED, ran.err
    expected = [*content.splitlines()[0].split(separator), "state", "why", "name", "length"]
    for name in ("file.csv", "stdin.csv"):
        header, row = Path(name).read_text("utf-8").splitlines()
        assert header.split(separator) == expected
        assert row.split(separator) == ["1", "rome", "decided", "", "Rome", "4"]


def test_a_table_from_stdin_may_be_packed_and_one_that_is_cut_off_starts_nothing() -> None:
    table("any.csv")
    packed = gzip.compress(b"id,city\n1,rome\n")
    words = ("run", "clean.py", "--inputs", "-", "-o", "out.csv", "--model", "sim:perfect")
    ran = microagents(*words, stdin=packed[:20])
    assert (ran.code, "microagents: stdin cannot be read: Compressed file ended" in ran.err) == (WRONG_USAGE, True)
    assert (ran := microagents(*words, stdin=packed)).code == COMPLETED, ran.err


@pytest.mark.parametrize("ending", [".json", ".csv.gz", ".parquet"])
def test_an_output_is_read_again_as_the_rows_that_were_written(ending: str) -> None:
    table("any.csv")
    Path("in.json").write_text('\n[{"city": "rome", "id": 7, "tags": ["a"]},\n {"city": "z\\u00fcrich", "id": null}]')
    assert (ran := clean("--inputs", "in.json", "-o", f"out{ending}")).code == COMPLETED, ran.err
    with opened(f"out{ending}") as file:
        rows = [row for _, row in read_rows(file, "out", ending_of(Path(f"out{ending}"))).rows]
    typed = ending != ".csv.gz"
    tags = ["a"] if "json" in ending else '["a"]'
    blank = None if typed else ""
    rome = {"city": "rome", "id": 7 if typed else "7", "tags": tags, "state": "decided", "why": blank, "name": "Rome"}
    zurich = {"city": "zürich", "id": blank, "tags": blank, "state": "decided", "why": blank, "name": "Zürich"}
    assert rows == [{**rome, "length": 4 if typed else "4"}, {**zurich, "length": 6 if typed else "6"}]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("in.json", '{"data": [{"a": "x", "b": null}, {"a": "y"}]}'),
        ("in.json", '[\n {"a": "x", "b": NaN},\n {"a": "y"}\n]'),
        ("in.json", '{\n "a": "x", "b": null\n}\n{\n "a": "y"}'),
        ("in.json", '{"a": "x", "b": null},\n{"a": "y"},\n'),
        ("in.json", '\ufeff\x1e{"a": "x", "b": null}\n\x1e{"a": "y"}\n'),
    ],
)
def test_objects_are_rows_however_a_program_writes_them(name: str, content: str) -> None:
    Path(name).write_text(content, encoding="utf-8")
    with opened(name) as file:
        assert [row for _, row in read_rows(file, name, ".json").rows] == [{"a": "x", "b": None}, {"a": "y"}]


@pytest.mark.parametrize("content", ['{"a": {"0": "x"}, "b": {"0": 1}}', '{"count": 1, "rows": [{"a": "x"}]}'])
def test_a_table_by_columns_or_beside_other_values_is_not_one_row(content: str) -> None:
    table("any.csv")
    Path("in.json").write_text(content, encoding="utf-8")
    ran = clean("--inputs", "in.json", "-o", "out.csv")
    assert (ran.code, "not rows; nothing was started; write an array of objects" in ran.err) == (WRONG_USAGE, True)


def test_spaces_behind_each_separator_are_the_files_not_the_cells() -> None:
    Path("in.csv").write_text('a, "b"\nx, "1, 5"\n', encoding="utf-8")
    with opened("in.csv") as file:
        assert [row for _, row in read_rows(file, "in.csv", ".csv").rows] == [{"a": "x", "b": "1, 5"}]


def test_columns_of_parquet_keep_their_types_beside_those_that_replies_declare() -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    declared = CLEAN.replace("length: int", "length: Decimal").replace("length=len", "length=Decimal(1) / len")
    write("clean.py", "    from decimal import Decimal" + declared.replace("\\\\n", "\\n"))
    values: dict[str, tuple[Any, Any]] = {
        "city": ("bonn", None),
        "day": (date(2030, 1, 2), pa.date32()),
        "at": (datetime(2030, 1, 2, 3, 4, 5, 600, tzinfo=UTC), pa.timestamp("us", "Europe/Paris")),
        "time": (time(1, 2, 3), pa.time32("s")),
        "span": (timedelta(days=1, seconds=3), pa.duration("ms")),
        "price": (Decimal("1.50"), pa.decimal128(10, 2)),
        "photo": (b"\xff\0", pa.binary()),
        "count": (2**64 - 1, pa.uint64()),
        "kind": ("a", pa.dictionary(pa.int32(), pa.string())),
        "days": ([date(2030, 1, 2), None], pa.list_(pa.date32())),
        "part": ({"day": date(2030, 1, 2), "raw": b"x"}, pa.struct([("day", pa.date32()), ("raw", pa.binary())])),
        "days by name": ([("a", date(2030, 1, 2))], pa.map_(pa.string(), pa.date32())),
    }
    columns = {
        name: pa.array([value, "rome" if name == "city" else None], kind) for name, (value, kind) in values.items()
    }
    parquet.write_table(pa.table(columns), "in.parquet")
    assert (ran := clean("--inputs", "in.parquet", "-o", "out.parquet")).code == COMPLETED, ran.err
    given, written = parquet.read_table("in.parquet"), parquet.read_table("out.parquet")
    assert written.select(given.column_names).equals(given)
    assert written["length"].to_pylist() == [Decimal("0.25"), Decimal("0.25")]
    assert parquet.read_table("out.parquet").schema.field("length").type == pa.decimal128(2, 2)


def test_a_number_too_large_for_a_column_of_numbers_is_written_as_text() -> None:
    table("any.csv")
    Path("in.jsonl").write_text(f'{{"city": "rome", "id": {2**70}}}\n{{"city": "ulm", "id": 1}}\n')
    assert (ran := clean("--inputs", "in.jsonl", "-o", "out.parquet")).code == COMPLETED, ran.err
    with opened("out.parquet") as file:
        assert [row["id"] for _, row in read_rows(file, "out", ".parquet").rows] == [str(2**70), "1"]


def test_json_in_another_encoding_is_refused_with_the_remedy() -> None:
    table("any.csv")
    Path("in.jsonl").write_bytes('{"city": "z\u00fcrich"}\n'.encode("utf-16-be"))
    ran = clean("--inputs", "in.jsonl", "-o", "out.csv")
    assert (ran.code, "-t UTF-8 'in.jsonl' > utf8.json" in ran.err) == (WRONG_USAGE, True), ran.err


def test_an_item_of_an_array_is_refused_by_its_number() -> None:
    table("any.csv")
    Path("in.json").write_text('[{"city": "rome"}, 7]')
    ran = clean("--inputs", "in.json", "-o", "out.csv")
    assert (ran.code, "item 2 of 'in.json' is not a JSON object: '7'" in ran.err) == (WRONG_USAGE, True), ran.err


def test_frames_go_in_and_come_out_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    table("any.csv")
    monkeypatch.syspath_prepend(str(Path.cwd()))
    monkeypatch.delitem(sys.modules, "clean", raising=False)
    from clean import Clean  # type: ignore[import-not-found]  # noqa: PLC0415 - a file of this test

    polars = SimpleNamespace(to_dicts=lambda: [{"city": "ulm", "id": None}])
    (dated,) = Clean.rows([{"city": "ulm", "id": date(2030, 1, 2)}])
    assert dated.row["id"] == "2030-01-02", "as in a file, and as a journal gives it back"
    pyarrow = SimpleNamespace(to_pylist=lambda: [{"city": "ulm", "id": None}])
    for given in (polars, pyarrow, [{"city": "ulm", "id": None}]):
        result = run_sync(Clean.rows(given), models="sim:perfect")
        expected = {"city": "ulm", "id": None, "state": "decided", "why": None, "name": "Ulm", "length": 3}
        assert list(result.rows()) == [expected]


def test_a_frame_of_pandas_keeps_all_digits_and_its_missing_values_are_none() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"x": [0.12345678901234567, None], "at": [pandas.Timestamp("2026-01-31"), None], "name": ["a", None]}
    )
    rows: list[RowTask[Any]] = RowTask.rows(frame)
    missing: list[RowTask[Any]] = RowTask.rows([{"at": pandas.NaT, "name": pandas.NA}])
    assert [task.row for task in missing] == [{"at": None, "name": None}]
    assert [task.row for task in rows] == [
        {"x": 0.12345678901234567, "at": "2026-01-31T00:00:00", "name": "a"},
        {"x": None, "at": None, "name": None},
    ]


def test_a_table_that_is_none_or_has_a_column_twice_starts_nothing() -> None:
    pandas = pytest.importorskip("pandas")
    for given in (
        "in.csv",
        Path("in.csv"),
        {"x": [1, 2]},
        ["a", "b"],
        pandas.Series(["a"]),
        [{"x": object()}],
        [{"x": "\ud800"}],
    ):
        with pytest.raises(InvalidUsage, match=r"rows\(\) takes a frame .*; nothing was started, since it got a \w+"):
            RowTask.rows(given)
    with pytest.raises(InvalidUsage, match="the column 'x' stands twice in the table; nothing was started; rename one"):
        RowTask.rows(pandas.DataFrame([[1, 2]], columns=["x", "x"]))


@pytest.mark.slow
def test_of_5000_rows_and_a_kill_in_the_middle_none_is_lost_or_twice_and_the_order_is_kept() -> None:
    rows = 5_000
    cities = ([str(number), f'"c{number}",\n\u00e4'] for number in range(rows))
    table("in.csv", ["id", "city"], *cities, encoding="utf-8-sig")
    words = (
        *("clean.py", "--inputs", "in.csv", "-o", "out.csv", "-k", "1", "--model", "sim:perfect"),
        *("--durability", "normal"),
    )
    with Sitting("run", *words, "--run-id", "r") as sitting:
        sitting.until_sent(1_500)
        sitting.end(signal.SIGKILL)
    assert not Path("out.csv").exists()
    assert 0 < microagents("show", "r", "--json").json["inputs_done"] < rows
    with Sitting("resume", "r") as sitting:
        assert sitting.end().code == COMPLETED
    found = read("out.csv")
    assert [(row["id"], row["city"], row["state"]) for row in found] == [
        (str(number), f'"c{number}",\n\u00e4', "decided") for number in range(rows)
    ]
    assert all(row["name"] == row["city"].title() for row in found)


def test_a_text_of_a_model_that_a_spreadsheet_would_run_is_written_as_text_and_the_input_stays() -> None:
    assert [cell(text) for text in ("=1+1", "+cmd", "-x", "@f", "\t=1")] == ["'=1+1", "'+cmd", "'-x", "'@f", "'\t=1"]
    assert [cell(value) for value in ("-5", "+49", "-1,000.5", -5, "a=b", "")] == [
        "-5",
        "+49",
        "-1,000.5",
        -5,
        "a=b",
        "",
    ]
    table("in.csv", ["id", "city"], ["1", "=ulm"])
    assert clean("--inputs", "in.csv", "-o", "out.csv").code == COMPLETED
    assert [(row["city"], row["name"]) for row in read("out.csv")] == [("=ulm", "'=Ulm")]
