"""Contents of the pictures and files of a run: each once, in a folder beside the journal, by its digest."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from secrets import token_hex

from microagents.base.errors import Stopped, read_failure, refusing
from microagents.base.files import make_private
from microagents.replies.media import MAX_BYTES, Media, digest_of


def folder_of(journal: Path) -> Path:
    """Return the folder with the contents of a run's files."""
    return journal.with_suffix(".files")


class Contents:
    """Keeps contents.

    Args:
        journal: the journal of the run; None for a run without one, whose contents are in memory.
    """

    def __init__(self, journal: Path | None) -> None:
        self._folder = None if journal is None else folder_of(journal.absolute())
        self._in_memory: dict[str, bytes] = {}

    def keep(self, file: Media, data: bytes) -> None:
        """Keep a content, unless it is there. Only this user may read it.

        Raises:
            Stopped: it cannot be written.
        """
        if self._folder is None:
            self._in_memory[file.digest] = data
            return
        place = self._folder / file.digest
        if os.path.exists(place):
            return
        new = place.with_name(f".{token_hex(8)}")
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            make_private(new)
            new.write_bytes(data)
            new.replace(place)
        except OSError as error:
            new.unlink(missing_ok=True)
            raise Stopped(
                f"the {file.shown} cannot be kept in {str(self._folder)!r}: {read_failure(error)}; everything in the journal is kept; once "
                "it can be written, resume the run"
            ) from None

    def read(self, digest: str) -> bytes | None:
        """Return a content; None if it is not there, or is another one by now."""
        if self._folder is None or not digest.isalnum():
            return self._in_memory.get(digest)
        try:
            with (self._folder / digest).open("rb") as stream:
                data = stream.read(MAX_BYTES + 1)
        except OSError:
            return None
        return data if digest_of(data) == digest else None


def remove_folder(journal: Path, folder: Path) -> bool:
    """Remove a folder beside the journal of a run; returns whether there was one.

    Raises:
        InvalidUsage: it cannot be removed.
    """
    if not os.path.isdir(folder):
        return False
    with refusing(f"the files of run {journal.stem} in {str(folder)!r} cannot be removed"):
        shutil.rmtree(folder)
    return True
