"""`microagents decide`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from microagents.base.errors import InvalidUsage
from microagents.cli.options import RUNS, AnyRun, LabelIn, RunsDir
from microagents.cli.reporting import EXIT_CODES, say


def command(
    run: AnyRun = None,
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="[PATH]",
            help="Path of what is undecided, such as 0/step/17; `show` names it. step/17 will do if one waits there. [default: all]",
        ),
    ] = None,
    value: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[VALUE]...",
            help="The reply to decide for: FIELD=VALUE for each of its fields, or JSON. "
            "Of an agent's call: approve, reject TEXT, done VALUE, not-done, answer TEXT.",
        ),
    ] = None,
    audit: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Judge random decided rows of an output, and end with a bound of its wrong ones."
        ),
    ] = None,
    sample: Annotated[int, typer.Option(metavar="N", min=1, help="Number of rows that --audit draws.")] = 100,
    label: Annotated[LabelIn, typer.Option(help="With --audit: judge in the terminal or in the browser.")] = "terminal",
    cells: Annotated[bool, typer.Option("--cells", help="With --audit: judge one cell of each row.")] = False,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Decide an undecided election yourself, or say what an agent waits for; without PATH and VALUE go through all that waits.

    An action that waits for an approval takes `approve` or `reject TEXT`. A call that may or may not have been made takes `done VALUE`,
    with what it returned, or `not-done`: then it is made. A question to a customer takes `answer TEXT`, once.

    The next `resume` continues with this decision. A run that is under way continues with it at once, also if the election is open. It
    is marked as the decision of a person, and a later one replaces it.

    With --audit you judge random rows of an output, and it says how many of all are wrong at most. Judgments are kept beside the output.
    """
    from microagents.cli.views.row_queue import judge_rows
    from microagents.cli.views.waiting import decide_one, go_through
    from microagents.studies.audits import AuditQueue

    if audit is None and (cells or label == "browser"):
        raise InvalidUsage("--cells and --label say how --audit judges: add --audit FILE")
    if audit is not None:
        judge_rows(AuditQueue(audit, sample, runs_dir, of_cells=cells), runs_dir, in_browser=label == "browser")
    elif run is None or path is None:
        go_through(runs_dir, run)
    elif not value:
        raise InvalidUsage(f"say what is decided: microagents decide {run} {path} VALUE")
    else:
        said, then = decide_one(runs_dir, run, path, " ".join(value), again=True)
        say(f"{said}; {then}")
    raise typer.Exit(EXIT_CODES["completed"])
