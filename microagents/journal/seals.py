"""Sealed journals: the journal of a shard that is done is one read-only file with its digest, its media packed beside it."""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from microagents.base.files import replacing
from microagents.journal.contents import folder_of
from microagents.journal.inbox import requests_of

SEAL, MEDIA = ".seal", ".media.zip"
"""Endings of the files beside a sealed journal: its digests, and its pictures and files, each under its own digest."""
READ_ONLY = 0o400


class Seal(Struct, frozen=True, kw_only=True):
    """Digests of a sealed journal and of its media."""

    sha256: str
    media_sha256: str | None = None
    """None of a run without pictures and files."""


def is_sealed(journal: Path) -> bool:
    """Whether a journal is sealed."""
    return os.path.exists(journal.with_suffix(SEAL))


def seal(journal: Path) -> None:
    """Seal the journal of a run that has completed. A seal that was cut off is made again.

    Raises:
        OSError: there is no room for it; the journal is as it was.
    """
    media, folder = journal.with_suffix(MEDIA), folder_of(journal)
    if os.path.isdir(folder):
        with replacing(media) as new, zipfile.ZipFile(new, "w") as pack:
            for each in sorted(folder.iterdir()):
                pack.write(each, each.name)
    packed = _digest_of(media) if os.path.exists(media) else None
    journal.chmod(READ_ONLY)
    with replacing(journal.with_suffix(SEAL)) as new:
        new.write_bytes(msgspec.json.encode(Seal(sha256=_digest_of(journal), media_sha256=packed)))
    shutil.rmtree(folder, ignore_errors=True)
    requests_of(journal).unlink(missing_ok=True)


def broken_seals(journal: Path) -> Iterator[str]:
    """Compare a sealed journal and its media with their digests; gives a sentence for each that differs. Any other journal has none."""
    path = journal.with_suffix(SEAL)
    if not os.path.exists(path):
        return
    try:
        recorded = msgspec.json.decode(path.read_bytes(), type=Seal)
    except (OSError, msgspec.MsgspecError) as error:
        yield f"{path.name} is damaged: {error}"
        return
    for file, digest in ((journal, recorded.sha256), (journal.with_suffix(MEDIA), recorded.media_sha256)):
        found = None
        with suppress(OSError):
            found = _digest_of(file)
        if found != digest:
            yield f"{file.name} is missing, or differs from the digest of its seal"


def _digest_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
