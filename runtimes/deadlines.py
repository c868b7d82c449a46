"""Waits that end by themselves: one timer for all of them, since a timer each costs as much as an ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadlines:
    """Calls by how long they may take. Those that may take equally long are over in the order of their launch."""

    def __init__(self, end: Callable[[int], None]) -> None:
        self._end = end
        self._by_length: dict[float, dict[int, float]] = {}
        """When each call is over, by its number; by the time that it was given."""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, call: int, timeout_s: float) -> None:
        """End a call after so long."""
        loop = asyncio.get_running_loop()
        over_s = loop.time() + timeout_s
        self._by_length.setdefault(timeout_s, {})[call] = over_s
        if self._timer is None or over_s < self._timer.when():
            self._set_timer(over_s)

    def remove(self, call: int, timeout_s: float) -> None:
        """It has ended."""
        if (calls := self._by_length.get(timeout_s)) is not None:
            calls.pop(call, None)

    def close(self) -> None:
        """End nothing any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self, over_s: float) -> None:
        self.close()
        self._timer = asyncio.get_running_loop().call_at(over_s, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now_s = asyncio.get_running_loop().time()
        over = [call for calls in self._by_length.values() for call in _until(calls, now_s)]
        for call in over:
            self._end(call)
        self._by_length = {length: calls for length, calls in self._by_length.items() if calls}
        if self._by_length:
            self._set_timer(min(next(iter(calls.values())) for calls in self._by_length.values()))


def _until(calls: dict[int, float], now_s: float) -> list[int]:
    over = []
    for call, over_s in calls.items():
        if over_s > now_s:
            break
        over.append(call)
    for call in over:
        del calls[call]
    return over
