"""One run on nodes that ``ray start`` began, through every loss: ``python -m tests.benchmarks.cluster_walk``.

A job is submitted; the node of its solver, its driver and then the head are killed (SIGKILL), and the same command is submitted again.
At the end the run has each decision once, and the digests of an undisturbed run. Printed are the commands and what became of each.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from microagents import InvalidUsage, run_sync
from microagents.journal.messages import Account
from microagents.runs.inspection.runs import inspect_run
from microagents.tasks.hanoi import Hanoi
from tests.cluster.test_walk import MARK, PYTHON, Shell, end_what_is_left, free_ports, small

MODEL = "sim:gpt-4.1-mini@latency=0.15"
DISKS = 9
WAIT_S = 400.0


class Walk:
    """The cluster, the run, and what is killed of both."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self._runs, self._stack, self._mark = folder / "runs", stack, uuid4().hex
        self._runs.mkdir()
        self._ray = tempfile.mkdtemp(prefix="walk-", dir="/tmp")
        gcs, dashboard = free_ports(2)
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "MICROAGENTS_"))}
        own = {
            MARK: self._mark,
            "HOME": str(folder),
            "PATH": f"{PYTHON.parent}:{os.environ['PATH']}",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_raylet_start_wait_time_s": "200",
            "RAY_AUTH_MODE": "token",
        }
        self.shell = Shell(plain | own, {"GCS": str(gcs), "DASHBOARD": str(dashboard), "RUNS": str(self._runs)})
        stack.callback(shutil.rmtree, self._ray, ignore_errors=True)
        stack.callback(end_what_is_left, self.shell, self._mark)
        self._began_s, self._jobs = time.monotonic(), 0

    def say(self, words: str) -> None:
        """Print what happened, with the time."""
        print(f"{time.monotonic() - self._began_s:5.0f} s  {words}", flush=True)

    async def start(self, line: str, *more: str) -> int:
        """Start a node; returns the session of its processes."""
        before = set(self.shell.sessions)
        await self._stack.enter_async_context(self.shell.node(line, *more, *small()))
        self.say(line)
        (session,) = self.shell.sessions - before
        return session

    async def head(self) -> int:
        """Start a head."""
        return await self.start(
            "ray start --head --port=GCS --dashboard-host=127.0.0.1 --dashboard-port=DASHBOARD",
            f"--temp-dir={self._ray}/{uuid4().hex[:4]}",
        )

    async def worker(self) -> int:
        """Start a node that may have the solver."""
        return await self.start("ray start --address=127.0.0.1:GCS", '--resources={"solver": 1}')

    async def submit(self) -> None:
        """Submit the run, for the first time or again."""
        self._jobs += 1
        words = f"microagents run hanoi -o disks={DISKS} --model {MODEL} --runtime ray --no-speculate --deploy solver.resources.solver=1"
        line = f"ray job submit --address http://127.0.0.1:DASHBOARD --no-wait --submission-id tower-{self._jobs}"
        await self.shell.run(f"{line} -- {words} --runs-dir RUNS --run-id tower")
        self.say(f"ray job submit --submission-id tower-{self._jobs} -- microagents run ... --run-id tower")

    def account(self) -> Account:
        """What the run has counted so far."""
        with suppress(InvalidUsage):
            return inspect_run(self._runs, "tower").account
        return Account()

    def outcome(self) -> str:
        """How the run stands."""
        with suppress(InvalidUsage):
            return inspect_run(self._runs, "tower").outcome
        return "not begun"

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds."""
        async with asyncio.timeout(WAIT_S):
            while not holds():  # noqa: ASYNC110 - other processes
                await asyncio.sleep(0.2)

    async def until_more(self, steps: int = 40) -> None:
        """Wait until the run has decided some steps more."""
        wanted = self.account().decided + steps
        await self.until(lambda: self.account().decided >= wanted)
        self.say(f"the run has decided {self.account().decided} steps")

    def kill(self, what: str, found: list[int]) -> None:
        """Kill processes."""
        assert found, what
        for each in found:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        self.say(f"kill -9: {what}")

    def of_session(self, session: int) -> list[int]:
        """The processes of a node."""
        return [each for each in _processes() if _session(each) == session]

    def driver(self) -> list[int]:
        """The process of the run."""
        return [each for each in _processes() if self._is_driver(each)]

    def _is_driver(self, process: int) -> bool:
        with suppress(OSError):
            words, variables = (
                Path(f"/proc/{process}/{name}").read_bytes().split(b"\0") for name in ("cmdline", "environ")
            )
            return (
                f"{MARK}={self._mark}".encode() in variables
                and words[1:2] != [b"-c"]
                and words[2:4] == [b"run", b"hanoi"]
            )
        return False


def _processes() -> Iterator[int]:
    return (int(each.name) for each in Path("/proc").glob("[0-9]*"))


def _session(process: int) -> int:
    with suppress(OSError):
        return os.getsid(process)
    return 0


async def walk(folder: Path) -> dict[str, Any]:
    """Walk; returns the account of the run as `show --json` has it."""
    async with AsyncExitStack() as stack:
        here = Walk(folder, stack)
        await here.shell.run("ray get-auth-token --generate")
        head, first = await here.head(), await here.worker()
        await here.submit()
        await here.until_more()
        here.kill("the node of the solver", here.of_session(first))
        second = await here.worker()
        await here.until_more()
        here.kill("the driver", here.driver())
        await here.submit()
        await here.until_more()
        here.kill("the head, and the driver on it", [*here.driver(), *here.of_session(head)])
        here.kill("its other node", here.of_session(second))
        await here.until(lambda: here.outcome() == "cut off")
        await here.head()
        await here.worker()
        await here.submit()
        await here.until(lambda: here.outcome() == "completed")
        shown: dict[str, Any] = json.loads(await here.shell.run("microagents show tower --runs-dir RUNS --json"))
        here.say(f"the run has {shown['outcome']}: {shown['steps']} steps, {shown['decided']} decisions")
        return shown


def main() -> None:
    """Walk, and compare with an undisturbed run."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        shown = asyncio.run(walk(Path(folder)))
    undisturbed = run_sync(Hanoi(disks=DISKS), models=MODEL.partition("@")[0], runs_dir=None).account
    assert shown["decided"] == shown["steps"] == 2**DISKS - 1, "each decision once"
    same = (shown["decisions_sha256"], shown["ballots_sha256"]) == (
        undisturbed.decisions_sha256,
        undisturbed.ballots_sha256,
    )
    compared = "as undisturbed" if same else "DIFFERENT"
    print(f"decisions and ballots: {compared}; {shown['calls']} calls, {shown['lost_in_flight']} lost at most")
    sys.exit(not same)


if __name__ == "__main__":
    main()
