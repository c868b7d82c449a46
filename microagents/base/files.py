"""Files that users name, read as text up to a bound since a name may lead to a device or to a wrong file; and files for one user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from shutil import copymode

MAX_BYTES = 16 << 20


def read_text(path: str | Path) -> str:
    """Return the text of a file, without a byte order mark.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not UTF-8, or has more than `MAX_BYTES`.
    """
    with Path(path).open("rb") as stream:
        text = stream.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES >> 20} MiB")
    return text.decode("utf-8-sig")


def is_there(path: Path) -> bool:
    """Return whether a file, a folder or a link has this path.

    Raises:
        OSError: nothing can have it, such as a name that is too long, or its folder may not be searched.
        ValueError: the path has a null character.
    """
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def make_private(path: Path) -> None:
    """Make an empty file that only this user may read, whatever the umask. A file with content is left as it is.

    Raises:
        OSError: it cannot be made; or there is a pipe, a socket, a device or a folder, which could keep the caller for ever.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if not os.path.isfile(path):
            raise OSError(NOT_PLAIN) from None
        if path.stat().st_size:
            return
    path.chmod(0o600)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give the path of a new file, which takes the place of the old one at the end, at once. After an error there is no new file.

    Raises:
        OSError: it cannot take that place; the old file is as it was.
    """
    new = path.with_name(f".{token_hex(8)}")
    try:
        yield new
        new.replace(path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise


def replace_text(path: Path, text: str) -> None:
    """Write a file at once: a reader sees the old text or the new one. A file that was there keeps its mode.

    Raises:
        OSError: it cannot be written; the old one is as it was.
    """
    with replacing(path) as new:
        with new.open("xb") as file:  # a name that is not there yet: nothing is overwritten
            file.write(text.encode())
        with suppress(FileNotFoundError):
            copymode(path, new)


NOT_PLAIN = "it is not a plain file"
"""What is said of a pipe, a socket, a device or a folder."""
