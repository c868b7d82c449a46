"""A report of one run: a file that opens without a network, made of the pages' code."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html import escape
from typing import Any

import msgspec

from microagents.base.printing import printable
from microagents.journal.reading import Reader
from microagents.journal.statements import MARKED
from microagents.runs.inspection.row_table import table_rows
from microagents.runs.inspection.runs import recorded_result
from microagents.runs.words.summary import Fact, summary_rows
from microagents.runs.words.verdict import Standing, verdict_on
from microagents.web.viewer import pages

MODULES = ("dom", "charts", "values", "facts", "cells", "grid", "strip", "work", "report")
"""Modules of a report, each behind its imports."""
MAX_DECISIONS = 60
"""Decisions that are listed of a longer run: undecided and wrong ones first, then marked ones, those with most samples first."""
MAX_WHOLE = 1_000
"""Number of steps up to which all decisions are listed."""
MAX_BYTES = 800_000
"""Greatest length of the facts in a report. Rows, decisions, work and result are left out of a longer one, in this order, until it fits."""
MAX_ROWS = 1_000
"""Rows of a table that are shown; of a report that is too long half of them, again and again."""
JUDGE_S = 2.5
"""Seconds for the task's oracle to find the wrong steps."""
_IMPORT = re.compile(r"^import .*\n", re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)


def report(reader: Reader) -> str:
    """Return the report of a run as HTML, with everything that it shows inside."""
    run, is_listed = pages.run_facts(reader, 0) | {"journal": None}, reader.experiment.listed
    steps, work = b"", None
    judged: dict[str, Any] = {"wrong": []}
    inputs = rows = None
    if not is_listed:
        steps, work = reader.overview(0), pages.work_on(reader, 0)
    else:
        run["result"] = None
    if steps:
        judged = pages.judged(reader, 0, JUDGE_S)
    if run["is_table"]:
        count = min(run["inputs"], MAX_ROWS)
        rows = table_rows(reader, range(count))
    elif is_listed:
        inputs = _as_text(reader.inputs_overview())
    wrong, most = judged["wrong"], MAX_DECISIONS
    if len(steps) <= MAX_WHOLE:
        most = MAX_WHOLE
    found: dict[str, Any] = {
        "run": run,
        "series": reader.series(pages.POINTS),
        "steps": _as_text(steps),
        "inputs": inputs,
        "rows": rows,
        "wrong": wrong,
        "right": judged.get("right"),
        "work": work,
        "decisions": pages.decisions_at(reader, [*run["undecided_at"], *_of_interest(steps, wrong)], most),
    }
    if len(msgspec.json.encode(found)) > MAX_BYTES and found["decisions"]:
        found["decisions"] = found["decisions"][:MAX_DECISIONS]
    while found["rows"] and len(msgspec.json.encode(found)) > MAX_BYTES:
        found["rows"] = found["rows"][: len(found["rows"]) // 2]
    least = {"decisions": None, "work": None, "run": run | {"result": None, "reason": None, "failed_inputs": []}}
    for name, value in least.items():
        if len(msgspec.json.encode(found)) > MAX_BYTES:
            found[name] = value
    result = recorded_result(reader)
    facts = [(name, text) for name, text in summary_rows(result) if name != "result"]
    return _html(reader.experiment.run_id, verdict_on(result), facts, msgspec.json.encode(found).decode())


def _of_interest(steps: bytes, wrong: list[int]) -> list[str]:
    marked = [number for number, byte in enumerate(steps) if byte >= MARKED]
    marked.sort(key=lambda number: -(steps[number] & 15))
    shown = [*wrong, *marked]
    if len(steps) <= MAX_WHOLE:
        shown += range(len(steps))
    return [f"0/step/{number}" for number in shown]


def _as_text(content: bytes) -> str:
    return b64encode(pages.packed(content)).decode()


def _html(name: str, verdict: Standing, rows: list[Fact], content: str) -> str:
    sources = [_IMPORT.sub("", pages.source(f"{module}.js")) for module in MODULES]
    script = "".join(_EXPORT.sub("", source) for source in sources)
    style = pages.source("viewer.css")
    digests = [sha256(each.encode()).digest() for each in (script, style)]
    allowed = [b64encode(each).decode() for each in digests]
    policy = f"default-src 'none'; script-src 'sha256-{allowed[0]}'; style-src 'sha256-{allowed[1]}'; base-uri 'none'; form-action 'none'"
    title, inert = escape(printable(name)), content.replace("<", "\\u003c")
    account = "".join(f"<dt>{escape(name)}</dt><dd><bdi>{escape(text)}</bdi></dd>" for name, text in rows)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="content-security-policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title} · microagents</title>
<style>{style}</style>
</head>
<body>
<header><span class="home">microagents</span></header>
<main id="page"><h1><bdi>{title}</bdi></h1>
<p class="verdict {verdict.kind}"><bdi>{escape(printable(verdict.text))}</bdi></p>
<div id="drawn"></div>
<section><h2>Account</h2><dl class="list">{account}</dl></section></main>
<p id="said" class="unseen" role="status"></p>
<script type="application/json" id="content">{inert}</script>
<script type="module">{script}</script>
</body>
</html>
"""
