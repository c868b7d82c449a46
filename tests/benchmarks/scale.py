"""How much more work more lanes do: ``python -m tests.benchmarks.scale``.

Towers side by side, in one process and on a Ray of the run's own, by turns. A rate counts decided steps between the first and the last
commit of a run, so that the start of Ray is left out; the driver's processor time a step has the recorder in it.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import time
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import Struct

from microagents import run
from microagents.journal.messages import Account
from microagents.tasks.hanoi import Hanoi

MODELLED = (1, 2, 4, 8, 16, 1000)


class Turn(Struct, frozen=True, kw_only=True):
    """One run."""

    steps_per_s: float
    driver_us: float
    """Processor time of the driver's process a step, Ray's own threads in it."""
    digest: str


async def turn(where: dict[str, Any], towers: int, disks: int, latency: float, concurrency: int | None) -> Turn:
    """Run the towers on the runtime of these settings."""
    seen: list[tuple[float, int]] = []

    def note(account: Account) -> None:
        if account.decided and (not seen or account.decided > seen[-1][1]):
            seen.append((time.perf_counter(), account.decided))

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
    assert result.outcome == "completed", result.reason
    (first_s, first), (last_s, last) = seen[0], seen[-1]
    rate = (last - first) / (last_s - first_s)
    return Turn(steps_per_s=rate, driver_us=used_s / result.account.steps * 1e6, digest=result.account.decisions_sha256)


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _print_model(lane_steps_per_s: float, driver_us: float) -> None:
    """Print what many lanes do at most: so much as one each on a core of its own, until the driver's core is the limit.

    A driver with little to do takes more time a step, since what it looks for comes in smaller parts; so its least time counts.
    """
    most = 1e6 / driver_us
    rates = [f"{lanes:,}: {min(lanes * lane_steps_per_s, most):,.0f}" for lanes in MODELLED]
    print(
        f"by the model min(lanes x {lane_steps_per_s:,.0f}, 1 s / {driver_us:.0f} us) steps/s with a core a lane: {'; '.join(rates)}"
    )
    print(f"  the driver is the limit from {most / lane_steps_per_s:,.0f} lanes on")


def main() -> None:
    """Print the rates of all sides, and their ratios turn by turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lanes", type=int, action="append", help="numbers of lanes (default: 1 and 2)")
    parser.add_argument("--towers", type=int, default=200, help="inputs of each run (default: %(default)s)")
    parser.add_argument(
        "--latency", type=float, default=0.0, help="median time of a reply, in seconds (default: %(default)s)"
    )
    parser.add_argument("--disks", type=int, default=8, help="size of each tower (default: %(default)s)")
    parser.add_argument(
        "--concurrency",
        type=int,
        help="calls in flight a lane; then --towers are for each lane, too (default: no bound)",
    )
    parser.add_argument("--turns", type=int, default=5, help="(default: %(default)s)")
    parser.add_argument("--no-local", action="store_true", help="leave the one process out")
    options = parser.parse_args()
    lanes = options.lanes or [1, 2]
    sides: list[int | None] = [*([] if options.no_local else [None]), *lanes]
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
        rates, driver = [each.steps_per_s for each in turns[side]], [each.driver_us for each in turns[side]]
        print(
            f"{name:<12} {median(rates):8,.0f} steps/s ({min(rates):,.0f} to {max(rates):,.0f}); driver {median(driver):.0f} us a step"
        )
    for side in sides:
        for other in (None, 1):
            if side != other and other in sides and side is not None:
                ratios = [a.steps_per_s / b.steps_per_s for a, b in zip(turns[side], turns[other], strict=True)]
                against = "one process" if other is None else "1 lane"
                print(f"{side} lanes / {against}: {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    if 1 in sides:
        least_us = min(median(each.driver_us for each in found) for side, found in turns.items() if side is not None)
        _print_model(median(each.steps_per_s for each in turns[1]), least_us)
    if options.concurrency is None:
        print(f"decisions: {'the same on all sides' if len(digests) == 1 else 'DIFFERENT'}")


if __name__ == "__main__":
    main()
