"""How tests give commands: in this process, as installed, and as a process that is ended at a moment of their choice."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from textwrap import dedent
from types import TracebackType
from typing import Any, NamedTuple, Self
from unittest.mock import patch
from xml.etree import ElementTree as ET

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from microagents.cli import app
from microagents.models.simulation.simulated import Purchases
from tests.forking import COMMAND, Forked

WAIT_S = 60
"""Bound of every wait for a process; none takes a tenth of it."""

COMPLETED, FAILED, WRONG_USAGE, STOPPED, UNDECIDED, WRONG, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130
OVER = (COMPLETED, WRONG)
"""Codes of a run that is over, for tests that are not about what its work is worth."""
PAPERS = Path(__file__).parents[1] / "papers"
"""Folder of tasks that are named by their files."""


class Ran(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Stdout, which must be one JSON object and nothing else."""
        assert self.out, self.err
        found = json.loads(self.out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
        assert isinstance(found, dict)
        return found

    @property
    def rows(self) -> dict[str, str]:
        """The rows of a summary by their heads."""
        rows = [line.partition("  ") for line in self.out.splitlines()]
        return {head: text.strip() for head, _, text in rows}

    @property
    def reason(self) -> str:
        """Why it did not complete: one sentence, without a traceback."""
        assert self.code != COMPLETED
        said = str(self.json["reason"]) if self.out else self.err.removesuffix("\n").removeprefix("microagents: ")
        assert not (self.out and self.err)
        assert "Traceback" not in self.err
        assert "\n" not in said
        return said


@cache
def command_line() -> Any:
    """All commands. Typer makes them of annotations in a hundredth of a second, which tests would wait for a thousand times."""
    return get_command(app)


def microagents(*words: str, env: Mapping[str, str] | None = None, stdin: str | bytes | None = None) -> Ran:
    """The command in this process, whose environment is afterwards as it was."""
    with patch.dict(os.environ), CliRunner().isolation(input=stdin, env=env) as (out, err, _):
        with pytest.raises(SystemExit) as ended:
            command_line().main(args=words, prog_name="microagents")
        sys.stdout.flush()
        sys.stderr.flush()
        return Ran(int(ended.value.code or 0), out.getvalue().decode(), err.getvalue().decode())


def forget_files_in(folder: Path) -> None:
    """Forget the modules of a folder, as a new process does."""
    start = f"{folder}/"
    for name, each in list(sys.modules.items()):
        if (each.__dict__.get("__file__") or "").startswith(start):
            del sys.modules[name]


def anew(*words: str) -> Ran:
    """The command in this process, which imports the files of the current folder anew."""
    forget_files_in(Path.cwd())
    return microagents(*words)


def installed(
    *words: str, before: Sequence[str] = (), cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Ran:
    """The command as a new process, with another command before it."""
    environment = {**os.environ, **(env or {})}
    ran = subprocess.run(
        [*before, COMMAND, *words],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def started(*words: str, cwd: Path | None = None) -> Ran:
    """The command in a process that imports nothing again."""
    with Forked(*words, cwd=cwd) as process:
        out, err = process.communicate(timeout=WAIT_S)
    return Ran(process.returncode, out, err)


def write(name: str, text: str) -> str:
    """A file in the current folder."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text), encoding="utf-8")
    return name


class Bought:
    """What the seller noted: calls as ``path fork seq``."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.billed: list[str] = []

    def note(self, line: str) -> None:
        """Take in a line of its list."""
        what, _, sample = line.strip().partition(" ")
        {"sent": self.sent, "billed": self.billed}[what].append(sample)


def shopping(*words: str) -> tuple[Ran, Bought]:
    """The command in this process, and what it bought."""
    purchases, bought = Path("purchases.txt"), Bought()
    ran = microagents(*words, env={Purchases.VARIABLE: str(purchases)})
    if purchases.exists():
        for line in purchases.read_text(encoding="utf-8").splitlines():
            bought.note(line)
        purchases.unlink()
    return ran, bought


class Sitting(Bought):
    """A run in a process of its own that is followed call by call: its seller's list is a pipe, so nothing is waited for by the clock.

    A context manager; whatever is still running at its end is killed. ``paced``, it is at most two calls ahead of who reads its
    list, so that no signal comes too late; ``hastily``, it also makes no pause between commits.
    """

    def __init__(self, *words: str, stderr: int = subprocess.PIPE, hastily: bool = False, paced: bool = False) -> None:
        super().__init__()
        reading, writing = os.pipe()
        paced = paced or hastily
        if paced:
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
        self._list = os.fdopen(reading, encoding="utf-8")
        environment = {**os.environ, Purchases.VARIABLE: f"/dev/fd/{writing}"}
        try:
            self.process = Forked(
                *words, hastily=hastily, paced=paced, stderr=stderr, env=environment, pass_fds=[writing]
            )
        finally:
            os.close(writing)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self._list.close()
        with self.process:
            pass

    def until_sent(self, calls: int) -> None:
        """Wait until so many calls were sent in all; the run must not end before."""
        while len(self.sent) < calls:
            line = self._list.readline()
            assert line, f"the run ended after {len(self.sent)} calls: {self.process.communicate(timeout=WAIT_S)}"
            self.note(line)

    def send(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        self.process.send_signal(number)

    def end(self, number: signal.Signals | None = None) -> Ran:
        """Wait until the process has ended, by itself or by a signal."""
        if number is not None:
            self.send(number)
        for line in self._list:
            self.note(line)
        out, err = self.process.communicate(timeout=WAIT_S)
        return Ran(self.process.returncode, out, err or "")


def texts_of(picture: str) -> str:
    """All text of a picture that is well-formed."""
    root = ET.fromstring(Path(picture).read_bytes())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    return " ".join("".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text"))
