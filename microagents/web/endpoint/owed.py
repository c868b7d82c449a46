"""Replies that are owed: a client that gave up and asks again gets the election that its first request began."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from msgspec import MsgspecError, Struct, msgpack

from microagents.base.aio import TaskScope
from microagents.web.endpoint.exchange import Exchange, ForwardedReply
from microagents.web.endpoint.ledger import OWED_S, Ledger
from microagents.web.endpoint.served_elections import ElectedReply

_reply = msgpack.Decoder(ForwardedReply)


class Debt(Struct, eq=False):
    """One reply that is owed."""

    number: int
    exchange: Exchange
    election: asyncio.Task[ElectedReply]
    expiry: asyncio.TimerHandle | None = None
    """Ends it; None while a client is connected for it."""


class Debts:
    """Replies that are owed, by the digests of their requests.

    An equal request is the same question while its reply is not delivered and no client is connected for it. Of equal requests side by
    side each is a question.

    Args:
        hold: holds the election on a request.
        ledger: keeps the replies.
    """

    def __init__(self, hold: Callable[[Exchange], Coroutine[Any, Any, ElectedReply]], ledger: Ledger) -> None:
        self._hold = hold
        self._ledger = ledger
        self._owed: list[Debt] = []
        """Those to clients that have left."""
        self._scope = TaskScope()

    @contextmanager
    def taken(self, exchange: Exchange) -> Iterator[Debt]:
        """Begin the election on a request, or take up the one that is owed; it is owed on if the block raises."""
        digest = exchange.asked.digest
        debt = next((each for each in self._owed if each.exchange.asked.digest == digest), None)
        if debt is None:
            debt = self._begun(exchange)
        else:
            self._owed.remove(debt)
        if debt.expiry is not None:
            debt.expiry.cancel()
        debt.exchange.is_wanted.set()
        is_delivered = False
        try:
            yield debt
            is_delivered = True
        finally:
            is_told = debt.election.done() and debt.election.exception() is not None  # an error is told once
            if is_delivered or is_told:
                self._end(debt)
            else:
                debt.exchange.is_wanted.clear()
                self._owed.append(debt)
                debt.expiry = asyncio.get_running_loop().call_later(OWED_S, self._forget, debt)

    @property
    def left(self) -> int:
        """Number of replies that are owed to clients which have left."""
        return len(self._owed)

    async def close(self) -> None:
        """End all elections; what is owed stays in the ledger."""
        for debt in self._owed:
            if debt.expiry is not None:
                debt.expiry.cancel()
        await self._scope.close()

    def _begun(self, exchange: Exchange) -> Debt:
        digest = exchange.asked.digest
        number, found = self._ledger.take(digest)
        with suppress(MsgspecError):
            exchange.replies = {seq: _reply.decode(reply) for seq, reply in found.items()}
        exchange.keep = lambda seq, reply: self._ledger.keep(number, digest, seq, msgpack.encode(reply))
        return Debt(number, exchange, self._scope.start(self._hold(exchange)))

    def _forget(self, debt: Debt) -> None:
        self._owed.remove(debt)
        self._end(debt)

    def _end(self, debt: Debt) -> None:
        debt.election.cancel()
        self._ledger.end(debt.number)
