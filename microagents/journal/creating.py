"""Making the file of a new journal, and the folder of runs."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from microagents.base.errors import Stopped, read_failure
from microagents.base.files import make_private

NETWORK_FILE_SYSTEMS = (
    *("9p", "afs", "beegfs", "ceph", "cifs", "fuse."),
    *("glusterfs", "gpfs", "lustre", "nfs", "smb", "virtiofs"),
)


def on_network(path: Path) -> bool:
    """Whether a file lies on a network file system: SQLite's write-ahead log is not safe there."""
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
        mounts = [line.split()[1:3] for line in lines]
    except OSError:
        return False
    folder = Path(os.path.realpath(path)).parent
    # The kernel writes a blank in a path as \040. Of nested mounts the longest path is the one in effect.
    containing = [(len(at), kind) for at, kind in mounts if folder.is_relative_to(at.replace("\\040", " "))]
    return bool(containing) and max(containing)[1].startswith(NETWORK_FILE_SYSTEMS)


def create_file(path: Path) -> sqlite3.Connection:
    """Make the file of a journal, and its folder. SQLite gives the files beside it the same rights.

    Raises:
        Stopped: the file cannot be made.
    """
    try:
        make_folder(path.parent)
        make_private(path)
        # An absolute path, since SQLite may take a folder named `file:...` for an address.
        return sqlite3.connect(path.absolute(), timeout=10.0, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise creation_error(path, error) from None


def create_in_memory() -> sqlite3.Connection:
    """Make a database that ends with its connection."""
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)


def make_folder(folder: Path) -> None:
    """Make the folder of runs for this user only, unless it is there, or another process makes it at the same time."""
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        if not os.path.isdir(folder):
            folder.stat()  # of a link that leads nowhere or to itself its error says more
            raise
    else:
        folder.chmod(0o700)  # a umask may have taken the owner's rights, too
        # A new folder of runs stays out of the user's repository.
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")


def creation_error(path: Path, error: Exception) -> Stopped:
    """Return the error for a journal that cannot be made."""
    return Stopped(
        f"the journal {str(path)!r} cannot be made: {read_failure(error)}; nothing was started; name another folder with --runs-dir"
    )
