"""Programs on Ray in processes of their own, and which processes of theirs are there: by a mark in the environment that all inherit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

WAIT_S = 240.0
"""Bound of every wait for a process: the start of Ray takes minutes on a machine that does much else."""
LOOK_EVERY_S = 0.1
AGENTS = (b"ray::DashboardAgent", b"ray::RuntimeEnvAgent")
"""Two of Ray's own that outlive a driver that is killed by up to a minute, and end by themselves."""


def until(condition: Callable[[], bool]) -> None:
    """Wait for what other processes do; nobody tells us of it."""
    over_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < over_s, "what was waited for did not happen"
        time.sleep(LOOK_EVERY_S)


def read_bytes(path: Path) -> bytes:
    """The content of a file of /proc; nothing if its process has ended or is of another user."""
    try:
        return path.read_bytes()
    except OSError:  # it has ended, or it is somebody else's
        return b""


def _processes() -> Iterator[int]:
    return (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit())


def _parent(pid: int) -> int:
    status = read_bytes(Path(f"/proc/{pid}/stat"))
    return int(status.rpartition(b")")[2].split()[1]) if status else 0


def title_of(pid: int) -> bytes:
    """The title of a process."""
    return read_bytes(Path(f"/proc/{pid}/cmdline"))


def is_actor(title: bytes) -> bool:
    """Whether a process hosts roles, by its title: the class of its actor."""
    return title.startswith(b"ray::") and not title.startswith((b"ray::IDLE", *AGENTS))


def actors_of(driver: int) -> list[int]:
    """The processes of a driver's Ray actors, on the Ray that it has started."""
    named = [pid for pid in _processes() if is_actor(title_of(pid))]
    return sorted(pid for pid in named if _parent(_parent(pid)) == driver)


def kill(pid: int) -> None:
    """As the kernel does when memory runs out."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


class Program:
    """A program in a process group of its own; a context manager, at whose end nothing of it is left."""

    def __init__(self, *words: str, **environment: str) -> None:
        self._mark = f"TEST_MARK_OF_MICROAGENTS={uuid4()}".encode()
        name, _, value = self._mark.decode().partition("=")
        self.process = subprocess.Popen(
            [sys.executable, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, **environment, name: value},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in self.left():
            kill(pid)
        with self.process:
            self.process.kill()

    def left(self, *, agents: bool = True) -> list[int]:
        """Every process that it started, directly or not, and that has not ended; with Ray's agents, or without."""
        started = [pid for pid in _processes() if self._mark in read_bytes(Path(f"/proc/{pid}/environ")).split(b"\0")]
        return [pid for pid in started if agents or not read_bytes(Path(f"/proc/{pid}/cmdline")).startswith(AGENTS)]

    def actors(self) -> list[int]:
        return actors_of(self.process.pid)

    def rays_own(self) -> list[int]:
        """The processes by which Ray runs this machine and keeps its state, where the program has started them."""
        found = [pid for pid in _processes() if _parent(pid) == self.process.pid]
        return [
            pid
            for pid in found
            if any(name in read_bytes(Path(f"/proc/{pid}/cmdline")) for name in (b"gcs/gcs_server", b"raylet/raylet"))
        ]

    def press_ctrl_c(self) -> None:
        """As a terminal does: all of the process group hears of it."""
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self) -> tuple[int, str, str]:
        """Wait for its end: exit code, stdout, stderr."""
        out, err = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, out, err
