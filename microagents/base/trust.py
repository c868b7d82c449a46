"""Folders and journals that this user trusts, in a list in the state folder; no code is imported for a journal that is not listed."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from msgspec import Struct

from microagents.base.errors import InvalidUsage
from microagents.base.files import make_private
from microagents.base.text_digests import digest_of

MAX_BYTES = 1 << 18
_untrusted: ContextVar[str] = ContextVar("untrusted", default="")
"""Name of the run that is read without its code; empty if any code may be imported."""


class TrustList(Struct, frozen=True):
    """Files that this user trusts, each by its absolute path and the digest of some of its content.

    It is a file of mode 0600 with a line for each, below ``$XDG_STATE_HOME`` or ``~/.local/state``. Processes may append to it at once. A
    list of more than `MAX_BYTES` forgets files that are gone.
    """

    name: str

    def has(self, path: Path, content: bytes) -> bool:
        """Return whether a file with this content is on the list."""
        return b"\n" + _line(path, content) in b"\n" + self._listed()

    def names(self, name: str) -> bool:
        """Return whether a file of this name is on the list, in any folder."""
        return f'/{name}"\n'.encode() in self._listed()

    def add(self, path: Path, content: bytes) -> None:
        """Put a file on the list. Without a folder that can be written, the list stays as it is."""
        if self.has(path, content):
            return
        with suppress(OSError, RuntimeError, ValueError):
            file = self._file()
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _append(file, _line(path, content))
            if file.stat().st_size > MAX_BYTES:
                _forget_gone(file)

    def _listed(self) -> bytes:
        with suppress(OSError, RuntimeError):  # no list yet, or no home folder
            return self._file().read_bytes()
        return b""

    def _file(self) -> Path:
        state = os.environ.get("XDG_STATE_HOME", "")
        folder = Path(state) if Path(state).is_absolute() else Path.home() / ".local/state"
        return folder / "microagents" / self.name


JOURNALS = TrustList("journals")
"""Journals that this user has begun or continued, by their first record."""
FOLDERS = TrustList("folders")
"""Files with settings of folders, by their text."""


def _line(path: Path, content: bytes) -> bytes:
    return f"{digest_of(content).hex()} {json.dumps(os.path.realpath(path))}\n".encode()


def _append(file: Path, lines: bytes) -> None:
    """Append to a list, once more if another process replaced it meanwhile."""
    is_kept = False
    while not is_kept:
        opened = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(opened, lines)  # one write, so that lines of several processes do not mix
            is_kept = os.path.samestat(os.fstat(opened), file.stat())
        finally:
            os.close(opened)


def _forget_gone(file: Path) -> None:
    """Replace a list by one with the last line of each file that is there."""
    with file.open("rb") as old:
        fcntl.flock(old, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if another process is at it
        if not os.path.samestat(os.fstat(old.fileno()), file.stat()):
            return
        last = {line.partition(b" ")[2]: line for line in old}
        new = file.with_suffix(".new")
        new.unlink(missing_ok=True)
        make_private(new)
        kept = [line for path, line in last.items() if os.path.exists(json.loads(path))]
        new.write_bytes(b"".join(kept))
        new.replace(file)
        if late := old.read():  # appended after it was read
            _append(file, late)


@contextmanager
def without_code_of(run_id: str) -> Iterator[None]:
    """Refuse, as long as the block, to import code by name that is neither installed as a part of this package nor imported already."""
    token = _untrusted.set(run_id)
    try:
        yield
    finally:
        _untrusted.reset(token)


def check_import(module: str, named: str) -> None:
    """Check that a module may be imported because some text names it: not while a run is read without its code."""
    run_id = _untrusted.get()
    if run_id and module.partition(".")[0] != "microagents" and module not in sys.modules:
        raise InvalidUsage(
            f"{named} was not imported, since you did not begin run {run_id} here; if you trust its "
            f"code: microagents show {run_id} --trust-journal"
        )
