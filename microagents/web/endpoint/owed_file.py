"""Replies that are owed, in a file for each: after a crash of the server a client that asks again pays for no reply a second time."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex

import msgspec
from msgspec import Struct

from microagents.base.errors import InvalidUsage, read_failure
from microagents.web.endpoint.exchange import ForwardedReply

OWED = "serve-owed"
"""Name of the folder of the files, beside the journals."""


class _Line(Struct, frozen=True):
    """A reply that arrived."""

    seq: int
    reply: ForwardedReply


_line = msgspec.json.Decoder(_Line)


class OwedFiles:
    """Files of the replies to each request, until one is delivered. A kill of the process leaves them, and a power cut may not.

    Args:
        runs_dir: folder of the journals; None for no files.
        owed_s: seconds for which a reply is owed.

    Raises:
        InvalidUsage: they cannot be read or written.
    """

    def __init__(self, runs_dir: Path | None, owed_s: float) -> None:
        self._folder = None if runs_dir is None else runs_dir / OWED
        self._left: dict[str, list[Path]] = {}
        """Files of earlier servers, by the digests of their requests."""
        if self._folder is None:
            return
        if self._folder.is_symlink():  # old files in it are removed
            raise InvalidUsage(f"replies cannot be kept in {str(self._folder)!r}: it is a link")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for path in sorted(self._folder.iterdir()):
                if path.lstat().st_mtime < datetime.now(UTC).timestamp() - owed_s:
                    path.unlink()
                elif os.path.isfile(path):
                    self._left.setdefault(path.stem, []).append(path)
        except OSError as error:
            raise InvalidUsage(f"replies cannot be kept in {str(self._folder)!r}: {read_failure(error)}") from None

    def take(self, digest: bytes) -> tuple[Path | None, dict[int, ForwardedReply]]:
        """Return the file of a request, which need not be there yet, and the replies that an earlier server received."""
        name = digest.hex()
        if self._left.get(name):
            path = self._left[name].pop(0)
            return path, _replies_in(path)
        if self._folder is None:
            return None, {}
        return self._folder / f"{name}.{token_hex(8)}", {}

    def keep(self, path: Path | None, seq: int, reply: ForwardedReply) -> None:
        """Keep a reply."""
        if path is None:
            return
        with suppress(OSError):  # of a full disk: the reply is owed as long as this process lives
            file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(file, "ab") as kept:
                kept.write(msgspec.json.encode(_Line(seq, reply)) + b"\n")

    def end(self, path: Path | None) -> None:
        """Forget the replies: one was delivered, or is owed no longer."""
        if path is not None:
            with suppress(OSError):
                path.unlink()


def _replies_in(path: Path) -> dict[int, ForwardedReply]:
    replies = {}
    with suppress(OSError, msgspec.DecodeError):  # the last line, of a server that was killed
        for written in path.read_bytes().splitlines():
            line = _line.decode(written)
            replies[line.seq] = line.reply
    return replies
