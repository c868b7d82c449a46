"""Inputs that are to be conducted: those not begun yet, and parked ones whose batch has ended."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterator

from microagents.base.aio import Notifier


class Backlog:
    """Inputs of a run for the tasks that conduct them; each is taken once, and again after each batch that it was parked for.

    Args:
        new: the inputs that were not begun.
    """

    def __init__(self, new: Iterator[int]) -> None:
        self._new = new
        self._ready = deque[tuple[int, int]]()
        """Inputs whose batch has ended, each with its lane, which has the results."""
        self._parked: dict[tuple[int, str], list[int]] = {}
        """Inputs by lane and batch."""
        self._left = 0
        """Number of inputs that were taken and have not ended, parked ones included."""
        self._changed = Notifier()

    async def taken(self) -> AsyncIterator[tuple[int, int | None]]:
        """Yield inputs until all have ended, each with the lane that has to conduct it; None for any."""
        while True:
            if self._ready:
                yield self._ready.popleft()
                continue
            number = next(self._new, None)
            if number is not None:
                self._left += 1
                yield number, None
            elif self._left:
                await self._changed.wait()
            else:
                return

    def end(self) -> None:
        """Note that an input has ended."""
        self._left -= 1
        if not self._left:
            self._changed.notify()

    def park(self, number: int, lane: int, batch: str) -> bool:
        """Park an input until a batch has ended; returns whether it is the first one, so that the end has to be waited for."""
        others = self._parked.setdefault((lane, batch), [])
        others.append(number)
        return len(others) == 1

    def end_batch(self, lane: int, batch: str) -> None:
        """Release the inputs that were parked for a batch."""
        self._ready.extend((number, lane) for number in self._parked.pop((lane, batch)))
        self._changed.notify()
