"""Batches of two providers, and background windows, over real HTTP: ``python -m tests.benchmarks.batches``.

``kills`` ends runs at every point of a batch's life, and resumes them: decisions and ballots are those of single calls, and no line is
bought twice but those that the run names and counts. ``rounds`` fills a large table, and counts its rounds, its cost and its memory.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec

import microagents
from microagents.models.http import batch_client
from tests.benchmarks.harness import most_mb, parser_of
from tests.doubles.simulated.batches import BatchFaults
from tests.doubles.simulated.server import Endpoint, serving
from tests.models.batch_rows import WIRES, note_keys, spec_at, table

ROWS, MODEL = 12, "sim:perfect@error=0.1,flag=0.05"
_OF_FILES = ("create", "made", "list", "poll", "ended", "results")
POINTS: Mapping[str, Sequence[str]] = {
    "chat": ("upload", *_OF_FILES),
    "responses": ("upload", *_OF_FILES),
    "messages": _OF_FILES,
    "windows": ("create", "made", "poll", "ended", "delete"),
}
"""Points of a batch's life, as the desk meets them: at each it kills before it answers."""
FAULTS: Sequence[Mapping[str, Any]] = (
    {},
    {"lag_s": 0.7, "made_500": 0.5},
    {"unseen_s": 0.2, "flicker": 0.2},
    {"failed": 0.1, "expired": 0.1, "doubled": 0.2},
)
SHORT = {"MOMENT_S": 0.1, "POLL_S": (0.02, 0.1), "LOOK_S": 0.1, "LOST_S": 2.0, "HOLD_S": 1.0}
MOST_KILLS, MOST_STOPS = 3, 10
WAIT_S = 120.0
MOST_ROUNDS, LEAST_SHARE, MOST_OF_COST = 5, 0.99, 0.52
LARGER = 2
"""Rows of the second table of `rounds`, by those of the first one."""
MOST_KB = 5.0
"""Most kB by which a further row may enlarge the memory of a run."""
FLAT_FROM = 4000
"""Rows from which on memory must be flat: with fewer, one batch has all calls."""


async def filled(url: str, folder: Path, wire: str, rows: int, **given: Any) -> microagents.Result[Any]:
    """Fill a table in batches."""
    note_keys(folder / "keys")
    options = {"models": spec_at(wire, url), "run_id": "rows", "runs_dir": folder / "runs", "batch": WIRES[wire][2]}
    return await microagents.run(table(rows), **{**options, **given})


async def sitting(wire: str, url: str, folder: Path, rows: int) -> int:
    """Do one sitting of a run in a process of its own; prints its account, and its most memory."""
    if rows == ROWS:
        for name, value in SHORT.items():
            setattr(batch_client, name, value)
        result = await filled(url, folder, wire, rows, k=2)
    else:
        result = await filled(url, folder, wire, rows, k=3, batch_then="single")
    shown = result.as_json() | {"most_mb": most_mb()}
    print(msgspec.json.encode(shown, enc_hook=str).decode())
    return 0 if result.outcome == "completed" else 1


class Killer:
    """Kills the process of a run when its provider comes to a point of a batch's life."""

    def __init__(self, random: Random, points: Sequence[str]) -> None:
        self._random, self._points = random, points
        self.process: asyncio.subprocess.Process | None = None
        self.kills = Counter[str]()
        self._point, self._after = "", 0

    def aim(self) -> None:
        """Choose the next point."""
        self._point, self._after = self._random.choice(self._points), self._random.choice((0, 0, 1, 3))

    async def run(self, *words: str, within_s: float | None = WAIT_S) -> tuple[int | None, str]:
        """Do a sitting; returns its exit code and what it prints."""
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.benchmarks.batches", "--sitting", *words),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(within_s):
            out, error = await self.process.communicate()
        return self.process.returncode, (out or error).decode()

    def note(self, event: str) -> None:
        """Take an event of the provider."""
        if event != self._point or self.process is None:
            return
        self._after -= 1
        if self._after < 0:
            self.kills[event] += 1
            self._point = ""
            os.kill(self.process.pid, signal.SIGKILL)


async def kill_and_resume(seed: int, expected: tuple[str, str]) -> tuple[Counter[str], str]:
    """Kill one run up to `MOST_KILLS` times, resume it to its end, and check it; returns the kills and a line about it."""
    random = Random(seed)
    wire, faults = random.choice(list(WIRES)), random.choice(FAULTS)
    killer = Killer(random, POINTS[wire])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "keys").touch()
        asked = BatchFaults(**{"late_s": 0.2, "poll_s": 0.05, "seed": seed, **faults})
        endpoint = Endpoint(model=MODEL, task=table(1)[0], batches=asked, keys=folder / "keys")
        async with serving(endpoint) as served:
            served.desk.on_event = killer.note
            ended: int | None = -signal.SIGKILL
            out = ""
            for _ in range(MOST_KILLS):
                if ended == -signal.SIGKILL:
                    killer.aim()
                    ended, out = await killer.run(wire, served.url, name, str(ROWS))
            for _ in range(
                MOST_STOPS
            ):  # a provider that answers half of the creates by HTTP 500 stops a run now and then
                if ended == -signal.SIGKILL or "resume once the provider answers" in out:
                    ended, out = await killer.run(wire, served.url, name, str(ROWS))
            await served.desk.answer_all()
        assert ended == 0, (seed, wire, faults, out[-2000:])
        shown = json.loads(out)
    assert (shown["decisions_sha256"], shown["ballots_sha256"]) == expected, (seed, wire, faults, "other decisions")
    twice = sum(count - 1 for count in served.desk.bought.values())
    sums = shown["batches"]
    assert twice <= sums["lost_lines"], (seed, wire, faults, twice, sums)
    assert not sums["open"], (seed, sums)
    assert shown["bound_usd"] >= shown["cost_usd"]
    killed = ", ".join(killer.kills.elements()) or "nothing"
    return killer.kills, f"seed {seed}, {wire}: killed at {killed}; {twice} bought twice, named {sums['lost_lines']}"


async def kills(options: Any) -> None:
    """Kill runs until so many kills hit."""
    with tempfile.TemporaryDirectory() as name:
        async with serving(Endpoint(model=MODEL, task=table(1)[0])) as served:
            models, runs_dir = spec_at("responses", served.url), Path(name)
            single = await microagents.run(table(ROWS), models=models, k=2, run_id="rows", runs_dir=runs_dir)
    expected, done, lines = (single.account.decisions_sha256, single.account.ballots_sha256), Counter[str](), []
    seed = options.seed
    while done.total() < options.kills:
        found, line = await kill_and_resume(seed, expected)
        done.update(found)
        lines.append(line)
        print(line, flush=True)
        seed += 1
    print(
        f"{done.total()} kills at {dict(done)}: decisions and ballots as by single calls, nothing bought twice that is not named"
    )


async def rounds(options: Any) -> None:
    """Fill a large table at k = 3 with single replies right in .9, and check its rounds, its cost and its memory."""
    rows, found_mb = options.rows, list[float]()
    for each in (max(1, rows // LARGER), rows):
        found_mb.append(await table_in_rounds(each))
    print(f"memory {found_mb[0]:.0f} MB for {rows // LARGER:,} rows, {found_mb[1]:.0f} MB for {rows:,}")
    if rows // LARGER >= FLAT_FROM:
        assert found_mb[1] - found_mb[0] <= MOST_KB * (rows - rows // LARGER) / 1000


async def table_in_rounds(rows: int) -> float:
    """Fill a table in a process of its own; returns the most memory of that in MB."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "keys").touch()
        faults = BatchFaults(poll_s=0.5)
        endpoint = Endpoint(model="sim:perfect@error=0.1", task=table(1)[0], batches=faults, keys=folder / "keys")
        async with serving(endpoint) as served:
            began_s = time.monotonic()
            code, out = await Killer(Random(0), ()).run("responses", served.url, name, str(rows), within_s=None)
            took_s = time.monotonic() - began_s
    assert code == 0, out[-2000:]
    shown, late = json.loads(out), served.desk.rows_singly | served.desk.rows_after(MOST_ROUNDS)
    share, cost_usd = 1 - len(late) / rows, shown["cost_usd"]
    of_cost = cost_usd / (cost_usd + shown["batches"]["saved_usd"])
    lines = [len(each.lines) for each in served.desk.made.values()]
    print(
        f"{rows:,} rows, {shown['calls']:,} calls, {len(lines)} batches of {min(lines)} to {max(lines)} lines in {took_s:.0f} s"
    )
    print(f"{share:.2%} of rows decided within {MOST_ROUNDS} rounds; {of_cost:.3f} of the cost of single calls")
    assert share >= LEAST_SHARE
    assert of_cost <= MOST_OF_COST
    return float(shown["most_mb"])


PARTS: Mapping[str, Callable[[Any], Awaitable[None]]] = {"kills": kills, "rounds": rounds}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the parts, or do one sitting."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["--sitting"]:
        wire, url, folder, rows = given[1:]
        sys.exit(asyncio.run(sitting(wire, url, Path(folder), int(rows))))
    options = parser_of(__doc__, part=PARTS, kills=200, seed=0, rows=10_000).parse_args(arguments)
    for part in options.part:
        print(f"-- {part}")
        asyncio.run(_measured(PARTS[part], options))


async def _measured(part: Callable[[Any], Awaitable[None]], options: Any) -> None:
    await part(options)


if __name__ == "__main__":
    main()
