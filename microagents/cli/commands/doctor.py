"""`microagents doctor`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from microagents.cli.options import DEFAULT_MODEL, RUNS, AsJson, Config, RunsDir, model_option
from microagents.cli.reporting import EXIT_CODES, echo, json_text
from microagents.cli.views.tables import Columns, report_text


def command(
    model: Annotated[
        list[str], model_option("Model that will be asked, as provider:model[@key=value,...]. Repeatable.")
    ] = [],  # noqa: B006 - typer copies it
    runtime: Annotated[str, typer.Option(metavar="NAME", help="Where roles will run: local or ray.")] = "local",
    runs_dir: RunsDir = RUNS,
    as_json: AsJson = False,
    config: Config = None,  # noqa: ARG001 - read by `Command`
) -> None:
    """Check keys, endpoints, models, prices, open files, Ray, disk and clock: a line each, and what to do.

    No call is paid, unless a spec has the option `logprobs`: its draws are then compared with their probabilities.

    Exit codes: 0 if nothing is missing that the named models and runtime need, else 1.
    """
    from microagents.runs.doctor import examine

    findings = asyncio.run(examine(model or [DEFAULT_MODEL], runs_dir, on_ray=runtime == "ray"))
    rows = [[each.state, each.subject, " ".join(each.said.split())] for each in findings]
    echo(json_text(findings) if as_json else report_text([Columns(rows, to_the_left=(0, 1, 2))]))
    raise typer.Exit(EXIT_CODES["failed" if any(each.state == "missing" for each in findings) else "completed"])
