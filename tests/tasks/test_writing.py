"""Texts to a brief: options that are refused, and requirements that code checks, two of them with real programs."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path

import pytest

from microagents import run_sync
from microagents.base.errors import InvalidUsage
from microagents.runs.settings import validated
from microagents.systems.documents import Part, Text
from microagents.tasks import requirements
from microagents.tasks.requirements import BROWSERS, compiles, opens
from microagents.tasks.writing import Writing
from tests.cli.commands import WRONG_USAGE, microagents, write
from tests.models.server import reply, serving

BRIEFS = Path(__file__).parent.parent.parent / "docs/examples/briefs"
TWO_MODELS = ("--model", "openai:a@base_url=http://127.0.0.1:9", "--model", "openai:b@base_url=http://127.0.0.1:9")

with_latex = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
with_browser = pytest.mark.skipif(not any(map(shutil.which, BROWSERS)), reason="no Chromium is installed")


def refusal(**options: object) -> str:
    with pytest.raises(InvalidUsage) as caught:
        validated(Writing, "task 'writing'", options)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def met(line: str, text: str) -> bool | None:
    (result,) = Writing(brief=f"A text.\n- check: {line}\n").checks(text).values()
    return result


# -- options ---------------------------------------------------------------------------------------------------------------------------


def test_the_statement_is_the_brief_and_the_form_of_the_file_but_not_its_place() -> None:
    task = Writing(brief="A lecture.\n", output="/somewhere/Lecture.TEX")
    assert task.statement() == "A lecture.\n\nForm of the text: LaTeX, with no code fences around it."
    assert task.output_path() == Path("/somewhere/Lecture.TEX")
    assert "a .xyz file" in Writing(brief="A lecture.", output="a.xyz").statement()
    assert Writing(brief="A lecture.").statement() == "A lecture."
    assert Writing(brief="A lecture.").output_path() is None


def test_an_unknown_check_is_refused_with_the_known_ones() -> None:
    sentence = refusal(brief="A text.\n\n- Check:  rhymes \n")
    assert "unknown check 'rhymes'" in sentence
    for each in requirements.REQUIREMENTS:
        assert each.form in sentence


@pytest.mark.parametrize(
    ("options", "said"),
    [
        *[({"brief": brief}, "brief is blank") for brief in ("", " \n\t")],
        *[({"output": output}, "names no file") for output in ("", ".", "..", "out/", "a\0b")],
        ({"brief": "A text.\n- check: compiles", "output": "a.html"}, "is for files that end with"),
        (
            {"brief": "A text.\n- check: opens in a browser without errors", "output": "a.tex"},
            "is for files that end with",
        ),
        ({"parts": "["}, "must be a list, as JSON"),
        ({"parts": '[{"id": 1, "objective": "a", "depends_on": [1]}]'}, "in a cycle: 1"),
        ({"parts": '[{"id": 1, "objective": "a"}, {"id": 1, "objective": "b"}]'}, "an id twice"),
        ({"parts": '[{"id": 1, "objective": "a", "depend_on": []}]'}, "depend_on"),
        ({"parts": '{"id": 1}'}, "parts"),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], said: str) -> None:
    assert said in refusal(**{"brief": "A text.", **options})


def test_given_parts_become_subtasks() -> None:
    parts = '[{"id": 1, "objective": "a"}, {"id": 2, "objective": "b", "depends_on": [1]}]'
    task = validated(Writing, "task 'writing'", {"brief": "A text.", "parts": parts})
    assert task.subtasks() == [Part(id=1, objective="a", depends_on=()), Part(id=2, objective="b", depends_on=(1,))]
    assert Writing.model_validate(task.model_dump(mode="json")) == task, "it comes back from a journal"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("brief=@missing.md", "'missing.md' cannot be read"),
        ("brief=@empty.md", "brief is blank"),
        ("brief=@rhymes.md", "unknown check 'rhymes'"),
    ],
)
def test_the_command_refuses_a_bad_brief_with_one_sentence(option: str, said: str) -> None:
    write("empty.md", "")
    write("rhymes.md", "A poem.\n\n- check: rhymes\n")
    ran = microagents("run", "writing", "-o", option, *TWO_MODELS)
    assert (ran.code, ran.out) == (WRONG_USAGE, "")
    (sentence,) = ran.err.splitlines()
    assert said in sentence


def test_one_model_is_refused_as_by_every_document() -> None:
    with pytest.raises(InvalidUsage, match="same_model"):
        run_sync(Writing(brief="A text."), models="openai:a@base_url=http://127.0.0.1:9")


ENDINGS = {
    "arcade": "py", "circuit": "html", "conference-site": "html", "falling-gems": "py", "journey": "tex",
    "lecture": "tex", "snake-chess": "py", "task-manager": "html", "webapp": "html",
}  # fmt: skip
"""The briefs of the examples, and the endings of what they ask for."""


def test_every_brief_of_the_examples_is_checked_here() -> None:
    assert sorted(ENDINGS) == sorted(path.stem for path in BRIEFS.glob("*.md"))


def test_a_requirement_of_any_length_is_read_in_little_time() -> None:
    began_s = time.process_time()
    with pytest.raises(ValueError, match="unknown check"):
        requirements.requirements_in(f"- check: a{' ' * 100_000}b", ".py")
    assert time.process_time() - began_s < 20


# -- requirements ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "text", "expected"),
    [
        ('contains "a "b" c"', 'so a "b" c', True),
        (r'contains "\end{document}"', "\\end{documents}", False),
        ('lacks "x"', "abc", True),
        ('lacks "x"', "axc", False),
        ('at least 3 of "ab"', "ab ab", False),
        ('at most 1 of "ab"', "ab ab", False),
        ("at least 3 words", "one two\nthree", True),
        ("at least 1 word", "", False),
        ("no placeholder", '<input placeholder="name"> a todo list', True),
        ("no placeholder", "x = 1  # TODO", False),
        ("no placeholder", "Lorem ipsum dolor", False),
        ("parses", "def f(:", False),
        ("parses", "(" * 100_000, False),
    ],
)
def test_requirements_on_the_text_itself(line: str, text: str, *, expected: bool) -> None:
    assert met(line, text) is expected


def test_a_text_is_right_if_all_is_met_and_unknown_if_a_program_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Writing(brief='A text.\n- check: compiles\n- check: contains "x"')
    monkeypatch.setenv("PATH", "/nowhere")
    compiles.cache_clear()
    assert task.checks("x") == {"compiles": None, 'contains "x"': True}
    assert task.correct(Text(text="x")) is None
    assert task.correct(Text(text="y")) is False
    assert Writing(brief='A text.\n- check: contains "x"').correct(Text(text="x")) is True
    assert met("opens in a browser without errors", "<p>1") is None
    compiles.cache_clear()
    opens.cache_clear()


# -- LaTeX and the browser -------------------------------------------------------------------------------------------------------------


def latex(body: str) -> str:
    return f"\\documentclass{{article}}\n\\begin{{document}}\n{body} x\n\\end{{document}}\n"


@with_latex
@pytest.mark.parametrize(("body", "expected"), [("$x^2$", True), ("$x^2", False), ("\\undefined", False)])
def test_latex_tells_what_compiles(body: str, *, expected: bool) -> None:
    assert met("compiles", latex(body)) is expected


@with_latex
def test_latex_runs_no_command_and_stays_in_its_folder(tmp_path: Path) -> None:
    (secret := tmp_path / "secret.tex").write_text("x", encoding="utf-8")
    command, written = tmp_path / "command", tmp_path / "written"
    assert compiles(latex(f"\\immediate\\write18{{touch {command}}}")) is True
    assert compiles(latex(f"\\newwrite\\w\\immediate\\openout\\w={written}\\immediate\\write\\w{{x}}")) is False
    assert compiles(latex(f"\\input{{{secret}}}")) is False
    assert sorted(tmp_path.iterdir()) == [secret]


@with_latex
def test_an_endless_text_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "COMPILE_S", 1.0)
    assert compiles(latex("\\loop\\iftrue\\repeat")) is False


@pytest.mark.slow
@with_browser
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("document.title = 'ready'; console.log('Uncaught?')", True),
        ("nothing.there()", False),
        ("setTimeout(() => nothing.there(), 2000)", False),
        ("let = ;", False),
        ("Promise.reject(new Error('later'))", False),
    ],
)
def test_the_browser_tells_which_page_opens(script: str, *, expected: bool) -> None:
    page = f"<!DOCTYPE html>\n<html><body><p>A page.</p><script>{script}</script></body></html>\n"
    assert met("opens in a browser without errors", page) is expected


@with_browser
@pytest.mark.slow
def test_an_endless_page_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "OPEN_S", 3.0)
    assert opens("<script>while (true) {}</script>") is False


@pytest.mark.slow
@with_browser
async def test_a_page_reaches_no_server_not_even_on_this_machine() -> None:
    async with serving(reply({})) as server:
        url = server.url
        page = f"<script>fetch('{url}').catch(() => 0); new Image().src = '{url.replace('127.0.0.1', 'localhost')}'</script>"
        assert await asyncio.to_thread(opens, page) is True
    assert server.received == []


def test_programs_do_not_get_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program, seen = tmp_path / "pdflatex", tmp_path / "seen"
    program.write_text(f"#!/bin/sh\nenv > {seen}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("OPENAI_API_KEY", "k3y")
    assert compiles("a text without a page") is False
    assert "openin_any=p" in seen.read_text(encoding="utf-8")
    assert "k3y" not in seen.read_text(encoding="utf-8")


@pytest.mark.slow
def test_simulated_models_copy_a_brief_so_that_a_run_can_be_tried_without_a_key() -> None:
    brief = (BRIEFS / "webapp.md").read_text(encoding="utf-8")
    models = ["sim:gpt-4.1-mini", "sim:o3-mini"]
    result = run_sync(Writing(brief=brief), models=models, runs_dir=None)
    assert result.outcome == "completed"
    assert result.as_json()["result"]["answer"]["text"].split() == brief.split()
