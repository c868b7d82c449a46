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
from microagents.runs.words.summary import summary_rows
from microagents.runs.words.verdict import Standing, verdict_on
from microagents.web.viewer import pages

MODULES = ("dom", "charts", "values", "facts", "cells", "grid", "strip", "work", "report")
"""Modules of a report, each behind its imports."""
MAX_DECISIONS = 60
"""Decisions that are listed of a longer run: undecided and wrong ones first, then marked ones, those with most samples first."""
MAX_WHOLE = 1_000
"""Number of steps up to which all decisions are listed."""
MAX_BYTES = 800_000
"""Length of what a report shows. Rows, decisions, work and result are left out of a longer one, in this order, until it fits."""
MAX_ROWS = 1_000
"""Rows of a table that are shown; of a report that is too long half of them, again and again."""
JUDGE_S = 2.5
"""Seconds for the task's oracle to find the wrong steps."""
_IMPORT = re.compile(r"^import .*\n", re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)


def report(reader: Reader) -> str:
    """Return the report of a run as HTML, with everything that it shows inside."""
    run, is_listed = pages.run_facts(reader, 0), reader.experiment.listed
    steps = b"" if is_listed else reader.overview(0)
    judged = pages.judged(reader, 0, JUDGE_S) if steps else {"wrong": []}
    wrong = judged["wrong"]
    most = MAX_WHOLE if len(steps) <= MAX_WHOLE else MAX_DECISIONS
    found: dict[str, Any] = {
        "run": run | {"journal": None, "result": None if is_listed else run["result"]},
        "series": reader.series(pages.POINTS),
        "steps": _as_text(steps),
        "inputs": _as_text(reader.inputs_overview()) if is_listed and not run["is_table"] else None,
        "rows": table_rows(reader, range(min(run["inputs"], MAX_ROWS))) if run["is_table"] else None,
        "wrong": wrong,
        "right": judged.get("right"),
        "work": None if is_listed else pages.work_on(reader, 0),
        "decisions": pages.decisions_at(reader, [*run["undecided_at"], *_of_interest(steps, wrong)], most),
    }
    if len(msgspec.json.encode(found)) > MAX_BYTES and found["decisions"]:
        found["decisions"] = found["decisions"][:MAX_DECISIONS]
    while found["rows"] and len(msgspec.json.encode(found)) > MAX_BYTES:
        found["rows"] = found["rows"][: len(found["rows"]) // 2]
    for name in ("decisions", "work", "run"):
        if len(msgspec.json.encode(found)) > MAX_BYTES:
            found[name] = (
                found["run"] | {"result": None, "reason": None, "failed_inputs": []} if name == "run" else None
            )
    result = recorded_result(reader)
    rows = [(name, text) for name, text in summary_rows(result) if name != "result"]
    return _html(reader.experiment.run_id, verdict_on(result), rows, msgspec.json.encode(found).decode())


def _of_interest(steps: bytes, wrong: list[int]) -> list[str]:
    marked = sorted(
        (number for number, byte in enumerate(steps) if byte >= MARKED), key=lambda number: -(steps[number] & 15)
    )
    others = range(len(steps)) if len(steps) <= MAX_WHOLE else ()
    return [f"0/step/{number}" for number in [*wrong, *marked, *others]]


def _as_text(content: bytes) -> str:
    return b64encode(pages.packed(content)).decode()


def _html(name: str, verdict: Standing, rows: list[tuple[str, str]], content: str) -> str:
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
