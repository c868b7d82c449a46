"""`microagents view`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from microagents.base.errors import InvalidUsage, refusing
from microagents.cli.browsing import browse
from microagents.cli.commands.serve import MAX_PORT
from microagents.cli.options import RUNS, AnyRun, RunsDir, WithCode
from microagents.cli.reporting import echo


def command(
    run: AnyRun = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Write the page of the run into this HTML file, and serve nothing."
        ),
    ] = None,
    runs_dir: RunsDir = RUNS,
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=MAX_PORT, help="Port to listen on; 0 takes a free one.")
    ] = 0,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=MAX_PORT,
            help="Serve the totals of runs, too, at /metrics of this port, to every host: no prompts, no replies.",
        ),
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Only print the address.")] = False,
    trust_journal: WithCode = False,
) -> None:
    """Show runs in the browser: their steps at a glance, and each decision in full.

    Only this machine can reach the pages. They only read the journals, also while a run is running; but if something waits for a
    person, the page can decide it as `decide` does, in the tab that opened the printed address. Ctrl-C ends it.

    The file of -o opens in a browser without a network: it has no code but its own, and asks nothing of any host. An existing file is
    replaced.
    """
    from microagents.journal.sharded import reader_of

    if output is not None:
        if run is None:
            raise InvalidUsage("-o writes the page of one run; name it: microagents view RUN -o FILE")
        _write(run, runs_dir, output, code=trust_journal)
        return
    if run is not None:
        with reader_of(runs_dir, run):
            pass
    path, strips = "/", {}

    def steps(of_run: str) -> bytes:
        with reader_of(runs_dir, of_run) as reader:
            return reader.holding("0").overview(0)

    with ThreadPoolExecutor(
        1
    ) as pool:  # a million steps take a quarter of a second, as long as to import the pages and their server
        if run is not None:
            path = f"/run/{quote(run, safe='')}"
            strips[run] = pool.submit(steps, run)
        browse(runs_dir, path, port, opens=not no_open, strips=strips, trust=trust_journal, metrics_port=metrics_port)


def _write(run: str, runs_dir: Path, file: Path, *, code: bool) -> None:
    from microagents.journal.sharded import reader_of
    from microagents.web.viewer.report import report

    with reader_of(runs_dir, run, trust=code) as reader:
        written = report(reader)
    with refusing(f"{str(file)!r} cannot be written"):
        file.write_text(written, encoding="utf-8")
    echo(str(file))
