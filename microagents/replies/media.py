"""Pictures and files in prompts: their kind by their first bytes, their digest, and their bytes while this process needs them."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from hashlib import blake2b
from pathlib import Path
from stat import S_ISREG
from typing import Annotated, Final

from msgspec import Meta, Struct, structs

from microagents.base.errors import InvalidUsage, refusing

MAX_BYTES: Final = 20 << 20
"""Largest file: as base64 it fits into the requests of all providers."""
MAX_HELD_BYTES = 32 << 20
"""Bytes of files that a process holds, the latest ones. All others are read again from the folder beside the journal."""
PDF, UNKNOWN_PICTURE = "application/pdf", "image/*"
NAMES = {"image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "WebP", "image/gif": "GIF", PDF: "PDF"}
"""The kinds that are taken, by their type."""
_ENDINGS = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
    ".gif": "image/gif",
    ".pdf": PDF,
}
_MAGIC = {
    "image/png": rb"\x89PNG\r\n\x1a\n",
    "image/jpeg": rb"\xff\xd8\xff",
    "image/webp": rb"RIFF....WEBP",
    "image/gif": rb"GIF8[79]a",
    PDF: rb"%PDF-",
}
Source = str | Path | bytes
"""The path of a file, its bytes, or an https address, which is handed to the provider and not fetched here."""


class Media(Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """A picture or a file of a prompt, without its bytes. `Image` and `File` make it."""

    media_type: str
    digest: Annotated[str, Meta(pattern="^([0-9a-f]{32})?$")] = ""
    """Digest of its bytes; empty for an address."""
    size: int = 0
    name: str = ""
    """Name of the file, without its folder."""
    address: str = ""
    """An https address that the provider fetches; empty if the bytes are sent."""

    @property
    def is_picture(self) -> bool:
        """Whether it is a picture, and no PDF."""
        return self.media_type != PDF

    @property
    def shown(self) -> str:
        """Kind, name and size in words."""
        kind = NAMES.get(self.media_type, "picture")
        return f"{kind} {self.address}" if self.address else f"{kind} {self.name}".rstrip() + f", {self.size:,} bytes"

    @property
    def is_made_here(self) -> bool:
        """Whether this process made it of a path or of bytes, and nothing has recorded them yet."""
        return "source" in self.__dict__

    def data(self) -> bytes:
        """Return the bytes that it was made of in this process.

        Raises:
            InvalidUsage: the file has changed meanwhile, or cannot be read any more.
        """
        source: Path | bytes = self.__dict__["source"]
        data = HELD.get(self.digest)
        if data is None:
            data = source if isinstance(source, bytes) else _read(source)
        if digest_of(data) != self.digest:
            raise InvalidUsage(
                f"{_named(source)} changed after its question was asked; put it back, and resume the run"
            )
        HELD.put(self.digest, data)
        return data

    def forget_source(self) -> None:
        """Drop its bytes, which were recorded."""
        self.__dict__.pop("source", None)


class Held:
    """Bytes by their digest, the latest ones up to a bound."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._held: OrderedDict[str, bytes] = OrderedDict()

    def get(self, digest: str) -> bytes | None:
        """Return the bytes of a digest; None if they are not held any more."""
        data = self._held.get(digest)
        if data is not None:
            self._held.move_to_end(digest)
        return data

    def put(self, digest: str, data: bytes) -> None:
        """Hold bytes in the place of the oldest ones."""
        if digest in self._held:
            return
        self._held[digest] = data
        self._size += len(data)
        while self._size > self._most and len(self._held) > 1:
            _, oldest = self._held.popitem(last=False)
            self._size -= len(oldest)


HELD = Held(MAX_HELD_BYTES)
"""Bytes of the files that this process has read or been sent."""
MAX_READ = 1 << 16
_READ: OrderedDict[tuple[str, int, int, int], Media] = OrderedDict()
"""Files that were read, by path, inode, size and time, so that each is read once."""


def Image(source: Source, *, name: str = "") -> Media:  # noqa: N802 - it stands for a class
    """Return a picture for a prompt: PNG, JPEG, WebP or GIF.

    Args:
        source: the path of a file, its bytes, or an https address.
        name: its name in records; by default the file's.

    Raises:
        InvalidUsage: it cannot be read, is empty or too long, or is no picture.
    """
    found = File(source, name=name)
    if found.address:
        return structs.replace(found, media_type=UNKNOWN_PICTURE)
    if not found.is_picture:
        raise InvalidUsage(f"{_named(source)} is a PDF, and no picture; give it as File(...)")
    return found


def File(source: Source, *, name: str = "") -> Media:  # noqa: N802 - it stands for a class
    """Return a PDF or a picture for a prompt, as its first bytes say; of an address that does not end as a picture's, a PDF.

    Args:
        source: the path of a file, its bytes, or an https address.
        name: its name in records, and for a PDF also in the request; by default the file's.

    Raises:
        InvalidUsage: it cannot be read, is empty or too long, or is neither.
    """
    if isinstance(source, str) and re.match(r"[a-z]+://", source):
        return _at(source, name)
    if isinstance(source, bytes):
        return _made(source, source, name)
    path = Path(source)
    with _reading(path):
        found = path.stat()
    key = (str(path.absolute()), found.st_ino, found.st_size, found.st_mtime_ns)
    known = _READ.get(key)
    if known is None or (name and name != known.name):
        known = _READ[key] = _made(_read(path), path, name or path.name)
        if len(_READ) > MAX_READ:
            _READ.popitem(last=False)
    return known


def _at(address: str, name: str) -> Media:
    if not address.startswith("https://") or not address.isprintable():
        raise InvalidUsage(f"the address of a picture or file must begin with https://, not {address!r:.80}")
    ending = Path(address.partition("?")[0]).suffix.lower()
    return Media(media_type=_ENDINGS.get(ending, PDF), name=name, address=address)


def _read(path: Path) -> bytes:
    with _reading(path):
        found = path.stat()
        if not S_ISREG(found.st_mode):
            raise InvalidUsage(f"{str(path)!r} is not a plain file")
        _check_size(found.st_size, path)
        with path.open("rb") as stream:
            return stream.read(MAX_BYTES + 1)


def _reading(path: Path) -> AbstractContextManager[None]:
    remedy = "; all decisions so far are kept; put it there"
    return refusing(f"the file {str(path)!r} of a prompt cannot be read", remedy)


def _made(data: bytes, source: Path | bytes, name: str) -> Media:
    """Make the media of bytes, by their beginning."""
    _check_size(len(data), source)
    kind = next((kind for kind, magic in _MAGIC.items() if re.match(magic, data, re.DOTALL)), None)
    if kind is None:
        raise InvalidUsage(
            f"{_named(source)} is no {', '.join(NAMES.values())} by its first bytes, {data[:8]!r}; convert it to one of these"
        )
    told = _ENDINGS.get(Path(name).suffix.lower(), kind)
    if told != kind:
        raise InvalidUsage(
            f"{_named(source)} is named as a {NAMES[told]}, and begins as a {NAMES[kind]}; rename it, or give the right file"
        )
    found = Media(media_type=kind, digest=digest_of(data), size=len(data), name=name)
    found.__dict__["source"] = source
    HELD.put(found.digest, data)
    return found


def _check_size(size: int, source: Path | bytes) -> None:
    if not size:
        raise InvalidUsage(f"{_named(source)} is empty; give the right file")
    if size > MAX_BYTES:
        raise InvalidUsage(
            f"{_named(source)} has {size / 2**20:,.0f} MB, and providers take {MAX_BYTES >> 20} at most; make it smaller, or give an https "
            "address"
        )


def _named(source: Source) -> str:
    return f"a file of {len(source):,} bytes" if isinstance(source, bytes) else f"the file {str(source)!r}"


def digest_of(data: bytes) -> str:
    """Return the digest of the bytes of a file."""
    return blake2b(data, digest_size=16).hexdigest()


def checked_files(given: object) -> tuple[Media, ...]:
    """Return the files of a prompt or a turn as a tuple.

    Raises:
        TypeError: one is none.
    """
    files = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else (given,)
    for each in files:
        if not isinstance(each, Media):
            raise TypeError(f"the files of a prompt are made by Image(...) or File(...), not {each!r:.100}")
    return files
