"""A gate for leaks: ``python -m tests.benchmarks.soak [--hours H]``.

A simulated provider (`python -m tests.doubles`), a run that has it as its model, and `microagents view` work side by side, each in its
own process, while clients ask for replies and pages. Their memory, open files and threads, and the files that they write, are read all
the time. Each is judged by its slope over the second half: the median of the slopes between all pairs of readings (Theil and Sen), so
that no single reading decides.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import combinations, count
from pathlib import Path
from random import Random
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from msgspec import Struct

from microagents.replies.reply_forms import system_with_instructions
from microagents.tasks.drift import RING, Drift, Onward, Place
from tests.benchmarks.harness import options_of

TEN_MINUTES_S = 600.0
READINGS = 600
READ_EVERY_S = 0.1
"""A shorter soak has fewer readings."""
PAIRS = 20_000
"""Pairs of readings; of more, as many are taken by lot."""
STEPS_BEFORE = 50
"""Steps of the run after which the soak begins."""
READY_S = 90.0
"""Time within which all processes are at work."""
ANSWER_S = 60.0
"""Time within which each request is answered."""
PAUSE_S = 0.02
"""Pause of a client between two requests."""
MB = 1e6
BYTES_A_STEP = "bytes a step"
LIMITS = {
    "memory": 8 * MB,
    "open files": 4,
    "threads": 4,
    "other files": 4 * MB,
    "number of files": 4,
    BYTES_A_STEP: 2_000,
}
"""The most that each may grow over the second half, however long that is; of the journal's bytes a step, the most that they may be."""
LOG_BYTES = 20 * MB
"""Size that the write-ahead log keeps once it has reached it; only what is beyond counts among the other files."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
HOUSE = Path(__file__).parents[2]
TASK = Drift(length=100_000_000)
PAGES = (
    *("/", "/api/runs", "/metrics", "/compare?a=soak&b=soak", "/static/app.js", "/api/run/soak"),
    *("/api/run/soak/series", "/api/run/soak/decision?path=0/step/7", "/api/run/soak/strip?start={steps}"),
)
"""What is asked of the viewer."""


class Readings(Struct, frozen=True, kw_only=True):
    """All readings of one thing."""

    of: str
    """The process; ``runs`` for the files."""
    what: str
    """Key of `LIMITS`."""
    values: list[tuple[float, float]] = []
    """Seconds since the beginning, or steps done, and the value."""

    def __str__(self) -> str:
        most = LIMITS[self.what]
        unit, by = (" MB", MB) if most > MB else ("", 1)
        last = "" if self.what == BYTES_A_STEP else f"{self.values[-1][1] / by:,.1f}{unit} at the end, growth "
        return f"{self.of:<5} {self.what:<15} {last}{self.found / by:,.1f} (at most {most / by:,.0f}){' LEAKS' * self.is_leak}"

    @property
    def found(self) -> float:
        """Growth over the second half by its slope; or bytes a step."""
        half = self.values[len(self.values) // 2 :]
        pairs = [each for each in combinations(half, 2) if each[0][0] < each[1][0]]
        if len(pairs) > PAIRS:
            pairs = Random(0).sample(pairs, PAIRS)
        slope = median([(later - first) / (end - begin) for (begin, first), (end, later) in pairs] or [0.0])
        return slope if self.what == BYTES_A_STEP else slope * (half[-1][0] - half[0][0])

    @property
    def is_leak(self) -> bool:
        """Whether it is more than it may be."""
        return self.found > LIMITS[self.what]


class Soaked(Struct, frozen=True, kw_only=True):
    """A soak."""

    readings: list[Readings]
    done: Counter[str]
    """What was done in all: steps, and answers by their server and status."""

    @property
    def leaks(self) -> list[str]:
        """What grew too much, by process and name."""
        return [f"{each.of}: {each.what}" for each in self.readings if each.is_leak]


class Soak:
    """Processes, clients, and readings.

    Args:
        folder: an empty folder, also for the temporary files of the processes.
        planted: by the name of a process, code that it runs first, such as one that leaks.
    """

    def __init__(self, folder: Path, planted: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._planted = planted or {}
        self._journal = folder / "runs" / "soak.sqlite"
        self._processes: dict[str, Process] = {}
        self._readings: dict[tuple[str, str], Readings] = {}
        self._done = Counter[str]()
        self._is_ready = asyncio.Event()

    async def soak(self, seconds: float) -> Soaked:
        """Let all work for a while, after they have begun."""
        (self._folder / "tmp").mkdir()
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_S))
            )
            model = "sim:perfect@error=0.1,flag=0.02"
            line = await stack.enter_async_context(
                self._started("double", "drift", "--model", model, "--port", "0", "--json")
            )
            served = json.loads(line)
            given = ("-o", f"length={TASK.length}", "--model", f"openai:any@base_url={served['openai']}")
            await stack.enter_async_context(self._started("run", "drift", *given, "-k", "2", "--run-id", "soak"))
            viewer = urlsplit(await stack.enter_async_context(self._started("view", "--no-open")))
            clients = await stack.enter_async_context(asyncio.TaskGroup())
            working = [
                clients.create_task(self._look(session, f"{viewer.scheme}://{viewer.netloc}")),
                clients.create_task(self._ask(session, served["url"])),
            ]
            async with asyncio.timeout(READY_S):
                await self._is_ready.wait()
            self._done = Counter(steps=self._done["steps"])  # before, there was less to look at
            began_s = time.monotonic()
            while (past_s := time.monotonic() - began_s) < seconds:
                await asyncio.to_thread(self._read, past_s)
                await asyncio.sleep(max(READ_EVERY_S, seconds / READINGS))
            for each in working:
                each.cancel()
        return Soaked(readings=list(self._readings.values()), done=self._done)

    @asynccontextmanager
    async def _started(self, command: str, *words: str) -> AsyncIterator[str]:
        """Run a command as long as the block; gives its first line."""
        words = words if command == "double" else (command, *words)
        module = "tests.doubles.__main__" if command == "double" else "microagents.cli"
        code = f"{self._planted.get(command, '')}\nfrom {module} import main; main()"
        here = {"TMPDIR": str(self._folder / "tmp"), "PYTHONPATH": str(HOUSE)}
        environment = {**os.environ, **here, "OPENAI_API_KEY": "none"}
        with self._log_of(command).open("wb") as log:
            process = self._processes[command] = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", code, *words),
                cwd=self._folder,
                env=environment,
                stdout=log if command == "run" else PIPE,
                stderr=log,
            )
        try:
            async with asyncio.timeout(READY_S):
                line = b"" if process.stdout is None else await process.stdout.readline()
            yield line.decode().strip()
        finally:
            if process.returncode is None:
                process.terminate()
            await process.communicate()

    def _log_of(self, command: str) -> Path:
        return self._folder / f"{command}.log"

    # -- clients ----------------------------------------------------------------------------------------------------------------------

    async def _look(self, session: aiohttp.ClientSession, url: str) -> None:
        """Look at one page after the other; some are left before they are there."""
        steps = 0
        for number in count():
            page = PAGES[number % len(PAGES)].format(steps=max(0, steps - 1000))
            if number % 10 == 9:
                await self._leave(url, page)
            else:
                async with session.get(f"{url}{page}") as answer:
                    body = await answer.read()
                    self._done[f"view {answer.status}"] += 1
                if page == "/api/run/soak" and answer.status == 200:
                    steps = self._done["steps"] = json.loads(body)["steps"]
                if steps > STEPS_BEFORE:
                    self._is_ready.set()
            await asyncio.sleep(PAUSE_S)

    async def _leave(self, url: str, page: str) -> None:
        """Break a connection off after its request."""
        at = urlsplit(url)
        _, writer = await asyncio.open_connection(at.hostname, at.port)
        writer.write(f"GET {page} HTTP/1.1\r\nhost: {at.netloc}\r\n\r\n".encode())
        await writer.drain()
        writer.transport.abort()

    async def _ask(self, session: aiohttp.ClientSession, url: str) -> None:
        """Ask for replies on each wire, whole and streamed."""
        for number in count():
            asked = TASK.prompt(Place(number=number % RING))
            system = system_with_instructions(asked.system, Onward, TASK.format)
            said = {"role": "user", "content": asked.user}
            bodies: list[tuple[str, dict[str, Any]]] = [
                ("chat/completions", {"messages": [{"role": "system", "content": system}, said], "n": 1 + number % 3}),
                ("responses", {"instructions": system, "input": [said]}),
                ("messages", {"system": system, "messages": [said], "max_tokens": 1000}),
            ]
            for wire, body in bodies:
                given = {"model": "any", "stream": number % 2 == 1, **body}
                async with session.post(f"{url}/v1/{wire}", json=given) as answer:
                    await answer.read()
                    self._done[f"double {answer.status}"] += 1
                await asyncio.sleep(PAUSE_S)

    # -- readings ---------------------------------------------------------------------------------------------------------------------

    def _read(self, at_s: float) -> None:
        for name, process in self._processes.items():
            if process.returncode is not None:
                said = self._log_of(name).read_text(errors="replace").strip()[-500:]
                raise SystemExit(f"{name} ended with code {process.returncode} after {at_s:.0f} s: {said}")
            at = Path(f"/proc/{process.pid}")
            self._note(name, "memory", at_s, int((at / "statm").read_text().split()[1]) * PAGE_BYTES)
            self._note(name, "open files", at_s, len(os.listdir(at / "fd")))  # noqa: PTH208 - a count
            self._note(name, "threads", at_s, len(os.listdir(at / "task")))  # noqa: PTH208 - likewise
        sizes = _sizes(self._folder)
        journal, log = sizes.pop(self._journal), sizes.pop(Path(f"{self._journal}-wal"), 0)
        self._note("runs", "other files", at_s, sum(sizes.values()) + max(0.0, log - LOG_BYTES))
        self._note("runs", "number of files", at_s, len(sizes))
        self._note("runs", BYTES_A_STEP, self._done["steps"], journal)

    def _note(self, of: str, what: str, at: float, value: float) -> None:
        found = self._readings.setdefault((of, what), Readings(of=of, what=what))
        found.values.append((at, value))


def _sizes(folder: Path) -> dict[Path, int]:
    """Sizes of the files of a folder; those that go meanwhile are left out."""
    found = {}
    for above, _, names in os.walk(folder):  # which goes on where a folder is gone, as `Path.rglob` does not
        for path in [Path(above, name) for name in names]:
            with suppress(OSError):
                found[path] = path.stat().st_size
    return found


def soak(seconds: float, planted: Mapping[str, str] | None = None) -> Soaked:
    """Soak for a while."""
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        return asyncio.run(Soak(Path(folder), planted).soak(seconds))


def main() -> None:
    """Print what was read, and what grew too much."""
    seconds = options_of(__doc__, hours=TEN_MINUTES_S / 3600).hours * 3600
    soaked = soak(seconds)
    print(f"{seconds:.0f} s: " + ", ".join(f"{number:,} {what}" for what, number in sorted(soaked.done.items())))
    for each in soaked.readings:
        print(each)
    sys.exit(bool(soaked.leaks))


if __name__ == "__main__":
    main()
