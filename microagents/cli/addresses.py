"""Sealed runs at an address, such as ``s3://bucket/runs``: written there, and copied here to be read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from microagents.base.errors import InvalidUsage
from microagents.base.packages import require_package
from microagents.journal.reading import journal_of
from microagents.journal.sharded import FOLDER, reader_of

_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/+")
"""The beginning of an address, from which a path has taken a slash."""


@contextmanager
def at_hand(runs_dir: Path, run: str) -> Iterator[Path]:
    """Yield the folder of a run: of one at an address a copy that ends with the block.

    Raises:
        InvalidUsage: the run is not there, or it cannot be copied.
    """
    if _ADDRESS.match(str(runs_dir)) is None or os.path.exists(runs_dir):
        yield runs_dir
        return
    journal, address = journal_of(Path(), run), _address_of(runs_dir)
    with TemporaryDirectory(prefix="microagents-") as folder:
        here = Path(folder)
        _copy(f"{address}/{journal.name}", str(here / journal.name))
        _copy(f"{address}/{journal.stem}{FOLDER}", str(here / f"{journal.stem}{FOLDER}"))
        yield here


def export_sealed(run: str, runs_dir: Path, output: Path | None) -> str:
    """Copy the sealed journals of a run in shards into a folder or to an address; returns where they are.

    Raises:
        InvalidUsage: a shard is not sealed, or they cannot be written there.
    """
    if output is None:
        raise InvalidUsage("sealed journals are files: name a folder or an address with --output")
    with reader_of(runs_dir, run) as reader:
        states = reader.shards()
        open_ones = [name for name, state in states.items() if state != "sealed"]
        if open_ones or not states or not reader.lease().is_free:
            why = f"shard {open_ones[0]} is not done" if open_ones else "it is not in shards, or under way"
            raise InvalidUsage(f"run {run} cannot be written as sealed journals: {why}; nothing was written")
    journal, address = journal_of(runs_dir, run), _address_of(output)
    for path in (journal.with_suffix(FOLDER), journal):  # the whole last: with it all of the run is there
        _copy(str(path.absolute()), f"{address}/{path.name}")
    return address


def _address_of(path: Path) -> str:
    found = _ADDRESS.match(str(path))
    if found is None:
        return str(path.absolute())
    root = "/" if found[1] == "file" else ""
    return f"{found[1]}://{root}{str(path)[found.end() :]}"


def _copy(source: str, destination: str) -> None:
    require_package("an address", "pyarrow")
    from pyarrow import fs  # noqa: PLC0415 - an extra

    files: Any = fs
    try:
        if source.endswith(FOLDER):
            there, path = files.FileSystem.from_uri(destination)
            there.create_dir(path)
        files.copy_files(source, destination)
    except (OSError, ValueError, ImportError) as error:
        text = " ".join(str(error).split())
        raise InvalidUsage(f"{source} cannot be copied to {destination}: {text:.300}") from None
