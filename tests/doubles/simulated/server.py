"""The endpoint: routes, faults on request, and replies of the model behind it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path

from aiohttp import web
from msgspec import Struct, json

from microagents.actors.role import Context, Strategy
from microagents.base.aio import TaskScope
from microagents.base.errors import MicroagentsError, ModelUnavailable
from microagents.base.logs import log
from microagents.models.model import Call, Model, open_model
from microagents.models.sample_keys import HEADER
from microagents.replies.chat import Sample
from microagents.task import Task
from microagents.web.listening import admit, listening
from tests.doubles.simulated.batches import BatchDesk, BatchFaults
from tests.doubles.simulated.faults import Fault, FaultInjector
from tests.doubles.simulated.requested_calls import OneTask, RequestedCalls
from tests.doubles.simulated.wires import WIRES, CompletionRequest, Wire

MAX_REQUEST_BYTES = 64 * 2**20
GARBAGE = b'{"choices": [{"message": {"content": "x ='


class Endpoint(Struct, frozen=True, kw_only=True):
    """Port and model of a served endpoint."""

    model: str
    """Spec of the model."""
    task: Task | None = None
    """The task whose questions the simulated model answers; None for other models."""
    seed: int = 0
    """Seed of simulated replies and of faults."""
    faults: Sequence[Fault] = ()
    port: int = 0
    """0 takes a free one."""
    batches: BatchFaults = BatchFaults()
    """Faults of its batches."""
    keys: Path | None = None
    """File with the key of each line of a batch, see `BatchDesk`."""


class Serving:
    """An endpoint while it is being served."""

    def __init__(self, url: str, desk: BatchDesk) -> None:
        self.desk = desk
        self.url = url
        """Its address, such as ``http://127.0.0.1:8399``."""
        self.requests = 0
        self.samples = 0
        """Number of samples drawn."""
        self.faults = Counter[str]()
        """Number of faults by kind."""


@asynccontextmanager
async def serving(endpoint: Endpoint) -> AsyncIterator[Serving]:
    """Serve an endpoint as long as the block.

    Raises:
        InvalidUsage: the model or the task is refused, or the port is taken.
    """
    tasks = [] if endpoint.task is None else OneTask(endpoint.task)
    model = open_model(endpoint.model, Context(run_id="serve", seed=endpoint.seed, tasks=tasks, strategy=Strategy()))
    handler = _Handler(endpoint, model)
    application = web.Application(client_max_size=MAX_REQUEST_BYTES, middlewares=[admitted])
    application.router.add_get("/v1/models", handler.models)
    handler.served.desk.add_routes(application)
    for wire in WIRES:
        application.router.add_post(wire.path, handler.answering(wire))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(model.close)
        handler.served.url = await stack.enter_async_context(listening(application, "127.0.0.1", endpoint.port))
        yield handler.served


@web.middleware
async def admitted(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Admit a request, whose connection then stays open."""
    admit(request)
    return await handler(request)


class _Handler:
    """Handles the requests to one endpoint."""

    def __init__(self, endpoint: Endpoint, model: Model) -> None:
        self._endpoint = endpoint
        self._model = model
        self._calls = RequestedCalls(endpoint.task)
        self._faults = FaultInjector(endpoint.faults, endpoint.seed)
        self._numbers = count()
        desk = BatchDesk(WIRES, self._calls, self._draw, endpoint.batches, seed=endpoint.seed, keys=endpoint.keys)
        self.served = Serving("", desk)

    async def models(self, _: web.Request) -> web.Response:
        """Answer with the list of models, in a form that all SDKs read. Requests may name any model."""
        name = self._endpoint.model
        times = {"created": 0, "created_at": "1970-01-01T00:00:00Z"}
        model = {
            "id": name,
            "object": "model",
            "type": "model",
            "display_name": name,
            "owned_by": "microagents",
            **times,
        }
        return _json({"object": "list", "data": [model], "has_more": False, "first_id": name, "last_id": name})

    def answering(self, wire: Wire) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:

        async def answer(request: web.Request) -> web.StreamResponse:
            self.served.requests += 1
            fault = self._faults.next()
            log().info("request", path=request.path, key=request.headers.get(HEADER), fault=fault)
            if fault is not None:
                self.served.faults[fault] += 1
                return await self._fail(request, wire, fault)
            try:
                body = await request.read()
                if b'"background":true' in body:
                    return self.served.desk.create_response(json.decode(body))
                asked = wire.read(body)
                calls = self._calls.of(asked, request.headers.get(HEADER))
                if asked.stream:
                    return await self._stream(request, wire, asked, calls)
                samples = await self._draw(calls)
                self.served.desk.rows_singly.update([each.id.election.input for each in calls])
                return _json(wire.whole(asked, samples, next(self._numbers)))
            except MicroagentsError as error:
                return self._refuse(wire, error)

        return answer

    async def _draw(self, calls: Sequence[Call]) -> list[Sample]:
        async with TaskScope() as scope:
            drawn = [scope.start(self._sample(call)) for call in calls]
            await scope.join()
            return [each.result() for each in drawn]

    async def _sample(self, call: Call) -> Sample:
        self.served.samples += 1
        return await self._model.complete(call)

    async def _stream(
        self, request: web.Request, wire: Wire, asked: CompletionRequest, calls: Sequence[Call]
    ) -> web.StreamResponse:
        """Send each choice as soon as it is drawn. After the first one, an error can only be an event."""
        number = next(self._numbers)
        response = web.StreamResponse(headers={"content-type": "text/event-stream", "cache-control": "no-cache"})
        scope = TaskScope()

        async def send(index: int, call: Call) -> Sample:
            sample = await self._sample(call)
            await opened()
            choice = b"".join(wire.choice(asked, index, sample, number))
            await response.write(choice)
            return sample

        async def opened() -> None:
            async with opening:
                if not response.prepared:
                    await response.prepare(request)
                    await response.write(b"".join(wire.opening(asked, number)))

        opening = asyncio.Lock()
        try:
            drawn = [scope.start(send(index, call)) for index, call in enumerate(calls)]
            await scope.join()
            await opened()
            samples = [each.result() for each in drawn]
            await response.write(b"".join(wire.closing(asked, samples, number)))
        except MicroagentsError as error:
            if not response.prepared:
                raise
            body = json.encode(wire.error(502, str(error)))
            await response.write(b"data: %s\n\n" % body)
        finally:
            await scope.close()
        await response.write_eof()
        return response

    async def _fail(self, request: web.Request, wire: Wire, fault: str) -> web.StreamResponse:
        if fault.isdigit():
            return self._error(wire, int(fault), "a fault that was asked for")
        if fault == "hang":
            await asyncio.Event().wait()  # until the client hangs up
        if fault == "garbage":
            return web.Response(body=GARBAGE, content_type="application/json")
        response = web.StreamResponse(headers={"content-length": str(2 * len(GARBAGE))})
        await response.prepare(request)
        await response.write(GARBAGE)
        if request.transport is not None:
            request.transport.abort()
        return response

    def _refuse(self, wire: Wire, error: MicroagentsError) -> web.Response:
        status = 400
        headers = {}
        if isinstance(error, ModelUnavailable):
            status = {"refused": 400, "busy": 429}.get(error.kind, 502)
            if error.retry_after_s is not None:
                headers["retry-after"] = f"{error.retry_after_s:g}"
        return _json(wire.error(status, " ".join(str(error).split())), status, headers)

    def _error(self, wire: Wire, status: int, message: str) -> web.Response:
        return _json(wire.error(status, message), status)


def _json(body: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=json.encode(body), status=status, content_type="application/json", headers=headers)
