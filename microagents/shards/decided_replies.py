"""Replies that runs of one folder have decided, by the digest of their question."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from microagents.base.errors import InvalidUsage
from microagents.base.files import replacing
from microagents.base.logs import log
from microagents.base.text_digests import digest_of
from microagents.journal.reading import SUFFIX, Reader
from microagents.runs.driver.shared_questions import DIGEST_BYTES, SharedQuestions
from microagents.runs.spool import temporary_table
from microagents.shards.file_locks import LOCK, locked
from microagents.systems.chains.row_task import RowTask

REPLIES = ".replies"
"""Ending of the file beside a journal that holds the decided replies of its run, once that has ended."""
Reply = tuple[bytes, str]
"""The key of a question, and the decided reply as JSON."""


def question_keys(tasks: Sequence[RowTask]) -> list[bytes]:
    """Return the digest of the question of each row; of a row that cannot be asked, the digest of its columns."""
    questions = SharedQuestions(tasks)
    keys = []
    for number, task in enumerate(tasks):
        digest = questions.digest(number)
        if digest is None:
            columns = msgspec.json.encode(task.row, order="deterministic")
            digest = digest_of(columns, DIGEST_BYTES)
        keys.append(digest)
    return keys


class DecidedReplies:
    """An index of the folder's replies, in an unnamed temporary file of this process.

    A run that has ended leaves a file of its replies. The journal of a run whose process died has them, too, until it is continued.

    Args:
        folder: the folder of journals.
        kind: the class of its rows.
    """

    def __init__(self, folder: Path, kind: type[RowTask]) -> None:
        self._folder, self._kind = folder, kind
        self._seen: set[str] = set()
        """Names of the files that were read."""
        self._db = temporary_table(self, "replies (question BLOB PRIMARY KEY, reply TEXT NOT NULL) WITHOUT ROWID")

    def of(self, keys: Iterable[bytes]) -> dict[bytes, str]:
        """Return the decided replies to questions, after a look for new files.

        Raises:
            OSError: the folder cannot be read.
        """
        self._read_new()
        found = {}
        for key in keys:
            row = self._db.execute("SELECT reply FROM replies WHERE question = ?", (key,)).fetchone()
            if row is not None:
                found[key] = row[0]
        return found

    def forget(self, run: str) -> None:
        """Remove the file of a run that goes on: if its process dies, the journal has more.

        Raises:
            OSError: it cannot be removed.
        """
        (self._folder / f"{run}{REPLIES}").unlink(missing_ok=True)

    def keep(self, run: str, replies: Sequence[Reply]) -> None:
        """Write the file of a run that has ended. Without room for it the journal still has them."""
        self._add(replies)
        try:
            with replacing(self._folder / f"{run}{REPLIES}") as new:
                new.write_bytes(msgspec.msgpack.encode(replies))
        except OSError as error:
            log().warning(f"the replies of run {run} are in its journal only: {error}")
            return
        self._note(run)

    def _read_new(self) -> None:
        new = {each.name for each in self._folder.iterdir()} - self._seen
        for name in sorted(new):
            if name.endswith(REPLIES):
                self._add(_replies_in(self._folder / name))
                self._note(name.removesuffix(REPLIES))
        for name in sorted(new - self._seen):
            if name.endswith(SUFFIX):
                self._read_journal(self._folder / name)

    def _note(self, run: str) -> None:
        """Note that the replies of a run were read, so that its journal need not be."""
        self._seen |= {f"{run}{REPLIES}", f"{run}{SUFFIX}"}

    def _read_journal(self, path: Path) -> None:
        """Read the replies of a run whose process has died. One under way is read once it has ended."""
        with locked(path.with_suffix(LOCK), waits=False) as is_free:
            if is_free:
                with suppress(InvalidUsage):  # it was begun and nothing is recorded, or it is damaged
                    self._add(list(self._decided_in(path)))
                self._seen.add(path.name)

    def _decided_in(self, journal: Path) -> Iterator[Reply]:
        with Reader(journal) as reader:
            for _, options, ending in reader.inputs():
                if ending is not None and ending.outcome == "completed" and ending.result is not None:
                    (key,) = question_keys([self._kind(**options)])
                    yield key, ending.result

    def _add(self, replies: Sequence[Reply]) -> None:
        self._db.execute("BEGIN")
        self._db.executemany("INSERT OR IGNORE INTO replies VALUES (?, ?)", replies)
        self._db.execute("COMMIT")


def _replies_in(path: Path) -> list[Reply]:
    try:
        found = msgspec.msgpack.decode(path.read_bytes(), type=list[Reply])
        for _, reply in found:
            msgspec.json.decode(reply)  # a damaged one fails here, and ends no job
        return found  # noqa: TRY300 - after the check
    except (OSError, msgspec.MsgspecError) as error:
        log().warning(f"the replies in {str(path)!r} cannot be read, so their questions are asked again: {error}")
        return []
