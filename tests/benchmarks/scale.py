"""How much more work more lanes do: ``python -m tests.benchmarks.scale``.

Towers side by side, in one process and on a Ray of the run's own, by turns. A rate counts decided steps between the first and the last
commit of a run, so that the start of Ray is left out; the driver's processor time a step has the keeper in it. ``--towers 1`` is a chain.
With one lane among the sides a simulation follows to 1,000 lanes, each on a core of its own, by what was measured: the rate of a lane, and
what a step costs the driver, the thread of the journal, and the disk, of which the first to be busy is the limit.
"""

from __future__ import annotations

import asyncio
import os
import resource
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import Struct

from microagents import run
from microagents.journal.messages import Account
from microagents.tasks.hanoi import Hanoi
from tests.benchmarks.harness import options_of, spread

SIMULATED = (1, 2, 4, 8, 16, 1000)


class Turn(Struct, frozen=True, kw_only=True):
    """One run."""

    steps_per_s: float
    driver_us: float
    """Processor time of the driver's process a step, Ray's own threads in it."""
    journal_us: float
    """The part of the thread that writes the journal."""
    disk_bytes: float
    """Size of the journal a step."""
    digest: str


async def turn(where: dict[str, Any], towers: int, disks: int, latency: float, concurrency: int | None) -> Turn:
    """Run the towers on the runtime of these settings."""
    seen: list[tuple[float, int]] = []
    journal_s = 0.0

    def note(account: Account) -> None:
        if account.decided and (not seen or account.decided > seen[-1][1]):
            seen.append((time.perf_counter(), account.decided))
        for thread in threading.enumerate():
            if thread.name == "journal" and thread.ident is not None:
                nonlocal journal_s
                journal_s = time.clock_gettime(time.pthread_getcpuclockid(thread.ident))

    model = "sim:gpt-4.1-mini" + (f"@latency={latency}" if latency else "")
    with TemporaryDirectory() as folder:
        before_s = _processor_s()
        result = await run(
            [Hanoi(disks=disks)] * towers,
            models=model,
            runs_dir=folder,
            on_progress=note,
            concurrency=concurrency,
            **where,
        )
        used_s = _processor_s() - before_s
        size = _journal_bytes(Path(folder))
    assert result.outcome == "completed", result.reason
    (first_s, first), (last_s, last) = seen[0], seen[-1]
    steps = result.account.steps
    return Turn(
        steps_per_s=(last - first) / (last_s - first_s),
        driver_us=used_s / steps * 1e6,
        journal_us=journal_s / steps * 1e6,
        disk_bytes=size / steps,
        digest=result.account.decisions_sha256,
    )


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _journal_bytes(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.glob("*.sqlite*"))


def _disk_bytes_per_s() -> float:
    """Bytes a second that are appended and synced a megabyte at a time."""
    with TemporaryDirectory() as folder, Path(folder, "written").open("wb", buffering=0) as file:
        began_s = time.perf_counter()
        for _ in range(50):
            file.write(bytes(2**20))
            os.fsync(file.fileno())
        return 50 * 2**20 / (time.perf_counter() - began_s)


def _print_simulation(lane_steps_per_s: float, turns: Sequence[Turn]) -> None:
    """Print what many lanes do at most, and which part is the limit.

    A driver with little to do takes more time a step, since what it looks for comes in smaller parts; so its least time counts.
    """
    limits: Mapping[str, float] = {
        "driver": 1e6 / min(each.driver_us for each in turns),
        "journal's thread": 1e6 / min(each.journal_us for each in turns),
        "disk": _disk_bytes_per_s() / median(each.disk_bytes for each in turns),
    }
    limit = min(limits, key=limits.__getitem__)
    rates = [f"{lanes:,}: {min(lanes * lane_steps_per_s, limits[limit]):,.0f}" for lanes in SIMULATED]
    print(f"simulated steps/s by lanes: {'; '.join(rates)}")
    print(f"  limits: {'; '.join(f'{name} {most:,.0f}' for name, most in limits.items())} steps/s")
    print(f"  the {limit} is the first, from {limits[limit] / lane_steps_per_s:,.0f} lanes on")


def main() -> None:
    """Print the rates of all sides, and their ratios turn by turn."""
    options = options_of(
        __doc__, lanes=[1, 2], towers=200, latency=0.0, disks=8, concurrency=int, turns=5, no_local=False
    )
    sides: list[int | None] = [*([] if options.no_local else [None]), *options.lanes]
    turns: dict[int | None, list[Turn]] = {side: [] for side in sides}
    for _ in range(options.turns):
        for side in sides:
            most = None if options.concurrency is None else options.concurrency * (side or 1)
            towers = options.towers * (1 if most is None else side or 1)
            where = {} if side is None else {"runtime": "ray", "lanes": side}
            turns[side].append(asyncio.run(turn(where, towers, options.disks, options.latency, most)))
    digests = {each.digest for found in turns.values() for each in found}
    for side in sides:
        name = "one process" if side is None else f"{side} lanes" if side > 1 else "1 lane"
        rates, driver = [each.steps_per_s for each in turns[side]], median(each.driver_us for each in turns[side])
        print(
            f"{name:<12} {median(rates):8,.0f} steps/s ({min(rates):,.0f} to {max(rates):,.0f}); driver {driver:.0f} us a step, "
            f"{median(rates) * driver / 1e6:.0%} of a core"
        )
    for side in sides:
        for other in (None, 1):
            if side != other and other in sides and side is not None:
                ratios = [a.steps_per_s / b.steps_per_s for a, b in zip(turns[side], turns[other], strict=True)]
                against = "one process" if other is None else "1 lane"
                print(f"{side} lanes / {against}: {spread(ratios)}, efficiency {median(ratios) / side:.2f}")
    if 1 in sides:
        on_lanes = [each for side, found in turns.items() if side is not None for each in found]
        _print_simulation(median(each.steps_per_s for each in turns[1]), on_lanes)
    if options.concurrency is None:
        print(f"decisions: {'the same on all sides' if len(digests) == 1 else 'DIFFERENT'}")


if __name__ == "__main__":
    main()
