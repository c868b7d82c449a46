"""Replies that are owed, in a file: after a crash of the server a client that asks again pays for no reply a second time."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import msgspec
from msgspec import Struct

from microagents.base.errors import InvalidUsage, read_failure
from microagents.base.files import is_there, replacing
from microagents.web.endpoint.exchange import ForwardedReply

OWED = "serve-owed.jsonl"
"""Name of the file, beside the journals."""
LARGE_BYTES = 2**24
"""Size from which the file is written anew, without the replies that were delivered."""


class _Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A reply that arrived, or the end of a debt."""

    debt: str
    digest: str = ""
    at_s: float = 0.0
    seq: int = 0
    reply: ForwardedReply | None = None
    """None at the end of the debt."""


_line = msgspec.json.Decoder(_Line)


class OwedFile:
    """The file of owed replies. A kill of the process leaves what was written, and a power cut may not.

    Args:
        folder: its folder; None for none.
        owed_s: seconds for which a reply is owed.

    Raises:
        InvalidUsage: it cannot be read or written.
    """

    def __init__(self, folder: Path | None, owed_s: float) -> None:
        self._path = None if folder is None else folder / OWED
        self._owed_s = owed_s
        self._began = f"{os.getpid()}-{_now_s():.6f}"
        self._numbers = count()
        self._open: dict[str, list[bytes]] = {}
        """Lines of each debt without an end."""
        self._left: dict[str, list[str]] = {}
        """Debts of earlier servers, by the digests of their requests."""
        self._file = -1
        if self._path is not None:
            try:
                self._read(self._path)
                self._begin(self._path)
            except OSError as error:
                raise InvalidUsage(f"replies cannot be kept in {str(self._path)!r}: {read_failure(error)}") from None

    def take(self, digest: bytes) -> tuple[str, dict[int, ForwardedReply]]:
        """Return the name of a debt, and the replies to it that an earlier server received."""
        debts = self._left.get(digest.hex(), [])
        if not debts:
            return f"{self._began}-{next(self._numbers)}", {}
        name = debts.pop(0)
        lines = map(_line.decode, self._open[name])
        return name, {each.seq: each.reply for each in lines if each.reply is not None}

    def keep(self, debt: str, digest: bytes, seq: int, reply: ForwardedReply) -> None:
        """Keep a reply until its debt ends."""
        if self._path is not None:
            line = _Line(debt=debt, digest=digest.hex(), at_s=_now_s(), seq=seq, reply=reply)
            self._open.setdefault(debt, []).append(self._write(line))

    def end(self, debt: str) -> None:
        """Note that the reply was delivered, or is owed no longer."""
        if self._open.pop(debt, None) is not None and self._path is not None:
            self._write(_Line(debt=debt))
            if os.fstat(self._file).st_size > LARGE_BYTES + 2 * sum(
                len(each) for kept in self._open.values() for each in kept
            ):
                os.close(self._file)
                self._begin(self._path)

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, line: _Line) -> bytes:
        written = msgspec.json.encode(line) + b"\n"
        with suppress(OSError):  # of a full disk: the reply is owed as long as this process lives
            os.write(self._file, written)
        return written

    def _begin(self, path: Path) -> None:
        """Write the file anew with the open debts, and go on behind them."""
        with replacing(path) as new:
            new.write_bytes(b"".join(each for kept in self._open.values() for each in kept))
        path.chmod(0o600)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def _read(self, path: Path) -> None:
        if not is_there(path):
            return
        digests: dict[str, str] = {}
        for written in path.read_bytes().splitlines(keepends=True):
            try:
                line = _line.decode(written)
            except msgspec.DecodeError:  # the last one, of a server that was killed
                continue
            if line.reply is None:
                self._open.pop(line.debt, None)
            elif line.at_s > _now_s() - self._owed_s:
                self._open.setdefault(line.debt, []).append(written)
                digests[line.debt] = line.digest
        for debt in self._open:
            self._left.setdefault(digests[debt], []).append(debt)


def _now_s() -> float:
    return datetime.now(UTC).timestamp()
