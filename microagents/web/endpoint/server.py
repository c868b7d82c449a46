"""The voted endpoint: routes, who may use it, and replies whole or streamed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from typing import Any

from aiohttp import web
from msgspec import json

from microagents.base.errors import InvalidUsage, MicroagentsError, ModelUnavailable, Stopped
from microagents.base.logs import log
from microagents.models.http.refusals import retry_after_s
from microagents.web.endpoint.asked import COUNT_TOKENS, ForwardedRequest
from microagents.web.endpoint.callers import Caller, caller_of
from microagents.web.endpoint.caps import Caps
from microagents.web.endpoint.exchange import Exchange
from microagents.web.endpoint.ledger import EVERYONE, Ledger
from microagents.web.endpoint.marks import headers_of, marked, sums_of
from microagents.web.endpoint.owed import Debt, Debts
from microagents.web.endpoint.policy import Policy
from microagents.web.endpoint.served_elections import ElectedReply, Endpoint, ServedElections
from microagents.web.endpoint.wires import CHAT, WIRES, Wire, Withheld
from microagents.web.listening import admit, busy, host_of, is_loopback, listening, wait_of

__all__ = ["Endpoint", "Serving", "serving"]
MAX_REQUEST_BYTES = 64 * 2**20
MAX_BYTES_IN_HAND = 4 * MAX_REQUEST_BYTES
"""Bytes of the bodies of all requests that have no reply yet."""
BUSY_S = 5
"""Seconds after which a request may be sent again that came while there were more."""
BODY_S = 60.0
"""Seconds that the body of a request may take."""
CAPPED_TOKENS = 32_000
"""Most output tokens of a reply under a cap of cost, unless the operator says otherwise: its cost is reserved."""
OK = 200
NO_RETRY = {"x-should-retry": "false"}
COMMENT_S = 5.0
"""Seconds between two comments of a stream without an event: proxies cut silent ones. A failing model is told before the first
(`microagents.web.endpoint.served_elections.OUTAGE_S`), with its own status, by which clients know whether to try again."""


@asynccontextmanager
async def serving(endpoint: Endpoint) -> AsyncIterator[Serving]:
    """Serve an endpoint as long as the block.

    Raises:
        InvalidUsage: a model is refused, the port is taken, or others could use it without a token.
    """
    is_open = any(each.token is None for each in endpoint.callers)
    if is_open and not is_loopback(endpoint.host):
        raise InvalidUsage(
            f"host {endpoint.host!r} lets other machines use the models: name the environment variable of a token with --tokens"
        )
    async with AsyncExitStack() as stack:
        ledger = Ledger(endpoint.runs_dir)
        stack.callback(ledger.close)
        limits = {each.name: each.limit for each in endpoint.callers}
        limits[EVERYONE] = endpoint.limit
        caps = Caps(limits, ledger)
        held = ServedElections(endpoint, caps)
        await held.begin()
        stack.push_async_callback(held.close)
        debts = Debts(held.hold, ledger)
        stack.push_async_callback(debts.close)
        served = Serving(endpoint, held, debts, caps)
        application = web.Application(client_max_size=MAX_REQUEST_BYTES, middlewares=[served.admit])
        application.router.add_get("/v1/models", served.models)
        application.router.add_post(COUNT_TOKENS, served.count_tokens)
        for wire in WIRES:
            application.router.add_post(wire.path, served.answer)
        served.url = await stack.enter_async_context(listening(application, endpoint.host, endpoint.port))
        yield served


class Serving:
    """An endpoint while it is being served.

    Args:
        endpoint: its models and settings.
        held: holds the elections.
        debts: the replies that are owed.
        caps: bound the cost of all samples.
    """

    def __init__(self, endpoint: Endpoint, held: ServedElections, debts: Debts, caps: Caps) -> None:
        self._endpoint = endpoint
        self._elections = held
        self.debts = debts
        self.url = ""
        """Its address, such as ``http://127.0.0.1:8399``."""
        self.counts = Counter[str]()
        """Requests, answered ones, and of these the ones that were not elected."""
        self.caps = caps
        self._ceiling = endpoint.ceiling
        if self._ceiling is None and caps.are_set:
            self._ceiling = CAPPED_TOKENS
        self._bytes_in_hand = 0

    @property
    def base_urls(self) -> dict[str, str]:
        """The base URL of each SDK whose wires the models speak."""
        ends = {"openai": "/v1", "anthropic": ""}
        return {wire.sdk: f"{self.url}{ends[wire.sdk]}" for wire in self._elections.wires}

    @property
    def _paths(self) -> str:
        return " and ".join(each.path for each in self._elections.wires)

    @web.middleware
    async def admit(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Refuse requests without the token, and requests that a web page in a browser of this machine could send."""
        wire, caller = _wire_of(request), self._caller(request)
        if caller is None:
            return _error(wire, 401, "the token is missing or wrong")
        if caller.token is None and not is_loopback(host_of(request)):
            return _error(wire, 403, "without a token only this machine is served, under its own name")
        origin = request.headers.get("origin")
        if origin is not None and origin.partition("://")[2] != request.host:
            return _error(wire, 403, "pages of other sites are not served")
        admit(request)
        if request.method == "POST" and request.content_type != "application/json":
            return _error(wire, 400, "the content type must be application/json")
        # No SDK sends one, and a small body could become a large one.
        if request.headers.get("content-encoding", "identity") != "identity":
            return _error(wire, 415, "the body must not be compressed")
        try:
            return await handler(request)
        except web.HTTPException as error:
            reason = error.reason
            if isinstance(error, web.HTTPNotFound | web.HTTPMethodNotAllowed):
                reason = f"{request.method} {request.path:.200} is not served, but POST {self._paths}"
            return _error(wire, error.status, reason, wait_of(error))
        except TimeoutError:
            return _error(wire, 408, f"the body did not come within {BODY_S:g} s")
        except MicroagentsError as error:
            return _refusal(wire, error, None)

    async def models(self, _: web.Request) -> web.Response:
        """Answer with the list of models, in a form that all SDKs read. Requests may name any model."""
        kinds = {"object": "model", "type": "model", "created": 0, "created_at": "1970-01-01T00:00:00Z"}
        data = [{"id": name, "display_name": name, **kinds} for name in self._endpoint.models]
        return _json({"object": "list", "data": data, "has_more": False})

    async def count_tokens(self, request: web.Request) -> web.Response:
        """Forward a count of tokens, which is no election."""
        answer = await self._elections.passed_on(await self._read(request), COUNT_TOKENS)
        return web.Response(body=answer.content, status=answer.status_code, content_type="application/json")

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request with the reply that is elected."""
        self.counts["requests"] += 1
        size = request.content_length or MAX_REQUEST_BYTES
        if self._bytes_in_hand and self._bytes_in_hand + size > MAX_BYTES_IN_HAND:
            raise busy("the requests in hand are too large together; try again later", BUSY_S)
        self._bytes_in_hand += size
        try:
            caller = self._caller(request)
            assert caller is not None
            asked = await self._read(request, caller.name)
            if self.caps.bound(caller.name) and asked.unbounded is not None:
                raise InvalidUsage(
                    f"{asked.unbounded} is not served under a cap of cost: the provider adds tokens or fees that no request shows; leave "
                    "it out, or ask the operator for access without a cap"
                )
            return await self._answered(request, asked, caller.policy)
        finally:
            self._bytes_in_hand -= size

    def _caller(self, request: web.Request) -> Caller | None:
        sent = request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")
        return caller_of(self._endpoint.callers, sent)

    async def _read(self, request: web.Request, caller: str = "") -> ForwardedRequest:
        wire = _wire_of(request)
        if wire not in self._elections.wires:
            raise InvalidUsage(f"no model here speaks this wire: requests go on as they came, to {self._paths}")
        async with asyncio.timeout(BODY_S):
            body = await request.read()
        return ForwardedRequest.read(wire, body, request.headers, request.query_string, caller)

    async def _answered(self, request: web.Request, asked: ForwardedRequest, policy: Policy) -> web.StreamResponse:
        """Answer with the reply of an election, or with the replies of one for each choice; a stream has comments until then."""
        stream = web.StreamResponse(headers={"content-type": "text/event-stream", "cache-control": "no-cache"})
        with ExitStack() as stack:
            exchanges = [Exchange(asked, policy, self._ceiling) for _ in range(asked.choices)]
            debts = [stack.enter_context(self.debts.taken(each)) for each in exchanges]
            elections = [debt.election for debt in debts]
            comment_s = COMMENT_S if asked.streams else None
            while (await asyncio.wait(elections, timeout=comment_s))[1]:
                if not stream.prepared:
                    await stream.prepare(request)
                await stream.write(b": the reply is not decided yet\n\n")
            answer = self._answer(asked, debts)
            is_refusal = answer.status != OK
            if not asked.streams or (is_refusal and not stream.prepared):
                await answer.prepare(request)
                await answer.write_eof()
                return answer
            assert isinstance(answer.body, bytes)
            if not stream.prepared:
                answer.headers.popall("content-type")
                stream.headers.update(answer.headers)
                await stream.prepare(request)
            if is_refusal:
                event = b"event: error\n" if asked.wire is not CHAT else b""
                await stream.write(b"%sdata: %s\n\n" % (event, answer.body))
            else:
                await stream.write(answer.body)
            await stream.write_eof()
        return stream

    def _answer(self, asked: ForwardedRequest, debts: Sequence[Debt]) -> web.Response:
        """Return the replies of elections that have ended, as one, or why there is none."""
        elected: list[ElectedReply] = []
        for debt in debts:
            try:
                elected.append(debt.election.result())
            except MicroagentsError as error:
                return _refusal(asked.wire, error, debt.exchange)
        sums = sums_of(elected)
        self.counts["answered"] += 1
        if not sums["elected"]:
            self.counts["not elected"] += 1
        log().info("answered", wire=asked.wire.name, **sums)
        body = marked(elected, sums)
        return web.Response(body=body, content_type="application/json", headers=headers_of(sums))


def _wire_of(request: web.Request) -> Wire:
    return next((wire for wire in WIRES if request.path.startswith(wire.path)), CHAT)


def _refusal(wire: Wire, error: MicroagentsError, exchange: Exchange | None) -> web.Response:
    """Answer with a provider's own refusal, as it came, or with the error in the form of the wire."""
    if isinstance(error, Withheld):
        return _error(wire, error.status, str(error), NO_RETRY)
    status = 400 if isinstance(error, InvalidUsage) else 502
    if exchange is None or exchange.failure is None or not isinstance(error, ModelUnavailable | Stopped):
        return _error(wire, status, str(error))
    answer, error = exchange.refusal, exchange.failure
    status = error.status or 502
    if status < 400:  # noqa: PLR2004 - a redirect
        status = 502
    if answer is None:
        return _error(wire, status, str(error))
    headers, wait_s = {}, retry_after_s(answer.headers)
    if wait_s is not None:
        headers["retry-after"] = f"{wait_s:g}"
    if isinstance(answer.found, dict) and answer.content.lstrip()[:1] == b"{":
        return web.Response(body=answer.content, status=status, content_type="application/json", headers=headers)
    return _error(wire, status, str(error), headers)


def _error(wire: Wire, status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    told = " ".join(message.split())
    return _json(wire.error(status, told), status, headers)


def _json(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=json.encode(body), status=status, content_type="application/json", headers=headers)
