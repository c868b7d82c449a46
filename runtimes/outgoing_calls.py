"""Calls of one dispatcher to replicas that others host, until they end."""

from __future__ import annotations

import asyncio

from msgspec import Raw

from microagents.runtimes import wire

Answer = wire.Replied | wire.Item | wire.Finished | wire.Failed
Reply = asyncio.Future[Raw | None]
"""The encoded reply to a request; None if the handler was cancelled."""
Items = asyncio.Queue[Answer]
"""The answers to a stream that are not read yet."""


class OutgoingCalls:
    """Open calls of one dispatcher, each with a number that no other call of this process has."""

    def __init__(self) -> None:
        self._last = 0
        self._open: dict[int, Reply | Items] = {}
        """By number, the future or the queue that the caller waits for."""
        self._late: dict[int, Raw] = {}
        """Replies that arrived between the cancellation of a caller's task and its next step."""

    def open_request(self) -> tuple[int, Reply]:
        """Number a new request."""
        reply: Reply = asyncio.get_running_loop().create_future()
        return self._open_call(reply), reply

    def open_stream(self) -> tuple[int, Items]:
        """Number a new stream."""
        items: Items = asyncio.Queue()
        return self._open_call(items), items

    def _open_call(self, waiting: Reply | Items) -> int:
        self._last += 1
        self._open[self._last] = waiting
        return self._last

    def expect_end(self, call: int) -> Reply:
        """Replace the future or the queue of a cancelled call by a future for its end."""
        end: Reply = asyncio.get_running_loop().create_future()
        self._open[call] = end
        return end

    def pop_late_reply(self, call: int) -> Raw | None:
        """Take the reply that arrived after the caller's task was cancelled, and before that task's next step."""
        return self._late.pop(call, None)

    def close(self, call: int) -> None:
        """Forget a call that has ended."""
        del self._open[call]

    def deliver(self, answer: Answer) -> None:
        """Hand an answer to the caller that waits for it; an answer to a call that is no longer open is dropped."""
        match self._open.get(answer.call):
            case asyncio.Queue() as items:
                items.put_nowait(answer)
            case asyncio.Future() as reply if not reply.done():
                _resolve(reply, answer)
            case asyncio.Future() as reply if reply.cancelled() and isinstance(answer, wire.Replied):
                # Cancelling a task cancels the future that it awaits at once, but the task hears of it only in its next step.
                self._late[answer.call] = answer.body


def _resolve(reply: Reply, answer: Answer) -> None:
    match answer:
        case wire.Replied(_, body):
            reply.set_result(body)
        case wire.Failed():
            reply.set_exception(wire.unpack_error(answer))
        case wire.Finished():
            reply.set_result(None)
        case wire.Item():
            pass  # the stream was cancelled while this item was on its way
