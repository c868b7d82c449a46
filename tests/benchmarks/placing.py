"""How fast one chain is on Ray by where its roles are: ``python -m tests.benchmarks.placing [--turns 3]``.

In one process; on Ray as by default; with all roles in one actor by ``colocate``; and with an actor a role (``--spread``), by turns, with a
model that answers at once or after a millisecond. Then the time from the command to the first decision, on a Ray that is there already.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import ray

from microagents import InvalidUsage
from microagents.runs.inspection.runs import inspect_run
from tests.benchmarks.scale import Turn, turn

TOGETHER = {role: {"colocate": "all"} for role in ("makerconductor", "voter", "solver", "redflagger")}
SIDES: dict[str, dict[str, Any]] = {
    "one process": {},
    "Ray, as by default": {"runtime": "ray"},
    "Ray, colocated": {"runtime": "ray", "deploy": TOGETHER},
    "Ray, an actor a role": {"runtime": "ray", "spread": True},
}


def first_decision_s(folder: str, run_id: str) -> float:
    """Seconds from the start of the command until its journal has a decision."""
    words = ("run", "hanoi", "-o", "disks=8", "--runtime", "ray", "--runs-dir", folder, "--run-id", run_id)
    address = {"RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    began_s = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "microagents", *words],
        env=os.environ | address,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as program:
        while program.poll() is None:
            with suppress(InvalidUsage):  # it has not begun
                if inspect_run(Path(folder), run_id).account.decided:
                    break
            time.sleep(0.05)
        found_s = time.monotonic() - began_s
        program.wait()
    return found_s


def main() -> None:
    """Print the rates of all sides, the ratios turn by turn, and the times to the first decision."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5, help="(default: %(default)s)")
    parser.add_argument("--disks", type=int, default=11, help="size of the tower (default: %(default)s)")
    options = parser.parse_args()
    ray.init("local", num_cpus=2, log_to_driver=False, logging_level=logging.ERROR)
    digests = set[str]()
    for latency in (0.0, 0.001):
        turns: dict[str, list[Turn]] = {side: [] for side in SIDES}
        for _ in range(options.turns):
            for side, where in SIDES.items():
                turns[side].append(asyncio.run(turn(where, 1, options.disks, latency, None)))
        digests |= {each.digest for found in turns.values() for each in found}
        print(f"a call takes {1000 * latency:g} ms")
        for side, found in turns.items():
            rates = [each.steps_per_s for each in found]
            ratios = [a.steps_per_s / b.steps_per_s for a, b in zip(found, turns["one process"], strict=True)]
            print(
                f"  {side:<21}{median(rates):7,.0f} steps/s ({min(rates):,.0f} to {max(rates):,.0f}), {median(ratios):.2f} of one process"
            )
        ratios = [
            a.steps_per_s / b.steps_per_s
            for a, b in zip(turns["Ray, as by default"], turns["Ray, colocated"], strict=True)
        ]
        print(f"  default / colocated: {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    with TemporaryDirectory() as folder:
        firsts = [first_decision_s(folder, f"r{number}") for number in range(options.turns)]
    print(f"from the command to the first decision: {median(firsts):.1f} s ({min(firsts):.1f} to {max(firsts):.1f})")
    print(f"decisions: {'the same on all sides' if len(digests) == 1 else 'DIFFERENT'}")
    ray.shutdown()


if __name__ == "__main__":
    main()
