"""A server on 127.0.0.1 that speaks chat completions, responses and messages with tools, and is as strict as the real ones.

Its address has two more parts: ``/FAMILY/DIALECT/v1``, the rules that it keeps (`histories`) and the form of its replies (`dialects`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from tests.doubles.dialects import PLAIN, Said, written
from tests.doubles.drawn import Unreadable
from tests.doubles.histories import Heard, Refused, heard_by_chat, heard_by_messages, heard_by_responses
from tests.doubles.prefix_cache import PrefixCache

Brain = Callable[[Heard], Said]
"""Gives the reply to a conversation."""
BAD_REQUEST = 400
READ_S, WRITE_S = 0.005, 0.01
"""Seconds until a reply begins, and until the end of one that is streamed, of a server with a cache."""
GOOGLE = ("chat", "gemini")
PROVIDERS = {"chat": "openai", "responses": "openai-responses", "messages": "anthropic"}
"""By wire the provider of a model's spec."""


class StrictWires:
    """Answers by a brain; keeps the requests and what it said to those that it refused."""

    def __init__(self, brain: Brain) -> None:
        self.brain = brain
        self.url = ""
        self.bodies: list[dict[str, Any]] = []
        self.keeps_bodies = True
        self.refused: list[str] = []
        self.cache: PrefixCache | None = None
        """Counts what messages read from it, if there is one."""

    def spec(self, wire: str, family: str = "openai", dialect: str = PLAIN) -> str:
        """The spec of a model."""
        named = "gemini:gemini-3.8-flash" if (wire, family) == GOOGLE else f"{PROVIDERS[wire]}:m"
        return f"{named}@base_url={self.base_url(wire, family, dialect)}"

    def base_url(self, wire: str, family: str = "openai", dialect: str = PLAIN) -> str:
        """The address to give to a client of a wire."""
        end = "" if wire == "messages" else "/v1"
        return f"{self.url}/{family}/{dialect.replace(' ', '-')}{end}"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        body, path = json.loads(await request.read()), request.match_info
        wire = path["wire"].partition("/")[0]
        if self.keeps_bodies:
            self.bodies.append(body)
        try:
            heard = heard_by(wire, path["family"], body)
        except (Refused, Unreadable, msgspec.ValidationError) as error:
            self.refused.append(str(error))
            return web.json_response(error_of(wire, path["family"], str(error)), status=BAD_REQUEST)
        replies = [self.brain(heard) for _ in range(body.get("n") or 1)]
        dialect = path["dialect"].replace("-", " ")
        counts = {} if self.cache is None else self.cache.usage(body)
        reply = written(wire, path["family"], dialect, replies, body, counts=counts)
        if self.cache is not None:
            await asyncio.sleep(READ_S)  # requests at the same time find nothing of each other
            self.cache.take(body)
        if isinstance(reply, dict):
            return web.json_response(reply)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        first, end, others = reply.partition(b"\n\n")
        await response.write(first + end)
        await asyncio.sleep(WRITE_S if self.cache is not None else 0)
        await response.write(others)
        return response


async def googles_list(_: web.Request) -> web.Response:
    """Google's list of models."""
    listed = [
        {"name": f"models/{name}", "inputTokenLimit": 1_048_576, "modelStatus": status}
        for name, status in (
            ("gemini-3.8-flash", {"modelStage": "STABLE", "retirementTime": "2099-01-02T00:00:00Z"}),
            ("gemini-3.1-pro-preview", {"modelStage": "RETIRED"}),
            ("gemini-4-argon", {}),
        )
    ]
    return web.json_response({"models": listed})


def heard_by(wire: str, family: str, body: Mapping[str, Any]) -> Heard:
    """Check a request by the rules of its wire."""
    if wire == "chat":
        return heard_by_chat(body, family)
    if wire == "responses":
        return heard_by_responses(body)
    return heard_by_messages(body)


def error_of(wire: str, family: str, message: str) -> object:
    """Write a refusal in the form of its provider."""
    error: dict[str, object] = {"type": "invalid_request_error", "message": message}
    if wire == "messages":
        return {"type": "error", "error": error, "request_id": "req_1"}
    if family == "gemini":
        return [{"error": {"code": BAD_REQUEST, "message": message, "status": "INVALID_ARGUMENT"}}]
    if family == "mistral":
        return {**error, "object": "error", "param": None, "code": "3230"}
    return {"error": {**error, "param": None, "code": None}}


@asynccontextmanager
async def strict_wires(brain: Brain) -> AsyncIterator[StrictWires]:
    """Run the server as long as the block."""
    server = StrictWires(brain)
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/{family}/{dialect}/v1/{wire:chat/completions|responses|messages}", server.answer)
    app.router.add_get("/gemini/{dialect}/v1/models", googles_list)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        await runner.cleanup()
