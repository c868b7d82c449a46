"""Pages that a command serves and opens in the browser, until Ctrl-C or until the person has ended."""

from __future__ import annotations

import asyncio
import secrets
import webbrowser
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

from microagents.cli.reporting import echo

if TYPE_CHECKING:
    from microagents.runs.inspection.row_queue import RowQueue

REDIRECT = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={address}">\n'
"""The browser opens a file that leads to the address and that only this user can read: all users see the arguments of a program."""


def browse(
    runs_dir: Path, path: str, port: int = 0, *, opens: bool = True, queue: RowQueue | None = None, **given: Any
) -> None:
    """Serve the pages of a folder of runs, and open one.

    Args:
        runs_dir: the folder.
        path: path of the page.
        port: the port; 0 takes a free one.
        opens: whether to open it in the browser, and not only to print its address.
        queue: rows to judge; the pages end with it.
        given: further arguments of the server.
    """
    asyncio.run(_browse(runs_dir, path, port, opens=opens, queue=queue, **given))


async def _browse(runs_dir: Path, path: str, port: int, *, opens: bool, queue: RowQueue | None, **given: Any) -> None:
    from microagents.web.listening import ended_by_signal
    from microagents.web.viewer.server import JudgedQueue, viewing

    ended = ended_by_signal()
    token = secrets.token_urlsafe(16)
    judged = None if queue is None else JudgedQueue(queue, ended)
    async with viewing(runs_dir, port, token, judged=judged, **given) as url:
        address = f"{url}{path}#token={token}"
        echo(address)
        with NamedTemporaryFile("w", prefix="microagents-", suffix=".html", encoding="utf-8") as redirecting:
            if opens:
                redirecting.write(REDIRECT.format(address=address))
                redirecting.flush()
                await asyncio.to_thread(webbrowser.open, Path(redirecting.name).as_uri())
            await ended.wait()
