"""Files that users name, read as text up to a bound since a name may lead to a device or to a wrong file; and files for one user."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from stat import S_IMODE

from microagents.base.text_digests import digest_of

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
    """Give the path of a new empty file, which takes the place of the old one at the end, at once. After an error there is no new file.

    Until then only this user may read it. At the end it has the mode of the old file, else the usual mode of a new one.

    Raises:
        OSError: it cannot take that place; the old file is as it was.
    """
    beginning = f".{digest_of(os.fsencode(path.name), 8).hex()}-"
    _remove_left(path.parent, beginning)
    new, mode = path.with_name(f"{beginning}{token_hex(8)}"), _mode_of(path)
    file = _new_locked(new)
    try:
        yield new
        new.chmod(mode)
        new.replace(path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise
    finally:
        os.close(file)


def _new_locked(new: Path) -> int:
    """Make a file that only this user may read, and keep it locked, which shows that its process lives; returns its descriptor."""
    while True:
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.fchmod(file, 0o600)  # a umask may have taken the owner's rights, too
        with suppress(OSError):  # a file system without locks: nobody else locks it there, so nobody removes it
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.path.lexists(new):
            return file
        os.close(file)  # it was removed before it was locked


def _remove_left(folder: Path, beginning: str) -> None:
    """Remove the new files that processes left which were killed."""
    for each in folder.iterdir():
        if each.name.startswith(beginning):
            with suppress(OSError):
                _remove_unlocked(each)


def _remove_unlocked(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    finally:
        os.close(file)


def _mode_of(path: Path) -> int:
    """Return the mode of a file, or if it is missing the mode that the system gives to a new file there."""
    with suppress(FileNotFoundError):
        return S_IMODE(path.stat().st_mode)
    # Reading the umask means to change it for all threads, and a folder may have defaults of its own.
    empty = path.with_name(f".{token_hex(8)}")
    file = os.open(empty, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        return S_IMODE(os.fstat(file).st_mode)
    finally:
        os.close(file)
        empty.unlink()


def replace_text(path: Path, text: str) -> None:
    """Write a file at once: a reader sees the old text or the new one.

    Raises:
        OSError: it cannot be written; the old one is as it was.
    """
    with replacing(path) as new:
        new.write_bytes(text.encode())


NOT_PLAIN = "it is not a plain file"
"""What is said of a pipe, a socket, a device or a folder."""
