"""A server that costs next to nothing, for measurements of clients: ``python -m tests.benchmarks.quick_server [--latency S]``.

It reads no more of a request than its length and ``n``, and gives every request the same reply, on the wires of OpenAI and Anthropic. It
prints its address, and ends with SIGTERM.
"""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import msgspec

from tests.benchmarks.harness import parser_of

TEXT = "number = 22"
"""The right reply to the first question of `Drift`."""

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_CHOICES = re.compile(rb'"n": *(\d+)')


def reply_to(head: bytes, body: bytes) -> bytes:
    """The HTTP reply to a request."""
    if head.startswith(b"POST /v1/messages"):
        usage = {"input_tokens": 50, "output_tokens": 10}
        data = msgspec.json.encode(
            {"content": [{"type": "text", "text": TEXT}], "stop_reason": "end_turn", "usage": usage}
        )
    else:
        found = _CHOICES.search(body)
        choices = [
            {"index": index, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}
            for index in range(int(found[1]) if found else 1)
        ]
        data = msgspec.json.encode(
            {"choices": choices, "usage": {"prompt_tokens": 50, "completion_tokens": 10 * len(choices)}}
        )
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(data), data)


class Connection(asyncio.Protocol):
    """One connection of a client, which sends its next request after the reply to the one before."""

    def __init__(self, latency_s: float) -> None:
        self._latency_s = latency_s
        self._read = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, end, body = self._read.partition(b"\r\n\r\n")
        length = _LENGTH.search(head) if end else None
        if length is None or len(body) < int(length[1]):
            return
        self._read = b""
        reply = reply_to(head, body)
        if self._latency_s:
            asyncio.get_running_loop().call_later(self._latency_s, self._transport.write, reply)
        else:
            self._transport.write(reply)


async def serve(latency_s: float) -> None:
    """Serve until SIGTERM."""
    server = await asyncio.get_running_loop().create_server(lambda: Connection(latency_s), "127.0.0.1", 0, backlog=8192)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()


@contextmanager
def in_another_process(*command: str) -> Iterator[str]:
    """Run ``python -m COMMAND``, a server that prints a line once it is ready and ends with SIGTERM; gives the line."""
    with subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def quick_server(latency_s: float = 0.0) -> AbstractContextManager[str]:
    """This server in another process."""
    return in_another_process("tests.benchmarks.quick_server", "--latency", str(latency_s))


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve."""
    asyncio.run(serve(parser_of(__doc__, latency=0.0).parse_args(arguments).latency))


if __name__ == "__main__":
    main()
