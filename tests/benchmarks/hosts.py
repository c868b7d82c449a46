"""One run on three hosts that are cut off, stopped and killed in turn: ``python -m tests.benchmarks.hosts``.

The hosts are network namespaces on a bridge, each with a node of Ray that has one CPU; it needs root and `ip`. A run has an input in a lane
on each. The link of one host is taken down, then all processes of another one are stopped (SIGSTOP), then the raylet beside the driver is
killed; Ray has its usual settings. Printed are the seconds until the log says it and until the input of that lane is under way again. At
the end the run is resumed without Ray, and has the digests of an undisturbed one.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from msgspec import Struct

from microagents import InvalidUsage, resume, run
from microagents.journal.reading import Reader, journal_of
from microagents.runtimes.virtual import run_virtual
from microagents.tasks.drift import Drift
from tests.benchmarks.harness import options_of
from tests.runtimes.ray.ray_processes import kill, title_of

MODEL = "sim:perfect@error=0.4,flag=0.1,latency=0.5"
"""It errs so often that one wrong count would lead a walk elsewhere."""
LENGTH = 500
RUN = "hosts"
HEAD = 0
GCS = "10.77.0.1:6379"
WAIT_S = 300.0
FEW = 10
"""Calls for an input, above those that may have been under way."""
WITHIN_S = 40.0
"""Time within which a fault is told of, and every input goes on."""
FAULTS = ("link", "node", "raylet")
DIED, ENDED = "an actor died", "all decisions so far are kept"


class Hosts:
    """Three hosts, each a network namespace with a link to the others; a context manager, at whose end nothing of them is left."""

    def __init__(self) -> None:
        self._switch = f"micro{secrets.token_hex(2)}"
        self.names = [f"{self._switch}-{number}" for number in range(3)]

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _make(self) -> None:
        _ip("netns", "add", self._switch)
        _ip("-n", self._switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "bridge", "up")
        for number, name in enumerate(self.names):
            _ip("netns", "add", name)
            port = f"port{number}"
            _ip("-n", self._switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("-n", self._switch, "link", "set", port, "master", "bridge", "up")
            _ip("-n", name, "addr", "add", f"10.77.0.{number + 1}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in (*self.names, self._switch):
            with suppress(OSError, subprocess.CalledProcessError):  # it was not made
                for pid in self.processes(name):
                    kill(pid)
                _ip("netns", "del", name)

    def start(self, host: int, *words: str, stdout: int, stderr: int | None = None) -> subprocess.Popen[str]:
        """Start a program of Python on a host."""
        command = ["ip", "netns", "exec", self.names[host], sys.executable, *words]
        return subprocess.Popen(command, text=True, stdout=stdout, stderr=stderr)

    def processes(self, name: str) -> list[int]:
        """All processes of a host."""
        return [int(pid) for pid in _ip("netns", "pids", name).split()]

    def cut(self, host: int) -> None:
        """Take down the link of a host."""
        _ip("-n", self.names[host], "link", "set", "eth0", "down")

    def kill(self, host: int) -> None:
        """Kill all processes of a host."""
        for pid in self.processes(self.names[host]):
            kill(pid)

    def stop(self, host: int) -> None:
        """Stop all processes of a host."""
        for pid in self.processes(self.names[host]):
            os.kill(pid, signal.SIGSTOP)

    def kill_raylet(self, host: int) -> None:
        """Kill the process by which Ray runs a host."""
        (raylet,) = [pid for pid in self.processes(self.names[host]) if b"raylet/raylet" in title_of(pid)]
        kill(raylet)


def may_make_hosts() -> bool:
    """Whether this process may make network namespaces, and `ip` is there."""
    try:
        with Hosts():
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


class Told(Struct, frozen=True):
    """What became of a fault."""

    fault: str
    said_s: float
    """Seconds until the log said it."""
    again_s: float | None
    """Seconds until all inputs were under way again; None if the run ended."""
    words: str
    """The line of the log."""


class Run:
    """The run, whose driver is on the first host."""

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self._hosts, self._folder = hosts, folder
        inputs = folder / "walks.jsonl"
        inputs.write_text(f'{{"length": {LENGTH}}}\n' * 3)
        words = ["run", "drift", "--inputs", str(inputs), "--model", MODEL, "-k", "2", "--no-speculate", "--json"]
        words += ["--runtime", "ray", "--address", GCS, "--lanes", "3", "--runs-dir", str(folder), "--run-id", RUN]
        with (folder / "err").open("w") as err, (folder / "out").open("w") as out:
            self.driver = hosts.start(HEAD, "-m", "microagents", *words, stdout=out.fileno(), stderr=err.fileno())

    def calls(self) -> list[float]:
        """The calls for each input so far."""
        with suppress(InvalidUsage), Reader(journal_of(self._folder, RUN)) as reader:
            return list(array("f", reader.input_sums())[:3])
        return [0.0] * 3

    def until_all_have(self, *, more_than: Sequence[float]) -> None:
        """Wait until each input has more calls."""
        self._until(
            lambda: all(now > before + FEW for now, before in zip(self.calls(), more_than, strict=True)), is_live=True
        )

    def lines(self, words: str) -> list[str]:
        """The lines of the log with these words."""
        return [line for line in (self._folder / "err").read_text().splitlines() if words in line]

    def after(self, fault: str, cause: Callable[[], None], words: str) -> Told:
        """Cause a fault, and wait until the log says so, and until the run goes on or ends."""
        known, before, began_s = len(self.lines(words)), self.calls(), time.monotonic()
        cause()
        self._until(lambda: len(self.lines(words)) > known or self.driver.poll() is not None)
        said_s = time.monotonic() - began_s
        assert len(self.lines(words)) > known, (self._folder / "err").read_text()
        again_s = None
        if words == DIED:
            self.until_all_have(more_than=before)
            again_s = time.monotonic() - began_s
        else:
            self.driver.wait(WAIT_S)
            said_s = time.monotonic() - began_s
        told = Told(fault, said_s, again_s, self.lines(words)[-1])
        again = "" if again_s is None else f", all inputs go on after {again_s:.0f} s"
        print(f"{fault}: said after {said_s:.0f} s{again}\n    {told.words}", flush=True)
        return told

    def _until(self, holds: Callable[[], bool], *, is_live: bool = False) -> None:
        over_s = time.monotonic() + WAIT_S
        while not holds():
            assert time.monotonic() < over_s, (self._folder / "err").read_text()
            assert not is_live or self.driver.poll() is None, (self._folder / "err").read_text()
            time.sleep(0.2)


def start_nodes(hosts: Hosts, folder: Path) -> None:
    """Start a node of Ray on each host, which need a token."""
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32), RAY_raylet_start_wait_time_s="200")
    for number in range(3):
        start_node(hosts, folder, number)


def start_node(hosts: Hosts, folder: Path, number: int) -> None:
    """Start a node of Ray on a host."""
    small = ["--num-cpus=1", "--object-store-memory=80000000", "--include-log-monitor=false", "--disable-usage-stats"]
    at = ["--head", "--port=6379", "--include-dashboard=false"] if number == HEAD else [f"--address={GCS}"]
    # With --block, as in a container, all of a node's Ray ends with its raylet.
    words = ["start", "--block", *at, f"--node-ip-address=10.77.0.{number + 1}", f"--temp-dir={folder}/{number}"]
    started = hosts.start(number, "-m", "ray.scripts.scripts", *words, *small, stdout=subprocess.PIPE)
    assert started.stdout is not None
    assert any("Ray runtime started" in line for line in started.stdout), "a node does not start"


def faults(wanted: Sequence[str]) -> tuple[list[Told], bool]:
    """Cause faults; returns what became of each, and whether the run has the digests of an undisturbed one."""
    # Short: a socket's path in it has a hundred characters at most.
    folder = Path(tempfile.mkdtemp(prefix="h-", dir="/tmp"))
    try:
        with Hosts() as hosts:
            start_nodes(hosts, folder)
            live = Run(hosts, folder)
            live.until_all_have(more_than=[0.0] * 3)
            known = {
                "link": ("link down", lambda: hosts.cut(2), DIED),
                "node": ("node stopped", lambda: hosts.stop(1), DIED),
                "raylet": ("raylet of the driver's host killed", lambda: hosts.kill_raylet(HEAD), ENDED),
            }
            told = [live.after(*known[each]) for each in wanted]
            live.driver.kill()
        undisturbed = asyncio.run(_undisturbed())
        resumed = run_virtual(resume(RUN, runs_dir=folder, runtime="local")).account
        return told, (resumed.decisions_sha256, resumed.ballots_sha256) == undisturbed
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _undisturbed() -> tuple[str, str]:
    model = MODEL.partition(",latency")[0]
    account = (await run([Drift(length=LENGTH)] * 3, models=model, k=2, speculate=False, runs_dir=None)).account
    return account.decisions_sha256, account.ballots_sha256


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    """Print what became of each fault."""
    told, is_same = faults(options_of(__doc__, fault=FAULTS).fault)
    print(f"resumed without Ray: digests {'as undisturbed' if is_same else 'DIFFERENT'}")
    longest_s = max(max(each.said_s, each.again_s or 0.0) for each in told)
    is_soon = longest_s < WITHIN_S
    print(f"the longest wait was {longest_s:.0f} s, of {WITHIN_S:.0f} at most{'' if is_soon else ': OUTSIDE'}")
    sys.exit(not (is_same and is_soon))


if __name__ == "__main__":
    main()
