"""`microagents resume`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from microagents.cli.options import RUNS, AcceptChange, AsJson, RunName, RunsDir, with_settings
from microagents.cli.reporting import log_to_stderr, one_sentence
from microagents.cli.watching import leave, watch
from microagents.journal.reading import reader_of
from microagents.runs.api import resume
from microagents.runs.execute import RunControl
from microagents.runs.result import Result


@with_settings
def command(
    run: RunName,
    *,
    runs_dir: RunsDir = RUNS,
    only: Annotated[
        list[int],
        typer.Option(
            "--input", metavar="N", help="Of many inputs only this one, counted from 0, again. Repeatable. [default: all not completed]"
        ),
    ] = [],  # noqa: B006
    accept_change: AcceptChange = [],  # noqa: B006 - typer copies it
    as_json: AsJson = False,
    changed: dict[str, Any],
) -> None:
    """Go on with a run from its journal; options that are not given are what they were.

    Exit codes are those of `run`.
    """
    log_to_stderr()
    with one_sentence():
        with reader_of(runs_dir, run) as reader:
            options = {} if reader.experiment.listed else reader.experiment.recipe.options

        async def start(control: RunControl) -> Result:
            return await resume(
                run,
                runs_dir=runs_dir,
                inputs=only or None,
                accept_changes=accept_change,
                on_progress=control.on_progress,
                interrupt=control.interrupt,
                terminate=control.terminate,
                **changed,
            )

        result = watch(run, start, as_json=as_json)
    leave(result, options, runs_dir, as_json=as_json)
