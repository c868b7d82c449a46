"""Sequences whose items are made on access."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, overload

T = TypeVar("T")


class MadeOnAccess(Sequence[T]):
    """A sequence that makes each item when it is asked for it."""

    def made(self, index: int) -> T:
        """Make an item.

        Raises:
            IndexError: there is none.
        """
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self.made(each) for each in range(len(self))[index]]
        return self.made(index)
