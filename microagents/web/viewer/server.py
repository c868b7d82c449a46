"""The pages of runs, and the read-only answers that they ask for."""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from hmac import compare_digest
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from microagents.base.errors import AlreadyDecided, InvalidUsage, MicroagentsError
from microagents.journal.reading import Reader
from microagents.journal.sharded import reader_of
from microagents.runs.inspection.row_queue import RowQueue, judge_next
from microagents.runs.inspection.runs import decide, runs_in, waiting_in
from microagents.runs.result import Result
from microagents.telemetry.metrics import labels_of
from microagents.telemetry.prometheus import CONTENT_TYPE, exposition
from microagents.web.listening import admit, busy, host_of, is_loopback, listening, wait_of
from microagents.web.viewer import pages
from microagents.web.viewer.reads import READ_S, READS, Read, input_in, strip

T = TypeVar("T")
HOST, EVERY_HOST = "127.0.0.1", "0.0.0.0"  # noqa: S104 - of totals only, and on request
TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}
LATELY_S = 3600.0
"""Time for which the totals of a run are given after its last write."""
MAX_BODY = 1 << 20
"""Bytes of a decision of a person."""
OTHER_SITES = ("cross-site", "same-site")
"""Words of browsers for requests that neither a page of ours nor a person's own entry made; other ports are the same site."""
MAX_READS = 3
"""Reads of journals at a time: each takes a thread, and more would slow a run on this machine."""
BEGIN_S = 60.0
"""Seconds in which a run that a page continues must have begun."""
WRONG_USAGE = 2
"""Exit code of a command that refused to begin."""
QUEUE_S = 20.0
"""Seconds that a request may wait for one of these reads."""
MAX_WAITING = 10_000
"""Entries of the queue of items that wait for a person."""
LISTED = (
    *("run_id", "outcome", "verdict", "right", "task", "strategy", "models"),
    *("inputs", "steps", "unit", "checked", "errors", "calls", "cost_usd", "price", "created_at"),
)
"""Fields of each run in the list of runs."""
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
async def viewing(
    runs_dir: Path,
    port: int = 0,
    token: str = "",
    strips: Mapping[str, Future[bytes]] | None = None,
    *,
    trust: bool = False,
    metrics_port: int | None = None,
    judged: JudgedQueue | None = None,
) -> AsyncIterator[str]:
    """Serve the pages of a folder of runs to this machine as long as the block; gives their address.

    Args:
        runs_dir: the folder.
        port: the port to listen on; 0 takes a free port.
        token: a request with it may decide items that wait for a person, and continue runs; without one nothing can be written.
        strips: steps that are being read already, by run; each is sent once.
        trust: whether to trust each journal that is looked at.
        judged: rows that a person judges on a page; a request to judge one needs the token.
        metrics_port: a port on which every host may read the totals of runs, and nothing else; None for none.

    Raises:
        InvalidUsage: a port is taken.
    """
    site = _Site(runs_dir, token, dict(strips or {}), trust=trust)
    application = web.Application(middlewares=[site.admit], client_max_size=MAX_BODY)
    application.router.add_get("/api/runs", site.runs)
    application.router.add_get("/api/waiting", site.waiting)
    application.router.add_get("/metrics", site.metrics)
    for end, read in READS.items():
        application.router.add_get(f"/api/run/{{run}}{end}", partial(site.read, read))
    application.router.add_get("/api/run/{run}/strip", site.strip)
    application.router.add_get("/api/run/{run}/differences", site.differences)
    application.router.add_post("/api/run/{run}/decide", site.decide)
    application.router.add_post("/api/run/{run}/resume", site.resume)
    if judged is not None:
        application.router.add_get("/api/judge", partial(site.queued, judged))
        application.router.add_post("/api/judge", partial(site.judge, judged))
    application.router.add_get("/static/{name}", site.static)
    for path in ("/", "/run/{rest:.+}", "/compare", "/waiting", "/judge"):
        application.router.add_get(path, site.index)
    totals = web.Application()
    totals.router.add_get("/metrics", site.metrics_for_all)
    public = nullcontext() if metrics_port is None else listening(totals, EVERY_HOST, metrics_port)
    async with public, listening(application, HOST, port) as url:
        yield url


class _Site:
    """Answers the requests of the pages."""

    def __init__(self, runs_dir: Path, token: str, strips: dict[str, Future[bytes]], *, trust: bool) -> None:
        self._runs_dir = runs_dir
        self._trust = trust
        self._strips = strips
        self._token = token
        self._reads = asyncio.Semaphore(MAX_READS)

    @web.middleware
    async def admit(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Refuse cross-site requests, and send headers that keep shown texts from running."""
        response = await self._answer(request, handler)
        response.headers.update(SAFETY)
        return response

    async def _answer(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        origin = request.headers.get("origin")
        is_foreign = origin is not None and origin.partition("://")[2] != request.host
        # No link and no picture of another site may have the code of a task imported, nor anything computed.
        is_foreign |= request.path.startswith("/api/") and request.headers.get("sec-fetch-site") in OTHER_SITES
        if not is_loopback(host_of(request)) or is_foreign:
            return _error(403, "only pages of this machine are served, under its own name")
        admit(request)
        refusal = self._refusal_to_write(request) if request.method == "POST" else None
        if refusal is not None:
            return refusal
        try:
            return await handler(request)
        except web.HTTPException as error:
            response = _error(error.status, error.reason)
            response.headers.update(wait_of(error))
            return response
        except MicroagentsError as error:
            status = 404
            if isinstance(error, AlreadyDecided):
                status = 409
            words = str(error).split()
            return _error(status, " ".join(words))

    async def index(self, _: web.Request) -> web.Response:
        """Answer with the page. The token stands behind the ``#`` of its address, which no browser sends."""
        return _file("index.html")

    async def static(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in {each.name for each in pages.STATIC.iterdir()}:
            raise web.HTTPNotFound
        return _file(name)

    async def runs(self, _: web.Request) -> web.Response:
        """Answer with the runs of the folder: those under way first, then the most recent ones."""

        def read() -> list[dict[str, Any]]:
            rows = list(runs_in(self._runs_dir))
            found = [_listed(run, row) for run, row in reversed(rows)]
            return sorted(found, key=lambda each: each.get("outcome") != "running")

        return _json(await self._in_thread(read))

    async def waiting(self, _: web.Request) -> web.Response:
        """Answer with all that waits for a person, over all runs."""
        found = await self._in_thread(partial(waiting_in, self._runs_dir))
        return _json([each._asdict() for each in found[:MAX_WAITING]])

    async def metrics(self, _: web.Request) -> web.Response:
        """Answer Prometheus with the totals of the runs under way, and of runs that ended lately."""

        def read() -> str:
            lately = runs_in(self._runs_dir, since_s=time.time() - LATELY_S)
            return exposition(
                (labels_of(run, row.task, row.models), row.account)
                for run, row in lately
                if not isinstance(row, InvalidUsage)
            )

        text = await self._in_thread(read)
        return web.Response(body=text.encode(), headers={"content-type": CONTENT_TYPE})

    async def metrics_for_all(self, request: web.Request) -> web.Response:
        """Answer a Prometheus of another machine."""
        admit(request)
        return await self.metrics(request)

    async def read(self, read: Read, request: web.Request) -> web.Response:
        """Answer with a read of a run."""
        found = await self._read(request, lambda reader: read(reader, request.query))
        if isinstance(found, bytes):
            return _packed(found)
        if isinstance(found, str):
            return web.Response(text=found, content_type="image/svg+xml", charset="utf-8")
        return _json(found)

    async def strip(self, request: web.Request) -> web.Response:
        """Answer with the steps of an input, which may have been read already."""
        is_first = not input_in(request.query) and not input_in(request.query, "start")
        ahead = self._strips.pop(request.match_info["run"], None) if is_first else None
        if ahead is not None:
            return _packed(pages.packed(await asyncio.wrap_future(ahead)))
        return await self.read(strip, request)

    async def differences(self, request: web.Request) -> web.Response:
        """Answer with the decisions that another run has differently."""

        def read(reader: Reader) -> dict[str, Any]:
            with reader_of(self._runs_dir, request.query.get("other", "")) as other:
                return pages.differences(reader, other, input_in(request.query), READ_S / 2)

        return _json(await self._read(request, read))

    async def decide(self, request: web.Request) -> web.Response:
        """Decide an item that waits for a person."""
        given = await _sent(request, _Decision)
        run = request.match_info["run"]
        decided = await asyncio.to_thread(decide, self._runs_dir, run, given.path, given.value, again=given.again)
        may_resume = await self._read(request, pages.may_resume)
        return _json({"path": decided.path, "go_on": decided.go_on, "may_resume": may_resume})

    async def resume(self, request: web.Request) -> web.Response:
        """Continue a run in a process of its own, if this user has begun or continued it here: its task's code runs."""
        run = request.match_info["run"]
        if not await self._read(request, pages.may_resume):
            return _error(
                403, f"run {run} is not continued from a page; `microagents show {run}` has the command for it"
            )
        refused = await _begun_detached(run, self._runs_dir)
        if refused:
            return _error(409, refused)
        return _json({"run_id": run})

    async def queued(self, judged: JudgedQueue, _: web.Request) -> web.Response:
        """Answer with the row that waits for a person."""
        async with judged.one_at_a_time:
            return _json(await self._in_thread(judged.shown))

    async def judge(self, judged: JudgedQueue, request: web.Request) -> web.Response:
        """Keep a person's answers on a row, and answer with the next one and the samples of this one; or end the pages."""
        given = await _sent(request, _Judgment)
        if given.number is None:
            judged.ended.set()
            return _json({"said": judged.queue.said()})
        async with judged.one_at_a_time:
            samples = await asyncio.to_thread(judge_next, judged.queue, given.number, given.answers)
            return _json(await self._in_thread(judged.shown) | {"samples": samples})

    def _refusal_to_write(self, request: web.Request) -> web.Response | None:
        """Refuse a request without the token, in a header: cookies of this host go to all its ports, also other users'."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        is_known = compare_digest(token.encode(errors="replace"), self._token.encode())
        if scheme != "Bearer" or not self._token or not is_known:
            return _error(
                403, "to decide or resume here, open the address with the token that `microagents view` printed"
            )
        if request.content_type != "application/json":
            return _error(415, "it is sent as JSON")
        return None

    async def _read(self, request: web.Request, read: Callable[[Reader], T]) -> T:
        opened: list[Reader] = []

        def opening() -> T:
            with reader_of(self._runs_dir, request.match_info["run"], trust=self._trust) as reader:
                opened.append(reader)
                return read(reader)

        try:
            return await self._in_thread(opening, READ_S * 1.5)
        except TimeoutError:
            raise InvalidUsage(f"this took longer than {READ_S:g} s, so it was ended") from None
        finally:
            for reader in opened:  # the query of a request that was cancelled, too
                reader.interrupt()

    async def _in_thread(self, read: Callable[[], T], within_s: float | None = None) -> T:
        """Read in a thread, once one is free."""
        try:
            async with asyncio.timeout(QUEUE_S):
                await self._reads.acquire()
        except TimeoutError:
            raise busy("other reads of journals take too long; try again later", QUEUE_S) from None
        try:
            async with asyncio.timeout(within_s):
                return await asyncio.to_thread(read)
        finally:
            self._reads.release()


async def _begun_detached(run: str, runs_dir: Path) -> str:
    """Let `resume --detach` begin a run; returns its refusal, or an empty text once the run has begun."""
    # -P: no file of the working folder stands in for a package
    words = ["-P", "-m", "microagents", "resume", run, "--runs-dir", str(runs_dir), "--detach"]
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE)
    try:
        async with asyncio.timeout(BEGIN_S):
            _, said = await process.communicate()
    except TimeoutError:
        return f"run {run} has not begun within {BEGIN_S:g} s; its log stands beside its journal"
    finally:
        if process.returncode is None:
            process.kill()  # the run has a session of its own, and goes on
            await process.wait()
    if process.returncode != WRONG_USAGE:
        return ""
    words = said.decode(errors="replace").split()
    return " ".join(words).removeprefix("microagents: ")


class JudgedQueue:
    """Rows that a person judges on a page.

    Args:
        queue: the rows.
        ended: set once the person has ended.
    """

    def __init__(self, queue: RowQueue, ended: asyncio.Event) -> None:
        self.queue, self.ended, self.one_at_a_time = queue, ended, asyncio.Lock()

    def shown(self) -> dict[str, Any]:
        """Return the row that waits."""
        return {"title": self.queue.title, "waiting": self.queue.waiting()}


class _Judgment(msgspec.Struct):
    """Answers of a person on a row, as the page sends them."""

    number: int | None
    """Place of the row in the queue; None if the person ends here."""
    answers: dict[str, str] = {}


class _Decision(msgspec.Struct):
    """A decision of a person, as the page sends it."""

    path: str
    value: str | dict[str, str]
    """Words or JSON, or the texts of the fields of a reply."""
    again: bool = False


async def _sent(request: web.Request, kind: type[T]) -> T:
    """Read what a page sent."""
    try:
        return msgspec.json.decode(await request.read(), type=kind)
    except msgspec.MsgspecError as error:
        raise web.HTTPBadRequest(reason=f"this cannot be read: {error}") from None


def _listed(run: str, row: Result | InvalidUsage) -> dict[str, Any]:
    """Return the facts of a run for the list; the error of one that cannot be read."""
    if isinstance(row, InvalidUsage):
        return {"run_id": run, "error": str(row)}
    found = {name: value for name, value in row.as_json().items() if name in LISTED}
    return {**found, "waiting": len(row.waiting_at)}


def _packed(content: bytes) -> web.Response:
    return web.Response(body=content, headers={"content-encoding": "deflate"}, content_type="application/octet-stream")


def _file(name: str) -> web.Response:
    return web.Response(text=pages.source(name), content_type=TYPES[Path(name).suffix], charset="utf-8")


def _json(body: object, status: int = 200) -> web.Response:
    response = web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")
    response.enable_compression()
    return response


def _error(status: int, message: str) -> web.Response:
    return _json({"error": message}, status)
