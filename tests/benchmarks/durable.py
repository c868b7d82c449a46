"""What a journal costs and what it gives: ``python -m tests.benchmarks.durable``.

The same chain with and without a journal, each run in a process of its own and by turns; then what the file takes, how long a finished
run takes to answer, and to be shown. ``--kills N`` instead kills runs of all systems (``--task`` names some) N times at random
moments, and resumes each to its end: what was decided must be what an undisturbed run decides; what was bought is counted at the seller.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from microagents import run_sync
from microagents.journal.opening import log_bytes
from tests.benchmarks.first_steps import FirstSteps
from tests.benchmarks.harness import most_mb, options_of, spread
from tests.benchmarks.kills import TASKS, kill

EARLY_STEPS = 10_000


def one_run(folder: str, steps: int) -> None:
    """A run in this process; prints its time, and the memory after the first steps and at the end."""
    early: list[float] = []

    def watch(account: Any) -> None:
        if account.steps >= EARLY_STEPS and not early:
            early.append(most_mb())

    started = time.perf_counter()
    result = run_sync(
        FirstSteps(disks=20, length=steps),
        models="sim:gpt-4.1-mini",
        runs_dir=folder or None,
        run_id="bench",
        on_progress=watch,
    )
    took = time.perf_counter() - started
    assert (result.outcome, result.account.errors) == ("completed", 0)
    print(json.dumps({"took_s": took, "early_mb": early[0] if early else most_mb(), "end_mb": most_mb()}))


def measured(folder: str, steps: int) -> dict[str, float]:
    """A run in a process of its own."""
    words = [sys.executable, "-m", "tests.benchmarks.durable", "--one", folder, "--steps", str(steps)]
    shown: dict[str, float] = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return shown


def timed(*words: str) -> float:
    """How long a command takes."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "microagents", *words], check=True, capture_output=True)
    return time.perf_counter() - started


def compare(steps: int, turns: int) -> None:
    """Print both sides of each turn, and what the file takes."""
    ratios = []
    for turn in range(turns):
        with tempfile.TemporaryDirectory() as folder:
            runs = str(Path(folder, "runs"))
            without = measured("", steps)
            kept = measured(runs, steps)
            ratios.append(kept["took_s"] / without["took_s"])
            journal = Path(runs, "bench.sqlite")
            size = journal.stat().st_size + log_bytes(journal)
            print(
                f"turn {turn}: without a journal {without['took_s']:.1f} s, with one {kept['took_s']:.1f} s, ratio {ratios[-1]:.3f}"
            )
            print(
                f"  on disk {size / steps:.1f} bytes a step; memory {kept['early_mb']:.1f} MB after {EARLY_STEPS:,} steps, ",
                end="",
            )
            print(f"{kept['end_mb']:.1f} MB at the end")
            resumed, shown = [timed(word, "bench", "--runs-dir", runs, "--json") for word in ("resume", "show")]
            print(f"  resuming the finished run {resumed:.2f} s, show {shown:.2f} s, ", end="")
            print(f"show --verify {timed('show', 'bench', '--verify', '--runs-dir', runs):.1f} s")
    print(f"{steps:,} steps, ratio of times {spread(ratios, '.3f')}")


def main() -> None:
    """Print what is measured."""
    options = options_of(__doc__, steps=1_048_575, turns=3, kills=int, task=TASKS, seed=0, one=str)
    if options.one is not None:
        one_run(options.one, options.steps)
    elif options.kills is not None:
        kill(options.kills, options.seed, options.task)
    else:
        compare(options.steps, options.turns)


if __name__ == "__main__":
    main()
