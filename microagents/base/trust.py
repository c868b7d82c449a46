"""What this user trusts, listed in the user's state folder; and the refusal to import code for a journal that is not on the list."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from hashlib import blake2b
from pathlib import Path

from msgspec import Struct

from microagents.base.errors import InvalidUsage

_untrusted: ContextVar[str] = ContextVar("untrusted", default="")
"""Name of the run that is read without its code; empty if any code may be imported."""


class TrustList(Struct, frozen=True):
    """Files that this user trusts, each by its absolute path and the digest of some of its content.

    It is a file of mode 0600 with a line for each, below ``$XDG_STATE_HOME`` or ``~/.local/state``. Processes may append to it at once.
    """

    name: str

    def has(self, path: Path, content: bytes) -> bool:
        """Return whether a file with this content is on the list."""
        try:
            listed = self._file().read_bytes()
        except (OSError, RuntimeError):  # no list yet, or no home folder
            return False
        return b"\n" + _line(path, content) in b"\n" + listed

    def add(self, path: Path, content: bytes) -> None:
        """Put a file on the list. Without a folder that can be written, the list stays as it is."""
        if self.has(path, content):
            return
        with suppress(OSError, RuntimeError):
            file = self._file()
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            opened = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(opened, _line(path, content))  # one write, so that lines of several processes do not mix
            finally:
                os.close(opened)

    def _file(self) -> Path:
        state = os.environ.get("XDG_STATE_HOME", "")
        folder = Path(state) if Path(state).is_absolute() else Path.home() / ".local/state"
        return folder / "microagents" / self.name


JOURNALS = TrustList("journals")
"""Journals that this user has begun or continued, by their first record."""
FOLDERS = TrustList("folders")
"""Files with settings of folders, by their text."""


def _line(path: Path, content: bytes) -> bytes:
    return f"{blake2b(content, digest_size=16).hexdigest()} {json.dumps(os.path.realpath(path))}\n".encode()


@contextmanager
def without_code_of(run_id: str) -> Iterator[None]:
    """Refuse, as long as the block, to import code by name that is neither installed as a part of this package nor imported already."""
    token = _untrusted.set(run_id)
    try:
        yield
    finally:
        _untrusted.reset(token)


def check_import(module: str, named: str) -> None:
    """Check that a module may be imported because some text names it.

    Args:
        module: its name.
        named: the text.

    Raises:
        InvalidUsage: a run is read without its code.
    """
    run_id = _untrusted.get()
    if run_id and module.partition(".")[0] != "microagents" and module not in sys.modules:
        raise InvalidUsage(
            f"{named} was not imported, since you did not begin run {run_id} here; if you trust its code: microagents show {run_id} --code"
        )
