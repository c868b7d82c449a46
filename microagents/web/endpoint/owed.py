"""Replies that are owed: a client that gave up and asks again gets the election that its first request began."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from microagents.base.aio import TaskScope
from microagents.web.endpoint.exchange import Exchange
from microagents.web.endpoint.owed_file import OwedFiles
from microagents.web.endpoint.served_elections import Elected

OWED_S = 600.0
"""Seconds for which the reply to a client that left is owed."""


class Debt:
    """One reply that is owed.

    Args:
        path: file of its replies; None for none.
        exchange: its request.
        election: the election on it.
    """

    def __init__(self, path: Path | None, exchange: Exchange, election: asyncio.Task[Elected]) -> None:
        self.path = path
        self.exchange = exchange
        self.election = election
        self.expiry: asyncio.TimerHandle | None = None
        """Ends it; None while a client is connected for it."""


class Debts:
    """Replies that are owed, by the digests of their requests.

    An equal request is the same question while its reply is not delivered and no client is connected for it. Of equal requests side by
    side each is a question.

    Args:
        hold: holds the election on a request.
        runs_dir: folder of the journals, in which replies are kept; None for no files.
    """

    def __init__(self, hold: Callable[[Exchange], Coroutine[Any, Any, Elected]], runs_dir: Path | None) -> None:
        self._hold = hold
        self._files = OwedFiles(runs_dir, OWED_S)
        self._owed: dict[bytes, list[Debt]] = {}
        self._scope = TaskScope()

    @contextmanager
    def taken(self, exchange: Exchange) -> Iterator[Debt]:
        """Begin the election on a request, or take up the one that is owed; it is owed on if the block raises."""
        debt = self._left(exchange.asked.digest) or self._begun(exchange)
        if debt.expiry is not None:
            debt.expiry.cancel()
        debt.expiry = None
        debt.exchange.is_wanted.set()
        try:
            yield debt
        except BaseException:
            if debt.election.done() and debt.election.exception() is not None:
                self._remove(debt)  # an error is told once
            else:
                debt.exchange.is_wanted.clear()
                debt.expiry = asyncio.get_running_loop().call_later(OWED_S, self._remove, debt)
            raise
        self._remove(debt)

    @property
    def left(self) -> int:
        """Number of replies that are owed to clients which have left."""
        return sum(each.expiry is not None for debts in self._owed.values() for each in debts)

    async def close(self) -> None:
        """End all elections; what is owed stays in the files."""
        for debts in self._owed.values():
            for debt in debts:
                if debt.expiry is not None:
                    debt.expiry.cancel()
        await self._scope.close()

    def _left(self, digest: bytes) -> Debt | None:
        return next((each for each in self._owed.get(digest, ()) if each.expiry is not None), None)

    def _begun(self, exchange: Exchange) -> Debt:
        digest = exchange.asked.digest
        path, exchange.replies = self._files.take(digest)
        exchange.keep = partial(self._files.keep, path)
        debt = Debt(path, exchange, self._scope.start(self._hold(exchange)))
        self._owed.setdefault(digest, []).append(debt)
        return debt

    def _remove(self, debt: Debt) -> None:
        digest = debt.exchange.asked.digest
        others = [each for each in self._owed.get(digest, ()) if each is not debt]
        if others:
            self._owed[digest] = others
        else:
            self._owed.pop(digest, None)
        if debt.expiry is not None:
            debt.expiry.cancel()
        debt.election.cancel()
        self._files.end(debt.path)
