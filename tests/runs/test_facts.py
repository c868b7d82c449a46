"""A fact about a run is declared once, and terminal, notebook, JSON, page and report have it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from microagents.journal.sharded import reader_of
from microagents.runs.inspection.runs import inspect_run
from microagents.runs.words.summary import FACTS
from microagents.web.viewer import pages
from microagents.web.viewer.report import report
from tests.cli.commands import microagents


def test_a_fact_is_added_by_one_declaration(monkeypatch: pytest.MonkeyPatch) -> None:
    microagents("run", "drift", "-o", "length=3", "--model", "sim:perfect", "--run-id", "r")
    monkeypatch.setitem(FACTS, "luck", lambda result: f"{result.account.calls} coins")
    fact = ["luck", "9 coins"]
    assert microagents("show", "r").rows["luck"] == "9 coins"
    assert fact in microagents("show", "r", "--json").json["facts"]
    assert fact in json.loads(json.dumps(inspect_run(Path("runs"), "r").as_json()))["facts"]
    assert "<th>luck</th>" in inspect_run(Path("runs"), "r")._repr_html_()
    with reader_of(Path("runs"), "r") as reader:
        assert tuple(fact) in pages.run_facts(reader, 0)["facts"]
        assert "<dt>luck</dt><dd><bdi>9 coins</bdi></dd>" in report(reader)
