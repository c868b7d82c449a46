"""The runs that these tests disturb: walks on a ring, in this process or in one of their own, and what they leave on disk."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from microagents import MicroagentsError, Result, resume, run_sync
from microagents.journal.experiment import Experiment, Recipe
from microagents.journal.messages import Account, Recalled
from microagents.journal.reading import Reader
from microagents.journal.sitting import JournalConfig
from microagents.journal.store import Store
from microagents.tasks.drift import Drift
from tests.journal.seal import sealed

MODEL = "sim:perfect@error=0.4,flag=0.1"
"""It errs so often that a step takes five calls, and one wrong count would lead the walk elsewhere."""
LENGTH, K = 200, 2
RUNS = Path("runs")
JOURNAL = RUNS / "r.sqlite"
WAIT_S = 60
"""Bound of every wait for a process; none takes a tenth of it."""

WALK = ("run", "drift", "-o", f"length={LENGTH}", "--model", MODEL, "-k", f"{K}", "--run-id", "r")
"""The words of the command that does the same as `walk`."""
PATIENTLY = (*WALK, "--no-speculate", "--durability", "normal")
"""The same step by step, where the journal is never far behind."""


def walk(*, length: int = LENGTH, **options: Any) -> Result:
    """A run; it waits for no disk, which what the process survives does not need. A recorded limit is lifted."""
    usual: dict[str, Any] = {
        "models": MODEL,
        "k": K,
        "run_id": "r",
        "runs_dir": RUNS,
        "durability": "normal",
        "max_calls": None,
    }
    return run_sync(Drift(length=length), **{**usual, **options})


def go_on(**options: Any) -> Result:
    """The run, taken up from its journal alone."""
    return asyncio.run(resume("r", **{"runs_dir": RUNS, "trust_journal": True, **options}))


@cache
def undisturbed(length: int = LENGTH, k: int = K) -> tuple[str, str]:
    """The digests of a run that nothing happened to, and that kept no journal."""
    return digests(walk(length=length, k=k, runs_dir=None).account)


@cache
def walked(length: int = LENGTH, *, most: int | None = None) -> bytes:
    """The file of a run that was finished, or stopped after so many calls: without drafts the same rows on any machine."""
    with TemporaryDirectory(dir=Path()) as folder:
        journal = walk(length=length, max_calls=most, runs_dir=folder, speculate=most is None).journal
        assert journal is not None
        return journal.read_bytes()


def put(content: bytes, log: bytes | None = None) -> None:
    """Let this be the journal, and the log beside it."""
    RUNS.mkdir(exist_ok=True)
    for left in RUNS.glob("r.sqlite-*"):
        left.unlink()
    JOURNAL.write_bytes(content)
    if log is not None:
        Path(f"{JOURNAL}-wal").write_bytes(log)


def digests(account: Account) -> tuple[str, str]:
    """What was decided, and by which ballots."""
    assert account.decisions_sha256
    assert account.ballots_sha256
    return account.decisions_sha256, account.ballots_sha256


def problems(journal: Path = JOURNAL) -> list[str]:
    """What does not fit in a journal."""
    with Reader(journal) as reader:
        return reader.verify()


def decisions(journal: Path = JOURNAL) -> dict[str, Recalled]:
    """What is decided, by path, in the order of paths."""
    with Reader(journal) as reader:
        return dict(reader.decisions())


def opened(path: Path | None = JOURNAL, *, inputs: int = 1) -> Store:
    """A store that is fed by hand."""
    experiment = Experiment(
        run_id="r",
        identity={},
        recipe=Recipe(task="", options={}, strategy="", strategy_options={}, settings={}),
        inputs=inputs,
        listed=inputs > 1,
    )
    own = ["{}"] * inputs * (inputs > 1)
    return Store(JournalConfig(path=path, experiment=experiment, own=own, full=False))


def sql(statement: str, *given: object, journal: Path = JOURNAL) -> list[tuple[Any, ...]]:
    """What somebody reads, or edits behind our back; they know of digests."""
    with closing(sqlite3.connect(journal, timeout=WAIT_S)) as db, db:
        found = db.execute(statement, given).fetchall()
        edited = db.total_changes > 0
    if edited:
        sealed(journal)
    return found


def dumped(journal: Path = JOURNAL) -> list[str]:
    """All that a journal holds, wherever it stands: in the file, or in the log beside it."""
    with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True, timeout=WAIT_S)) as db:
        return list(db.iterdump())


def on_disk(folder: Path = RUNS) -> dict[str, bytes]:
    """The files of a folder, with the log and the index of the log that a process left."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*")) if path.is_file()}


def sentence(error: MicroagentsError) -> str:
    """What an error says, which must be one sentence."""
    said = str(error)
    assert said
    assert "\n" not in said
    return said
