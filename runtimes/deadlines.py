"""Deadlines of calls. One timer serves all calls: one timer per call costs a quarter of an ask (measured)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadlines:
    """Ends calls whose timeout has passed.

    Args:
        end: called with the number of each such call.
    """

    def __init__(self, end: Callable[[int], None]) -> None:
        self._end = end
        # Calls with equal timeouts expire in the order of their launch, so each inner dict is sorted by time without any work.
        self._by_timeout: dict[float, dict[int, float]] = {}
        """By timeout in seconds: the deadline of each call in the loop's time, by number of the call."""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, call: int, timeout_s: float) -> None:
        """Start the timeout of a call."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        self._by_timeout.setdefault(timeout_s, {})[call] = deadline_s
        if self._timer is None or deadline_s < self._timer.when():
            self._set_timer(deadline_s)

    def remove(self, call: int, timeout_s: float) -> None:
        """Stop the timeout of a call that has ended."""
        # The timer stays: if it was set for this call, its sweep finds no expired call and sets it for the next deadline.
        if (calls := self._by_timeout.get(timeout_s)) is not None:
            calls.pop(call, None)

    def close(self) -> None:
        """Stop all timeouts."""
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self, deadline_s: float) -> None:
        self.close()
        self._timer = asyncio.get_running_loop().call_at(deadline_s, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now_s = asyncio.get_running_loop().time()
        expired = [call for calls in self._by_timeout.values() for call in _pop_expired(calls, now_s)]
        for call in expired:
            self._end(call)
        self._by_timeout = {timeout_s: calls for timeout_s, calls in self._by_timeout.items() if calls}
        if self._by_timeout:
            self._set_timer(min(next(iter(calls.values())) for calls in self._by_timeout.values()))


def _pop_expired(deadlines: dict[int, float], now_s: float) -> list[int]:
    """Remove the calls whose deadline has passed from the front of a sorted dict and return their numbers."""
    expired = []
    for call, deadline_s in deadlines.items():
        if deadline_s > now_s:
            break
        expired.append(call)
    for call in expired:
        del deadlines[call]
    return expired
