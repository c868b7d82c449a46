"""The runs that these tests disturb: walks on a ring, in this process or in one of their own, and what they leave on disk."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, NamedTuple, Self

from microagents import MicroagentsError, Result, resume, run_sync
from microagents.journal.experiment import Experiment, Recipe
from microagents.journal.messages import Account, Recalled
from microagents.journal.reading import Reader
from microagents.journal.sitting import JournalConfig
from microagents.journal.store import Store
from microagents.models.simulation.simulated import Purchases
from microagents.tasks.drift import Drift
from tests.cli import commands
from tests.journal.seal import sealed

MODEL = "sim:perfect@error=0.4,flag=0.1"
"""It errs so often that a step takes five calls, and one wrong count would lead the walk elsewhere."""
LENGTH, K = 300, 2
RUNS = Path("runs")
JOURNAL = RUNS / "r.sqlite"
COMPLETED, FAILED, WRONG_USAGE, STOPPED = 0, 1, 2, 3
WAIT_S = 60
"""Bound of every wait for a process; none takes a tenth of it."""

WALK = ("run", "drift", "-o", f"length={LENGTH}", "--model", MODEL, "-k", f"{K}", "--run-id", "r")
"""The words of the command that does the same as `walk`."""
HASTILY = (
    "from microagents.journal import commits; commits.COMMIT_EVERY_S = 0; from microagents.cli import main; main()"
)
"""The command without a pause between commits: what is kept would else depend on the time that a walk takes, which is nearly none."""
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
    """The file of a run that was finished, or stopped after so many calls."""
    with TemporaryDirectory(dir=Path()) as folder:
        journal = walk(length=length, max_calls=most, runs_dir=folder).journal
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


def opened(path: Path = JOURNAL, *, in_order: bool = True, inputs: int = 1) -> Store:
    """A store that is fed by hand."""
    experiment = Experiment(
        run_id="r",
        identity={},
        recipe=Recipe(task="", options={}, strategy="", strategy_options={}, settings={}),
        inputs=inputs,
        in_order=in_order,
        listed=inputs > 1,
    )
    own = ["{}"] * inputs * (inputs > 1)
    return Store(JournalConfig(path=path, experiment=experiment, own=own, full=False))


def sql(statement: str, *given: object, journal: Path = JOURNAL) -> list[tuple[Any, ...]]:
    """What somebody reads, or edits behind our back; they know of checksums."""
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


class Ran(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """What it printed."""
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def reason(self) -> str:
        """Why it did not complete: one sentence, without a traceback."""
        assert self.code != COMPLETED
        if self.out:
            assert self.err == ""
            said = str(self.json["reason"])
        else:
            said = self.err.removesuffix("\n").removeprefix("microagents: ")
        assert "Traceback" not in self.err
        assert "\n" not in said
        return said


def microagents(*words: str) -> Ran:
    """The command in this process."""
    return Ran(*commands.microagents(*words))


def installed(*words: str, before: Sequence[str] = (), cwd: Path | None = None) -> Ran:
    """The command in a process of its own, with another command before it."""
    ran = subprocess.run(
        [*before, sys.executable, "-m", "microagents", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
        cwd=cwd,
    )
    return Ran(ran.returncode, ran.stdout, ran.stderr)


class Sitting:
    """A run in a process of its own that goes no further than we look.

    What its model sells is written to a narrow pipe: nothing is waited for by the clock, and while nobody reads the process soon stands
    still, alive. A context manager; what still runs at its end is killed.
    """

    def __init__(self, *words: str) -> None:
        self.sent = 0
        reading, writing = os.pipe()
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
        self._sold = os.fdopen(reading, encoding="utf-8")
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", HASTILY, *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, Purchases.VARIABLE: f"/dev/fd/{writing}"},
                pass_fds=[writing],
            )
        finally:
            os.close(writing)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._sold.close()
        with self._process:
            pass

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def until_sent(self, calls: int) -> None:
        """Let it go on until so many calls were sent in all; it must not end before."""
        while self.sent < calls:
            line = self._sold.readline()
            assert line, f"it ended after {self.sent} calls: {self._process.communicate(timeout=WAIT_S)}"
            self.sent += line.startswith("sent ")

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def end(self) -> Ran:
        """Let it go on to its end."""
        for _ in self._sold:
            pass
        out, err = self._process.communicate(timeout=WAIT_S)
        return Ran(self._process.returncode, out, err)

    def kill(self) -> None:
        """Kill it."""
        self.send(signal.SIGKILL)
        self.end()
