"""Runs in a process of their own, which go on when the terminal is closed."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from microagents.base.errors import InvalidUsage, refusing
from microagents.base.files import make_private
from microagents.base.printing import printable
from microagents.cli.reporting import EXIT_CODES, echo, json_text, warn

OPTION = "--detach"
Detach = Annotated[
    bool,
    typer.Option(
        OPTION,
        help="Do the run in a process of its own, and return once it has begun, with a line of JSON: run_id, pid, journal, log.",
    ),
]
LOOK_EVERY_S = 0.05
SHOWN_CHARS = 2_000


def begin_detached(run_id: str, runs_dir: Path) -> None:
    """Begin this command again in a process of its own, and exit once its run has its lease and its first commit.

    Args:
        run_id: the run.
        runs_dir: its folder of journals.

    Raises:
        InvalidUsage: the log cannot be written.
        typer.Exit: with 0 once the run has begun, else with the code of the process.
    """
    from microagents.journal.creating import make_folder
    from microagents.journal.interventions import output_of
    from microagents.journal.reading import journal_of

    words = [word for word in sys.argv[1:] if word != OPTION]
    if words[0] != "resume" and "--run-id" not in words:
        words += ["--run-id", run_id]
    journal = journal_of(runs_dir, run_id)
    log = output_of(journal)
    with refusing(f"{str(log)!r} cannot be written", "; nothing was started"):
        make_folder(runs_dir)
        make_private(log)
        with log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603 - the words of this command
                # -P: no file of the working folder stands in for a package
                [sys.executable, "-P", "-m", "microagents", *words, "--yes"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
    while process.poll() is None and not _has_begun(run_id, runs_dir, process.pid):
        time.sleep(LOOK_EVERY_S)
    if process.returncode not in (None, 0):
        said = log.read_text(errors="replace")[-SHOWN_CHARS:]
        typer.echo(printable(said).rstrip(), err=True)
        raise typer.Exit(process.returncode)
    warn(f"see it: microagents show {run_id} --live, and all runs: microagents list --live")
    echo(json_text({"run_id": run_id, "pid": process.pid, "journal": str(journal), "log": str(log)}))
    raise typer.Exit(EXIT_CODES["completed"])


def _has_begun(run_id: str, runs_dir: Path, pid: int) -> bool:
    from microagents.journal.sharded import reader_of

    with suppress(InvalidUsage), reader_of(runs_dir, run_id) as reader:  # there is no journal at first
        holder, account = reader.lease().holder, reader.account()
        return holder is not None and holder.pid == pid and account.calls + account.in_flight + account.steps > 0
    return False
