"""A provider whose model acts: it answers on three wires, whole or streamed, with the calls or the text that a test wants."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from aiohttp import web

Said = str | list[tuple[str, dict[str, Any]]] | int | bytes
"""A text, calls, the status of an error, or the bytes of a body."""
Answer = Callable[["Request"], Said | Awaitable[Said]]
USAGE = (100, 10)
"""Tokens of each prompt and of each reply."""


@dataclass(kw_only=True)
class Request:
    """One request as it came."""

    number: int
    path: str
    query: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


@dataclass(kw_only=True)
class Acting:
    """The double while it is served."""

    answer: Answer
    url: str = ""
    requests: list[Request] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    gate: asyncio.Event | None = None
    """What a request waits for before its answer."""
    numbers: Iterator[int] = field(default_factory=count)
    tokens: Callable[[Request], int] = lambda _: USAGE[0]
    """Tokens of a prompt."""
    pause_s: float = 0.0
    """Seconds between the first event of a stream and the others."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        number = next(self.numbers)
        asked = Request(
            number=number,
            path=request.path,
            query=request.query_string,
            headers={name.lower(): value for name, value in request.headers.items()},
            body=await request.read(),
        )
        self.requests.append(asked)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            if self.gate is not None:
                await self.gate.wait()
            said = self.answer(asked)
            if not isinstance(said, str | list | int | bytes):
                said = await said
        finally:
            self.in_flight -= 1
        if isinstance(said, bytes):
            return web.Response(body=said, content_type="application/json")
        if isinstance(said, int):
            error = {"error": {"type": "some_error", "message": f"the double answers {said}", "code": None}}
            return web.json_response(error, status=said, headers={"retry-after": "0"} if said == 429 else {})
        if request.path.endswith("count_tokens"):
            return web.json_response({"input_tokens": USAGE[0]})
        wire = next(name for name in WIRES if request.path.endswith(name))
        whole, events = WIRES[wire](said, number, asked.json, self.tokens(asked))
        if not asked.json.get("stream"):
            return web.json_response(whole)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        with suppress(ConnectionResetError):  # of a client that leaves
            await response.prepare(request)
            await response.write(next(events))
            await asyncio.sleep(self.pause_s)
            for event in events:
                await response.write(event)
            await response.write_eof()
        return response


@asynccontextmanager
async def acting(answer: Answer) -> AsyncIterator[Acting]:
    """Serve a double as long as the block."""
    double = Acting(answer=answer)
    application = web.Application(client_max_size=2**26)
    application.router.add_route("*", "/{path:.*}", double.handle)
    runner = web.AppRunner(application, shutdown_timeout=1)
    await runner.setup()
    try:
        await (site := web.TCPSite(runner, "127.0.0.1", 0)).start()
        assert site._server is not None
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        double.url = f"http://127.0.0.1:{port}"
        yield double
    finally:
        await runner.cleanup()


def _event(data: dict[str, Any], name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


def _chat(said: Any, number: int, asked: dict[str, Any], read: int) -> tuple[dict[str, Any], Iterator[bytes]]:
    written = USAGE[1]
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    calls = [] if isinstance(said, str) else said
    made: list[dict[str, Any]] = [
        {
            "id": f"call_{number}_{place}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for place, (name, arguments) in enumerate(calls)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": said if isinstance(said, str) else None}
    if made:
        message["tool_calls"] = made
    reason = "tool_calls" if made else "stop"
    base = {"id": f"chatcmpl-{number}", "created": 1, "model": asked.get("model")}
    choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
    whole = {**base, "object": "chat.completion", "choices": [choice], "usage": usage}

    def chunks() -> Iterator[bytes]:
        chunk = {**base, "object": "chat.completion.chunk", "usage": None}
        delta: dict[str, Any] = {"role": "assistant", "content": message["content"]}
        if made:
            delta["tool_calls"] = [
                {**each, "index": place, "function": {**each["function"], "arguments": ""}}
                for place, each in enumerate(made)
            ]
        yield _event({**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        for place, each in enumerate(made):
            text = each["function"]["arguments"]
            for piece in (text[:5], text[5:]):
                part = {"tool_calls": [{"index": place, "function": {"arguments": piece}}]}
                yield _event({**chunk, "choices": [{"index": 0, "delta": part, "finish_reason": None}]})
        yield _event({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        if (asked.get("stream_options") or {}).get("include_usage"):
            yield _event({**chunk, "choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"

    return whole, chunks()


def _responses(said: Any, number: int, asked: dict[str, Any], read: int) -> tuple[dict[str, Any], Iterator[bytes]]:
    written = USAGE[1]
    items: list[dict[str, Any]] = [
        {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": f"sealed-{number}"}
    ]
    if isinstance(said, str):
        part = {"type": "output_text", "text": said, "annotations": [], "logprobs": []}
        message = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
        items.append({**message, "content": [part]})
    else:
        for place, (name, arguments) in enumerate(said):
            call = {"type": "function_call", "id": f"fc_{number}_{place}", "call_id": f"call_{number}_{place}"}
            items.append({**call, "name": name, "arguments": json.dumps(arguments), "status": "completed"})
    usage = {
        "input_tokens": read,
        "output_tokens": written,
        "total_tokens": read + written,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    base: dict[str, Any] = {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "model": asked.get("model"),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "temperature": None,
        "top_p": None,
    }
    whole = {**base, "status": "completed", "output": items, "usage": usage}

    def events() -> Iterator[bytes]:
        order = count()

        def named(kind: str, **values: Any) -> bytes:
            return _event({"type": kind, "sequence_number": next(order), **values}, kind)

        yield named("response.created", response={**base, "status": "in_progress", "output": [], "usage": None})
        for place, item in enumerate(items):
            begun = {**item, **({"arguments": ""} if "arguments" in item else {})}
            if "content" in item:
                begun["content"] = []
            yield named("response.output_item.added", output_index=place, item=begun)
            at = {"item_id": item["id"], "output_index": place}
            if "arguments" in item:
                yield named("response.function_call_arguments.delta", **at, delta=item["arguments"])
                yield named(
                    "response.function_call_arguments.done", **at, arguments=item["arguments"], name=item["name"]
                )
            for part in item.get("content") or ():
                at = {**at, "content_index": 0}
                yield named("response.content_part.added", **at, part={**part, "text": ""})
                yield named("response.output_text.delta", **at, delta=part["text"], logprobs=[])
                yield named("response.output_text.done", **at, text=part["text"], logprobs=[])
                yield named("response.content_part.done", **at, part=part)
            yield named("response.output_item.done", output_index=place, item=item)
        yield named("response.completed", response=whole)

    return whole, events()


def _messages(said: Any, number: int, asked: dict[str, Any], read: int) -> tuple[dict[str, Any], Iterator[bytes]]:
    written = USAGE[1]
    blocks: list[dict[str, Any]] = [{"type": "thinking", "thinking": "hm", "signature": f"signed-{number}"}]
    if isinstance(said, str):
        blocks.append({"type": "text", "text": said})
    else:
        for place, (name, arguments) in enumerate(said):
            blocks.append({"type": "tool_use", "id": f"toolu_{number}_{place}", "name": name, "input": arguments})
    reason = "end_turn" if isinstance(said, str) else "tool_use"
    usage = {"input_tokens": read, "output_tokens": written}
    base = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": asked.get("model")}
    whole = {**base, "content": blocks, "stop_reason": reason, "stop_sequence": None, "usage": usage}

    def events() -> Iterator[bytes]:
        def named(name: str, **values: Any) -> bytes:
            return _event({"type": name, **values}, name)

        begun: dict[str, Any] = {**base, "content": [], "stop_reason": None, "stop_sequence": None}
        yield named("message_start", message={**begun, "usage": {**usage, "output_tokens": 0}})
        for index, block in enumerate(blocks):
            pieces: list[dict[str, Any]]
            if block["type"] == "text":
                empty, pieces = {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
            elif block["type"] == "thinking":
                empty = {"type": "thinking", "thinking": "", "signature": ""}
                pieces = [
                    {"type": "thinking_delta", "thinking": block["thinking"]},
                    {"type": "signature_delta", "signature": block["signature"]},
                ]
            else:
                empty, text = {**block, "input": {}}, json.dumps(block["input"])
                pieces = [{"type": "input_json_delta", "partial_json": part} for part in (text[:4], text[4:])]
            yield named("content_block_start", index=index, content_block=empty)
            for piece in pieces:
                yield named("content_block_delta", index=index, delta=piece)
            yield named("content_block_stop", index=index)
        yield named("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage=usage)
        yield named("message_stop")

    return whole, events()


WIRES: dict[str, Callable[[Any, int, dict[str, Any], int], tuple[dict[str, Any], Iterator[bytes]]]] = {
    "/chat/completions": _chat,
    "/responses": _responses,
    "/messages": _messages,
}
