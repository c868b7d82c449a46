"""Something that happens again and again, and that several may wait for."""

from __future__ import annotations

import asyncio


class News:
    """What several wait for, each until it happens next. Each gets a future of its own, since one that leaves cancels what it awaits."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def next(self) -> asyncio.Future[None]:
        """Done when it happens next."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        return waiting

    def tell(self) -> None:
        """It has happened."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)
