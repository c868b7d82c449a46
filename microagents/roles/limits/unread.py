"""Replies of a model that cannot be read, of which ten in a row are enough."""

from __future__ import annotations

import asyncio

UNREAD_IN_A_ROW, UNREAD_FOR_S = 10, 60.0
"""So many replies that cannot be read, none between them that can, over so long at least: more would cost, and help nothing."""


class Unread:
    """Replies in a row that cannot be read."""

    def __init__(self) -> None:
        self._number = 0
        self._since_s = 0.0
        self._first = ""
        self.said: str | None = None
        """The first of them in a sentence, once they are enough to give up."""

    def clear(self) -> None:
        """Note a reply that can be read."""
        self._number = 0

    def add(self, error: str) -> None:
        """Note a reply that cannot be read, by its error."""
        now_s = asyncio.get_running_loop().time()
        if not self._number:
            self._since_s, self._first = now_s, error
        self._number += 1
        lasted_s = now_s - self._since_s
        if self._number >= UNREAD_IN_A_ROW and lasted_s >= UNREAD_FOR_S:
            self.said = f"{self._first}; {self._number} replies in a row in {lasted_s:.0f} s could not be read, this is the first of them"
