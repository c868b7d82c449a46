"""`microagents export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from microagents.cli.options import RUNS, RunName, RunsDir, WithCode

Format = Literal["jsonl", "csv", "parquet"]
Form = Literal[Format, "sealed"]


def command(
    run: RunName,
    form: Annotated[
        Form | None,
        typer.Option(
            "--format",
            help=(
                "parquet needs pyarrow and --output. `sealed` copies the journals of a run in shards, which is done, to a folder or an "
                "address, such as s3://bucket/runs. [default: by the ending of --output, else jsonl]"
            ),
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="File to write; an existing one is kept. [default: stdout]"
        ),
    ] = None,
    actions: Annotated[
        bool,
        typer.Option(
            "--actions",
            help="Write calls of tools instead: an agent's with votes, effect, key, outcome and observation, or those before a reply.",
        ),
    ] = False,
    trust_journal: WithCode = False,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Write the decisions of a run as rows of jsonl, csv or parquet.

    They are in the order of their paths. This works while the run is running, too. In csv an object has a column for each of its fields,
    such as value.day.

    Columns: run_id, path, input, outcome, value, votes, other_votes, flags, cost_usd, settled_by, settled_at,
    decided_at, input_ended_at.
    """
    from microagents.cli.addresses import at_hand, export_sealed
    from microagents.cli.exports import export_rows

    if form == "sealed":
        typer.echo(f"written to {export_sealed(run, runs_dir, output)}", err=True)
        return
    with at_hand(runs_dir, run) as folder:
        export_rows(run, folder, form, output, actions=actions, code=trust_journal)
