"""Rows of a journal and their checksums.

A checksum shows damage of the file; it does not stop a forger. A row's covers its table and all columns, so its place, too. The
account of each commit has their sums, table by table: so a lost row, or an old one that came back, shows as well.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TypeVar
from zlib import crc32

import msgspec

from microagents.base.errors import Unwritable
from microagents.journal import statements
from microagents.journal.encoding import joined, place_of
from microagents.journal.tables import ROWS, TABLES

_KEYED = ("decision", "sample", "reply")


class RunPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of what the table of the run holds, each in a row of its own, as JSON."""

    part: ClassVar[str]


P = TypeVar("P", bound=RunPart)


class _Sums(msgspec.Struct):
    """Field of the totals that holds the sums."""

    checksums: dict[str, int] = {}


class _AccountSums(RunPart, frozen=True, kw_only=True):
    """The sums in the part of the account."""

    part: ClassVar[str] = "account"
    totals: _Sums


SUMMED = tuple(name for name, table in TABLES.items() if table.is_summed)
_SEEDS = {table: crc32(table.encode()) for table in TABLES}
_encode = msgspec.msgpack.Encoder().encode


def checksum(table: str, values: Sequence[object]) -> int | None:
    """Return the checksum of a row: CRC-32 of its table and columns; None for text that is not UTF-8."""
    try:
        return crc32(_encode(values), _SEEDS[table])
    except UnicodeEncodeError:
        return None


def _text(content: bytes) -> str:
    """Text of a row. If it is not UTF-8, the row does not match its checksum; SQLite's own error would not name the row."""
    return content.decode("utf-8", "surrogateescape")


class Rows:
    """Reads and writes rows of a journal, with their checksums, whose sums by table it keeps up to date."""

    def __init__(self, db: sqlite3.Connection, sums: dict[str, int] | None = None) -> None:
        self.db = db
        self.sums = {} if sums is None else sums
        db.text_factory = _text

    # -- reading ----------------------------------------------------------------------------------------------------------------------

    def select(self, table: str, condition: str = "", given: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
        """Read whole rows.

        Raises:
            ValueError: a row does not match its checksum, or has a value that this program never writes.
        """
        kind = ROWS[table]
        for row in self.db.execute(statements.select(table, condition), given):
            values = row[:-1]
            if checksum(table, values) != row[-1]:
                raise ValueError(f"{self._name_of(table, values)} does not match its checksum")
            try:
                msgspec.convert(values, kind)
            except msgspec.ValidationError as error:
                raise ValueError(f"{self._name_of(table, values)} has a value that no run writes: {error}") from None
            yield values

    def first(self, table: str, condition: str = "", given: Sequence[object] = ()) -> tuple[Any, ...] | None:
        """Read one row; None if there is none."""
        return next(self.select(table, f"{condition} {statements.ONE}", given), None)

    def part(self, kind: type[P]) -> P | None:
        """Read a part of the run; None if it is missing.

        Raises:
            ValueError, msgspec.MsgspecError: it is damaged.
        """
        found = self.first("run", statements.OF_PART, (kind.part,))
        if found is None:
            return None
        return msgspec.json.decode(found[1], type=kind)

    def only(self, kind: type[P]) -> P:
        """Read a part that every run has.

        Raises:
            ValueError, msgspec.MsgspecError: it is missing, or it is damaged.
        """
        found = self.part(kind)
        if found is None:
            raise ValueError(f"the {kind.part} is missing in the table run")
        return found

    def check(self, *tables: str) -> None:
        """Compare the checksums of whole tables with their sums, before all rows of them are read. SQLite adds up 10 million a second."""
        sums = self.only(_AccountSums).totals.checksums
        for table in tables:
            if statements.one(self.db, statements.sum_of_checksums(table)) != sums.get(table, 0):
                raise ValueError(f"rows of the table {table} are missing, or differ from the last commit")

    def problems(self) -> Iterator[str]:
        """Read all rows, and compare them with the sums; gives a sentence for each table that is damaged."""
        for table in TABLES:
            try:
                for _ in self.select(table):
                    pass
                self.check(*[table] * (table in SUMMED))
            except ValueError as error:
                yield str(error)

    def _name_of(self, table: str, values: Sequence[Any]) -> str:
        """Return the words of a message for a row: its table and its place."""
        at = values[0]
        if table in _KEYED and isinstance(at, int):
            place = statements.one(self.db, statements.PATH_OF_PLACE, (place_of(at),))
            at = at if place is None else joined(str(place), at)
        if len(values) > 1 and table in (*SUMMED, "run"):
            return f"the row of {at!r:.200} in the table {table}"
        return f"the table {table}"

    # -- writing ----------------------------------------------------------------------------------------------------------------------

    def _sealed(self, table: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a row with its checksum, as it is written.

        Raises:
            Unwritable: it would be refused when it is read.
        """
        sealed = checksum(table, values)
        try:
            msgspec.convert(values, ROWS[table])
        except msgspec.ValidationError as error:
            raise Unwritable(self._name_of(table, values), str(error)) from None
        if sealed is None:
            raise Unwritable(self._name_of(table, values), "a text of it is not UTF-8")
        return (*values, sealed)

    def insert(self, table: str, rows: Sequence[tuple[Any, ...]], verb: str = "INSERT") -> None:
        """Insert rows."""
        written = [self._sealed(table, row) for row in rows]
        before = self.db.total_changes
        for some in statements.chunks(written):
            self.db.execute(statements.insert(verb, table, some), [value for each in some for value in each])
        if table in SUMMED:
            if self.db.total_changes - before == len(rows):
                self._add(table, sum(row[-1] for row in written))
            else:  # INSERT OR IGNORE left some out, which is rare
                self.sums[table] = statements.one(self.db, statements.sum_of_checksums(table))

    def drop_part(self, kind: type[RunPart]) -> None:
        """Delete a part of the run."""
        self.db.execute(statements.DROP_PART, (kind.part,))

    def set_part(self, part: RunPart) -> None:
        """Write a part of the run in place of an earlier one.

        Raises:
            Unwritable: it would be refused when it is read.
        """
        try:
            content = msgspec.json.encode(part).decode()
            msgspec.json.decode(content, type=type(part))
        except (msgspec.MsgspecError, ValueError) as error:
            raise Unwritable(f"the {part.part}", str(error)) from None
        self.insert("run", [(part.part, content)], statements.OR_INSTEAD)

    def replace(self, table: str, rows: Sequence[tuple[Any, ...]], there: Sequence[int]) -> None:
        """Insert rows. ``there`` names the keys of existing ones: to look for them takes as long as to write them."""
        self._take_out(table, there)
        self.insert(table, rows, statements.OR_INSTEAD)

    def delete(self, table: str, keys: Sequence[int]) -> None:
        """Delete the rows with these values in their first column."""
        self._take_out(table, keys)
        for some in statements.chunks(keys):
            self.db.execute(statements.delete(table, some), some)

    def delete_all(self, table: str) -> None:
        """Delete all rows of a table."""
        self.db.execute(statements.delete(table))
        self.sums.pop(table, None)

    def _take_out(self, table: str, keys: Sequence[int]) -> None:
        for some in statements.chunks(keys):
            self._add(table, -statements.one(self.db, statements.sum_of_checksums(table, some), some))

    def _add(self, table: str, more: int) -> None:
        self.sums[table] = self.sums.get(table, 0) + more
