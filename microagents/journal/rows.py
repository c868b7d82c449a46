"""Rows of a journal, and the digests that show damage of the file; they do not stop a forger.

The row of an input has the sum of the checksums of all rows at its places, and a digest of itself. The account has the sum of the digests
of all inputs, with the checksums of the log. A part of the run, such as the account, has a digest of itself. So a changed row shows, and
so does a lost one, or an old one that came back; and a commit updates few numbers.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache
from typing import ClassVar, TypeVar
from zlib import crc32

import msgspec
from msgspec import structs

from microagents.base.errors import Unwritable
from microagents.base.struct_types import LEARNING
from microagents.journal import statements
from microagents.journal.tables import ROWS, SEALED, RunRow, TableRow
from microagents.replies.media import Media


class RunPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of what the table of the run holds, each in a row of its own, as JSON."""

    part: ClassVar[str]


P = TypeVar("P", bound=RunPart)
R = TypeVar("R", bound=TableRow)

_SEEDS = {kind: crc32(kind.table.encode()) for kind in ROWS}
_encode = msgspec.msgpack.Encoder().encode


for _kind in ROWS:
    msgspec.json.Decoder(_kind)


@cache
def _decoder_of(kind: type[P]) -> msgspec.json.Decoder[P]:
    return msgspec.json.Decoder(kind)


def checksum(row: TableRow) -> int:
    """Return the checksum of a row: CRC-32 of its table and columns."""
    return crc32(_encode(row), _SEEDS[type(row)])


def file_row(file: Media) -> RunRow:
    """Return the row of a picture or a file: its digest in the name of the part, its type, size and name as JSON."""
    return RunRow(part=f"file {file.digest}", content=msgspec.json.encode(file).decode())


class Rows:
    """Reads and writes rows of a journal."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        db.text_factory = bytes.decode  # SQLite's own error would say that the file cannot be read now

    # -- reading ----------------------------------------------------------------------------------------------------------------------

    def select(self, kind: type[R], condition: str = "", given: Sequence[object] = ()) -> Iterator[R]:
        """Read rows.

        Raises:
            ValueError: a row does not match its digest, or has a value that this program never writes.
        """
        for values in self.db.execute(statements.select(kind.table, condition), given):
            try:
                row = msgspec.convert(values, kind)
            except msgspec.ValidationError as error:
                raise ValueError(f"{_name_of(kind, values)} has a value that no run writes: {error}") from None
            if isinstance(row, SEALED) and checksum(structs.replace(row, digest=0)) != row.digest:
                raise ValueError(f"{_name_of(kind, values)} does not match its digest")
            yield row

    def first(self, kind: type[R], condition: str = "", given: Sequence[object] = ()) -> R | None:
        """Read one row; None if there is none."""
        return next(self.select(kind, f"{condition} {statements.ONE}", given), None)

    def part(self, kind: type[P]) -> P | None:
        """Read a part of the run; None if it is missing.

        Raises:
            ValueError, msgspec.MsgspecError: it is damaged.
        """
        found = self.first(RunRow, statements.OF_PART, (kind.part,))
        if found is None:
            return None
        with LEARNING:
            decoder: msgspec.json.Decoder[P] = _decoder_of(kind)
        return decoder.decode(found.content)

    def only(self, kind: type[P]) -> P:
        """Read a part that every run has.

        Raises:
            ValueError, msgspec.MsgspecError: it is missing, or it is damaged.
        """
        found = self.part(kind)
        if found is None:
            raise ValueError(f"the {kind.part} is missing in the table run")
        return found

    # -- writing ----------------------------------------------------------------------------------------------------------------------

    def insert(self, rows: Sequence[TableRow], verb: str = statements.INSERT) -> None:
        """Insert rows of one table.

        Raises:
            Unwritable: one of them would be refused when it is read.
        """
        for row in rows:
            try:
                msgspec.convert(structs.astuple(row), type(row))
                if isinstance(row, SEALED):
                    row.digest = 0
                    row.digest = checksum(row)
                else:
                    checksum(row)
            except msgspec.ValidationError as error:
                raise Unwritable(f"a row of the table {row.table}", str(error)) from None
            except UnicodeEncodeError:
                raise Unwritable(f"a row of the table {row.table}", "a text of it is not UTF-8") from None
        for some in statements.chunks(rows):
            values = [value for row in some for value in structs.astuple(row)]
            self.db.execute(statements.insert(verb, some), values)

    def delete(self, kind: type[TableRow], keys: Sequence[int]) -> None:
        """Delete the rows with these keys."""
        for some in statements.chunks(keys):
            self.db.execute(statements.delete(kind.table, some), some)

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
        self.insert([RunRow(part=part.part, content=content)], statements.OR_INSTEAD)


def _name_of(kind: type[TableRow], values: Sequence[object]) -> str:
    return f"the row of {values[0]!r:.200} in the table {kind.table}"
