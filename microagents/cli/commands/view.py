"""`microagents view`."""

from __future__ import annotations

import asyncio
import secrets
import webbrowser
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Annotated
from urllib.parse import quote

import typer

from microagents.base.errors import InvalidUsage, read_failure
from microagents.cli.commands.serve import MAX_PORT
from microagents.cli.options import RUNS, RunsDir, WithCode, complete_run
from microagents.cli.reporting import echo

REDIRECT = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={address}">\n'
"""The browser opens a file that leads to the address and that only this user can read: all users see the arguments of a program."""


def command(
    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="Name of the run. [default: a list of all]", autocompletion=complete_run),
    ] = None,
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
    from microagents.journal.reading import reader_of
    from microagents.web.viewer.pages import strip

    if output is not None:
        if run is None:
            raise InvalidUsage("-o writes the page of one run; name it: microagents view RUN -o FILE")
        _write(run, runs_dir, output, code=trust_journal)
        return
    if run is not None:
        with reader_of(runs_dir, run):
            pass
    path = "/" if run is None else f"/run/{quote(run, safe='')}"
    with ThreadPoolExecutor(1) as pool:  # a million steps take half a second, as long as to import the server
        strips = {} if run is None else {run: pool.submit(strip, runs_dir, run)}
        asyncio.run(_view(runs_dir, path, port, strips, metrics_port, opens=not no_open, code=trust_journal))


def _write(run: str, runs_dir: Path, file: Path, *, code: bool) -> None:
    from microagents.journal.reading import reader_of
    from microagents.web.viewer.report import report

    with reader_of(runs_dir, run, trust=code) as reader:
        written = report(reader)
    try:
        file.write_text(written, encoding="utf-8")
    except OSError as error:
        raise InvalidUsage(f"{str(file)!r} cannot be written: {read_failure(error)}") from None
    echo(str(file))


async def _view(
    runs_dir: Path,
    path: str,
    port: int,
    strips: dict[str, Future[bytes]],
    metrics_port: int | None,
    *,
    opens: bool,
    code: bool,
) -> None:
    from microagents.web.listening import ended_by_signal
    from microagents.web.viewer.server import viewing

    ended = ended_by_signal()
    token = secrets.token_urlsafe(16)
    async with viewing(runs_dir, port, token, strips, trust=code, metrics_port=metrics_port) as url:
        address = f"{url}{path}#token={token}"
        echo(address)
        with NamedTemporaryFile("w", prefix="microagents-", suffix=".html", encoding="utf-8") as redirecting:
            if opens:
                redirecting.write(REDIRECT.format(address=address))
                redirecting.flush()
                await asyncio.to_thread(webbrowser.open, Path(redirecting.name).as_uri())
            await ended.wait()
