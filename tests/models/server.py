"""A real HTTP server on 127.0.0.1 that gives scripted answers, most of them hostile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct


class Received(Struct):
    """One request as it came in; header names in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Connection:
    """What a scripted answer writes to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def hung_up(self) -> None:
        """Return when the client has closed the connection."""
        while await self.reader.read(2**16):
            pass

    async def drip(self, data: bytes) -> None:
        """Send a byte at a time, with time in between, until the client hangs up."""
        for byte in data:
            await self.send(bytes([byte]))
            try:
                async with asyncio.timeout(0.05):
                    await self.hung_up()
            except TimeoutError:
                continue
            return


Answer = Callable[[Connection], Awaitable[None]]


class Server:
    """Gives each request the next answer, and the last one for ever."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.received: list[Received] = []
        self.arrived = asyncio.Event()
        """Set when a request has been read."""
        self.gone = asyncio.Event()
        """Set when a client has closed a connection."""
        self.sent_bytes = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _request(reader)) is not None:
                self.received.append(request)
                self.arrived.set()
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                await answer(Connection(reader, writer))
                if writer.is_closing():
                    break
        except ConnectionError:
            pass
        finally:
            self.gone.set()
            writer.close()


async def _request(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(path=first.split()[1], headers=headers, body=body)


@asynccontextmanager
async def serving(*answers: Answer) -> AsyncIterator[Server]:
    """A server that runs as long as the block; every connection has ended after it."""
    server = Server(*answers)
    async with asyncio.TaskGroup() as connections:

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.append(connections.create_task(server.serve(reader, writer)))

        tasks: list[asyncio.Task[None]] = []
        listener = await asyncio.start_server(accept, "127.0.0.1", 0)
        server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        try:
            yield server
        finally:
            listener.close()
            for task in tasks:
                task.cancel()


def raw(data: bytes, *, close: bool = True) -> Answer:
    """These bytes, whatever they are."""

    async def answer(connection: Connection) -> None:
        await connection.send(data)
        if close:
            connection.writer.close()

    return answer


def reply(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """A complete answer; what is not bytes is sent as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = {"content-type": "application/json", "content-length": str(len(data)), **(headers or {})}
    return raw(_head(status, lines) + data, close=False)


def cut_off(data: bytes, missing: int) -> Answer:
    """A body that ends before its length."""
    return raw(_head(200, {"content-length": str(len(data) + missing)}) + data)


def reset() -> Answer:
    """Half a body, then a reset connection."""

    async def answer(connection: Connection) -> None:
        await connection.send(_head(200, {"content-length": "1000"}) + b'{"choices": ')
        connection.writer.transport.abort()

    return answer


def silent() -> Answer:
    """No answer at all."""

    async def answer(connection: Connection) -> None:
        await connection.hung_up()

    return answer


def dripped_headers() -> Answer:
    """One byte of the headers after the other."""

    async def answer(connection: Connection) -> None:
        await connection.drip(_head(200, {f"x-{number}": "drip" for number in range(50)}))

    return answer


def dripped_body() -> Answer:
    """One byte of the body after the other."""

    async def answer(connection: Connection) -> None:
        await connection.send(_head(200, {"content-length": "1000"}))
        await connection.drip(b" " * 1000)

    return answer


def endless_body(server_of: Callable[[], Server], status: int = 200, size: int = 100 * 2**20) -> Answer:
    """A body of 100 MB; the server counts how much of it got away."""

    async def answer(connection: Connection) -> None:
        await connection.send(_head(status, {"content-length": str(size)}))
        for _ in range(size // 2**16):
            await connection.send(b" " * 2**16)
            server_of().sent_bytes += 2**16

    return answer


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Scripted\r\n{lines}\r\n".encode()
