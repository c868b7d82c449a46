"""Very many texts: in memory as long as they are few, else in a file of no name that ends with the process."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from tempfile import TemporaryFile
from typing import Any, overload
from weakref import finalize

from microagents.base.errors import InvalidUsage

MAX_KEPT_BYTES = 1 << 20
"""Texts up to this number of bytes together stay in memory."""
READ_BYTES = 1 << 16
"""A pass over all texts reads the file in pieces of about this size."""


class Spool(Sequence[str]):
    """Texts in the order in which they were added. Each takes eight bytes of memory, and its own bytes a place in a file.

    Texts may be read in several threads once all are added.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._ends = array("Q")
        """For each text the place behind its last byte."""
        self._tail = bytearray()
        """Bytes that are not in the file yet."""
        self._in_file = 0
        self._file: int | None = None
        """The descriptor of the file."""
        self.extend(texts)

    def extend(self, texts: Iterable[str]) -> None:
        """Add texts."""
        for text in texts:
            self.append(text)

    def append(self, text: str) -> None:
        """Add a text."""
        self._tail += text.encode("utf-8", "surrogatepass")
        self._ends.append(self._in_file + len(self._tail))
        if len(self._tail) > MAX_KEPT_BYTES:
            self._write()

    def _write(self) -> None:
        try:
            if self._file is None:
                with TemporaryFile() as file:
                    self._file = os.dup(file.fileno())
                finalize(self, os.close, self._file)
            rest = memoryview(self._tail)
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            raise InvalidUsage(
                f"the inputs or results of a run take more room than the temporary folder has: {error.strerror}; set TMPDIR to another one"
            ) from None
        self._in_file += len(self._tail)
        self._tail = bytearray()

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[each] for each in range(len(self))[index]]
        number = range(len(self))[index]
        start = self._ends[number - 1] if number else 0
        return _decoded(self._bytes(start, self._ends[number]))

    def __iter__(self) -> Iterator[str]:
        start = first = 0
        while first < len(self):
            last = first
            while last + 1 < len(self) and self._ends[last] - start < READ_BYTES:
                last += 1
            piece, at = self._bytes(start, self._ends[last]), start
            for end in self._ends[first : last + 1]:
                yield _decoded(piece[at - start : end - start])
                at = end
            start, first = at, last + 1

    def _bytes(self, start: int, end: int) -> bytes:
        if self._file is None or start >= self._in_file:
            return bytes(self._tail[start - self._in_file : end - self._in_file])
        found = bytearray()
        while len(found) < min(end, self._in_file) - start:
            piece = os.pread(self._file, min(end, self._in_file) - start - len(found), start + len(found))
            assert piece, "the file was written up to there"
            found += piece
        return bytes(found) + bytes(self._tail[: max(0, end - self._in_file)])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled for another process, which keeps its own file."""
        return _unpickled, (self._bytes(0, self._ends[-1] if self._ends else 0), self._ends)


def _unpickled(content: bytes, ends: array[int]) -> Spool:
    spool = Spool()
    spool._ends, spool._tail = ends, bytearray(content)  # noqa: SLF001 - of the same class
    if len(content) > MAX_KEPT_BYTES:
        spool._write()  # noqa: SLF001
    return spool


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "surrogatepass")
