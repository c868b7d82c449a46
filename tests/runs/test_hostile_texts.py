"""Hostile texts of a model pass through parser, journal, terminal and JSON unharmed and unharming."""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from pathlib import Path
from typing import Annotated, Any

import pytest
from msgspec import Struct

from microagents import Call, ChainTask, Prompt, Reply, Result, Unvoted, run
from microagents.runs.row_forms import cell
from microagents.systems import Maker
from tests.cli.commands import microagents

TEXTS = {
    "NUL": "a\x00b",
    "ANSI": "\x1b[2J\x1b[31mred\x9b31m\x07",
    "bidi": "\u202euser\u2066 \u2069\u200b\ufeff",
    "markup": "[bold red]x[/] [link=http://x]y[/link] \\[/",
    "5,000 digits": "9" * 5000,
    "10 MB": "x" * 10_000_000,
    "HTML": "<script>alert(1)</script><!-- ' \" & \r\n\u2028",
    "CSV": '=cmd|"/c calc"!A1,"\n',
}
LARGE = 1_000_000


class Said(Reply, frozen=True):
    number: int
    remark: Annotated[str, Unvoted] = ""


class Page(Struct, frozen=True):
    step: int = 0
    remark: str = ""


class Listening(ChainTask[Page, Said]):
    form: str = "lines"

    def start(self) -> Page:
        return Page()

    def steps(self) -> int:
        return 2

    def done(self, state: Page) -> bool:
        return state.step == 2

    def prompt(self, state: Page) -> Prompt:
        return Prompt(system="Listen.", user=f"Step {state.step}; you said {state.remark[:1000]!a}")

    def advance(self, state: Page, reply: Said) -> Page:
        return Page(state.step + 1, reply.remark)


class ListeningToJson(Listening):
    format = "json"


class Speaker:
    """Says a hostile text alone at first, then within a right reply."""

    def __init__(self, text: str, task: Listening) -> None:
        self._text, self._is_json = text, task.format == "json"

    async def complete(self, call: Call) -> str:
        if call.id.seq == 0:
            return self._text
        remark = json.dumps(self._text)
        return f'{{"number": 1, "remark": {remark}}}' if self._is_json else f"number = 1\nremark = {remark}"


async def heard(text: str, task: Listening, runs_dir: Path) -> Result:
    return await run(task, models=Speaker(text, task), strategy=Maker(k=1, max_draws=4), runs_dir=runs_dir)


def assert_harmless(printed: str) -> None:
    """Nothing in it acts on a terminal, or hides what stands there."""
    acting = {char for char in printed if char != "\n" and unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert not acting, [hex(ord(char)) for char in acting]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "task"),
    [(name, (Listening(), ListeningToJson())[number % 2]) for number, name in enumerate(TEXTS)],
    ids=lambda each: getattr(each, "format", each),
)
async def test_a_hostile_text_is_the_same_behind_parser_and_journal_and_does_nothing_on_a_screen(
    name: str, task: Listening, tmp_path: Path
) -> None:
    text = TEXTS[name]
    result = await heard(text, task, tmp_path)
    if len(text) > LARGE:  # longer than any reply may be
        assert (result.outcome, result.account.valid) == ("undecided", 0)
        return
    assert result.outcome == "completed"
    assert result.account.flagged == {"malformed": 2}
    assert [decision.value["remark"] for decision in result.decisions()] == [text, text]
    run_words = (result.run_id, "--runs-dir", str(tmp_path))
    assert microagents("show", *run_words, "--verify").code == 0
    for words in (("show", *run_words), ("show", *run_words, "0/step/0"), ("list", "--runs-dir", str(tmp_path))):
        shown = microagents(*words)
        assert shown.code == 0, shown.err
        assert_harmless(shown.out + shown.err)
    found: Any = microagents("show", *run_words, "0/step/0", "--json").json
    assert found["value"]["remark"] == text
    rows = list(csv.DictReader(io.StringIO(microagents("export", *run_words, "--format", "csv").out)))
    assert [row["value.remark"] for row in rows] == [cell(text), cell(text)]


@pytest.mark.parametrize(
    ("text", "task"), [("\ud800", Listening()), ("\udc00\ud800", ListeningToJson())], ids=["lines", "json"]
)
async def test_half_a_surrogate_pair_is_malformed_and_kept_out_of_all_that_is_written(
    text: str, task: Listening, tmp_path: Path
) -> None:
    result = await heard(text, task, tmp_path)
    assert (result.outcome, result.account.flagged) == ("undecided", {"malformed": 4})
    shown = microagents("show", result.run_id, "--runs-dir", str(tmp_path), "0/step/0")
    assert shown.code == 0, shown.err
    assert_harmless(shown.out)


@pytest.mark.parametrize("written", ["\u0661", "1\u200b", "1.0", "1_0"])
@pytest.mark.parametrize("task", [Listening(), ListeningToJson()], ids=lambda task: task.format)
async def test_what_only_looks_like_a_number_casts_no_vote(written: str, task: Listening, tmp_path: Path) -> None:
    async def looking(call: Call) -> str:
        return f'{{"number": {written}}}' if task.format == "json" and call.id.seq >= 0 else f"number = {written}"

    result = await run(task, models=looking, strategy=Maker(k=1, max_draws=2), runs_dir=tmp_path)
    assert (result.outcome, result.account.flagged) == ("undecided", {"malformed": 2})
