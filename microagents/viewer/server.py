"""The pages of runs, and the read-only answers that they ask for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from microagents.errors import InvalidUsage, MicroagentsError
from microagents.journal.reading import Reader, reader_of
from microagents.runs.inspection.decision import inspect_decision
from microagents.runs.inspection.runs import recorded_result, runs_in
from microagents.serving.listening import Listener, host_of, is_loopback

T = TypeVar("T")
HOST = "127.0.0.1"
STATIC = Path(__file__).parent / "static"
TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}
MAX_READS = 2
"""Reads of journals at a time: each takes a thread, and more would slow a run on this machine."""
SAFETY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@asynccontextmanager
async def viewing(runs_dir: Path, port: int = 0) -> AsyncIterator[str]:
    """Serve the pages of a folder of runs to this machine as long as the block; gives their address.

    Raises:
        InvalidUsage: the port is taken.
    """
    pages = _Pages(runs_dir)
    application = web.Application(middlewares=[pages.admit])
    application.router.add_get("/api/runs", pages.runs)
    application.router.add_get("/api/run/{run}", pages.run)
    application.router.add_get("/api/run/{run}/strip", pages.strip)
    application.router.add_get("/api/run/{run}/decision", pages.decision)
    application.router.add_get("/static/{name}", pages.static)
    application.router.add_get("/", pages.index)
    application.router.add_get("/run/{rest:.+}", pages.index)
    async with pages.listener.listening(application, HOST, port) as url:
        yield url


class _Pages:
    """Answers the requests of the pages."""

    def __init__(self, runs_dir: Path) -> None:
        self._runs_dir = runs_dir
        self._reads = asyncio.Semaphore(MAX_READS)
        self.listener = Listener()

    @web.middleware
    async def admit(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Refuse what a page of another site could send, and keep all that is shown from acting as a page."""
        response = await self._answer(request, handler)
        response.headers.update(SAFETY)
        return response

    async def _answer(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        origin = request.headers.get("origin")
        is_foreign = origin is not None and urlsplit(origin).netloc != request.host
        if not is_loopback(host_of(request)) or is_foreign:
            return _error(403, "only pages of this machine are served, under its own name")
        self.listener.admit(request)
        try:
            return await handler(request)
        except web.HTTPException as error:
            return _error(error.status, error.reason)
        except MicroagentsError as error:
            return _error(404, " ".join(str(error).split()))

    async def index(self, _: web.Request) -> web.Response:
        return _file("index.html")

    async def static(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in {each.name for each in STATIC.iterdir()}:
            raise web.HTTPNotFound
        return _file(name)

    async def runs(self, _: web.Request) -> web.Response:
        """Answer with the runs of the folder: those under way first, then the most recent ones."""

        def read() -> list[dict[str, Any]]:
            found = [
                {"run_id": name, "error": str(row)} if isinstance(row, InvalidUsage) else row.as_json()
                for name, row in reversed(list(runs_in(self._runs_dir)))
            ]
            return sorted(found, key=lambda each: each.get("outcome") != "running")

        return _json(await self._in_thread(read))

    async def run(self, request: web.Request) -> web.Response:
        return _json(await self._read(request, lambda reader: recorded_result(reader).as_json()))

    async def strip(self, request: web.Request) -> web.Response:
        """Answer with one byte for each step of an input."""
        given = request.query.get("input", "0")
        if not (given.isascii() and given.isdecimal() and len(given) < 12):  # noqa: PLR2004 - as numbers in paths
            raise InvalidUsage(f"{given!r:.100} is no number of an input")

        def read(reader: Reader) -> bytes:
            reader.experiment.check_there([int(given)])
            return reader.overview(int(given))

        response = web.Response(body=await self._read(request, read), content_type="application/octet-stream")
        response.enable_compression()
        return response

    async def decision(self, request: web.Request) -> web.Response:
        return _json(await self._read(request, lambda reader: inspect_decision(reader, request.query.get("path", ""))))

    async def _read(self, request: web.Request, read: Callable[[Reader], T]) -> T:
        def opened() -> T:
            with reader_of(self._runs_dir, request.match_info["run"]) as reader:
                return read(reader)

        return await self._in_thread(opened)

    async def _in_thread(self, read: Callable[[], T]) -> T:
        async with self._reads:
            return await asyncio.to_thread(read)


def _file(name: str) -> web.Response:
    return web.Response(body=(STATIC / name).read_bytes(), content_type=TYPES[Path(name).suffix], charset="utf-8")


def _json(body: object, status: int = 200) -> web.Response:
    response = web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")
    response.enable_compression()
    return response


def _error(status: int, message: str) -> web.Response:
    return _json({"error": message}, status)
