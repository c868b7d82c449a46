"""Journals that are taken away from a live run, in a dozen ways: what is bought after it, and whether the copy goes on.

Run with ``python -m tests.benchmarks.taken_away [--times N]``.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.benchmarks.harness import options_of, sent, until
from tests.cli.commands import COMPLETED, STOPPED

IN_FLIGHT = 8
WALK = (
    *("run", "drift", "-o", "length=100", "--model", "sim:gpt-4.1-mini@latency=0.05", "--run-id", "r", "--json"),
    *("--concurrency", str(IN_FLIGHT)),
)
TAKEN_AT = 150
"""Calls after which the journal is taken away, of some 300."""
WAIT_S = 600.0
"""Bound of every wait, also on a machine with much else to do."""


def removed(journal: Path, _older: Path) -> None:
    journal.unlink()


def folder_removed(journal: Path, _older: Path) -> None:
    shutil.rmtree(journal.parent)


def folder_moved(journal: Path, _older: Path) -> None:
    journal.parent.rename(journal.parent.with_name("elsewhere"))


def older_put_back(journal: Path, older: Path) -> None:
    older.replace(journal)


def older_written_over(journal: Path, older: Path) -> None:
    journal.write_bytes(older.read_bytes())


def older_restored(journal: Path, older: Path) -> None:
    with closing(sqlite3.connect(older)) as source, closing(sqlite3.connect(journal)) as target:
        source.backup(target)


def overwritten(journal: Path, _older: Path) -> None:
    journal.write_bytes(b"something else\n" * 1000)


def truncated(journal: Path, _older: Path) -> None:
    os.truncate(journal, 0)


def renamed(journal: Path, _older: Path) -> None:
    journal.rename(journal.with_name("renamed.sqlite"))


def replaced_by_link(journal: Path, _older: Path) -> None:
    renamed(journal, _older)
    journal.symlink_to("renamed.sqlite")


def log_removed(journal: Path, _older: Path) -> None:
    Path(f"{journal}-wal").unlink()


def log_truncated(journal: Path, _older: Path) -> None:
    os.truncate(f"{journal}-wal", 0)


def index_removed(journal: Path, _older: Path) -> None:
    Path(f"{journal}-shm").unlink()


WAYS: tuple[Callable[[Path, Path], None], ...] = (
    *(removed, folder_removed, folder_moved, older_put_back, older_written_over, older_restored, overwritten),
    *(truncated, renamed, replaced_by_link, log_removed, log_truncated, index_removed),
)
"""Ways in which a journal is lost; each gets its path and that of an older copy."""


def copy_of(journal: Path, older: Path) -> None:
    """Make a copy of a journal with all that it holds now."""
    with closing(sqlite3.connect(journal)) as source, closing(sqlite3.connect(older)) as target:
        source.backup(target)
        target.execute("PRAGMA journal_mode = DELETE")


def take_away(way: Callable[[Path, Path], None], folder: Path, digests: tuple[str, str]) -> int | None:
    """Take the journal of a run away and resume its copy; returns how many calls were bought after it, or None if nothing was lost.

    An older file that is written over the journal takes nothing away as long as the log has all pages; then the run rightly goes on.
    """
    runs, purchases = folder / "runs", folder / "purchases"
    environment = {**os.environ, "MICROAGENTS_PURCHASES": str(purchases), "XDG_STATE_HOME": str(folder / "state")}
    words = [sys.executable, "-m", "microagents"]
    with subprocess.Popen(
        [*words, *WALK, "--runs-dir", str(runs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        until(lambda: sent(purchases) >= TAKEN_AT // 3, "calls are sent", 0.002)
        copy_of(runs / "r.sqlite", folder / "older")
        until(lambda: sent(purchases) >= TAKEN_AT, "calls are sent", 0.002)
        before = sent(purchases)
        way(runs / "r.sqlite", folder / "older")
        out, err = process.communicate(timeout=WAIT_S)
    after = sent(purchases) - before
    is_whole = way is older_written_over and process.returncode == COMPLETED
    assert is_whole or process.returncode == STOPPED, (way.__name__, process.returncode, err)
    ended = json.loads(out)
    copy = Path(ended["journal"])
    assert is_whole or str(copy) in ended["reason"], ended["reason"]

    def about(*given: str) -> dict[str, Any]:
        ran = subprocess.run(
            [*words, *given, "r", "--runs-dir", str(copy.parent), "--json"],
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_S,
            env=environment,
        )
        assert ran.returncode == COMPLETED, (way.__name__, given, ran.stdout, ran.stderr)
        shown: dict[str, Any] = json.loads(ran.stdout)
        return shown

    assert about("show", "--verify")["verified"]
    resumed = about("resume")
    assert (resumed["decisions_sha256"], resumed["ballots_sha256"]) == digests, way.__name__
    assert is_whole or after <= IN_FLIGHT, f"{way.__name__}: {after} calls were bought after it"
    return None if is_whole else after


def undisturbed() -> tuple[str, str]:
    """Digests of the run that nobody disturbs."""
    words = [sys.executable, "-m", "microagents", *WALK, "--no-journal"]
    ran = subprocess.run(words, capture_output=True, text=True, check=True, timeout=WAIT_S)
    shown = json.loads(ran.stdout)
    return shown["decisions_sha256"], shown["ballots_sha256"]


def main() -> None:
    """Take journals away in every way, so many times each."""
    times: int = options_of(__doc__, times=5).times
    digests = undisturbed()
    for way in WAYS:
        bought = []
        for _ in range(times):
            with tempfile.TemporaryDirectory() as folder:
                bought.append(take_away(way, Path(folder), digests))
        stopped = [each for each in bought if each is not None]
        most = max(stopped, default=0)
        print(
            f"{way.__name__.replace('_', ' ')}: {times} runs; {len(stopped)} stopped (exit code {STOPPED}), with at most {most} calls "
            f"bought after it, of {IN_FLIGHT} in flight; {times - len(stopped)} lost nothing and went on; each journal or copy verifies "
            "and resumes to the undisturbed digests",
            flush=True,
        )


if __name__ == "__main__":
    main()
