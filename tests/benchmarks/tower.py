"""A whole tower, and many: ``python -m tests.benchmarks.tower`` (20 disks, about 3 minutes) and ``... --disks 14 --seeds 20``.

Every run is compared with what the laws say of it: votes a step beyond k, and the chance that no decision is wrong. With one seed, memory
is read after 10,000 steps and at the end. ``--reading last`` reads replies as MAKER's flagging parser does.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from microagents import run
from microagents.elections.laws import expected_votes
from microagents.journal.messages import Account
from microagents.tasks.hanoi import Hanoi
from tests.benchmarks.harness import options_of
from tests.papers.maker_equations import p_full

MODEL, P = "sim:gpt-4.1-mini", 1 - 0.0022
"""The profile, and its share of right replies at temperature 0.1."""
EARLY = 10_000


def resident_mb() -> float:
    """Memory of this process that is in RAM."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def main() -> None:
    """Print a line a run, then the comparison."""
    options = options_of(__doc__, disks=20, seeds=1, k=3, reading="last")
    early_mb: list[float] = []

    def watch(account: Account) -> None:
        if account.steps >= EARLY and not early_mb:
            early_mb.append(resident_mb())

    predicted, right, votes, elections = p_full(P, options.k, 2**options.disks - 1), 0, 0, 0
    for seed in range(options.seeds):
        task, settings = Hanoi(disks=options.disks), {"k": options.k, "seed": seed, "reading": options.reading}
        result = asyncio.run(run(task, models=MODEL, on_progress=watch, **settings))
        account = result.account
        right += account.errors == 0
        votes, elections = votes + account.votes, elections + account.decided
        print(
            f"seed {seed:>2}: {result.outcome}, {account.decided:,} decisions, {account.errors} wrong, "
            f"{account.votes_per_step:.5f} votes a step, {account.calls:,} calls, {result.wall_s:.1f} s, "
            f"{result.wall_s / account.steps * 1e6:.0f} us a step"
        )
    print(
        f"runs without a wrong decision: {right} of {options.seeds}; the law for a race of two says {predicted:.5f} each"
    )
    law = expected_votes(P, options.k) - options.k
    excess = votes / elections - options.k
    print(f"votes a step beyond k = {options.k}: {excess:.5f}; the law says {law:.5f}; ratio {excess / law:.3f}")
    if early_mb:
        print(f"memory: {early_mb[0]:.1f} MB after {EARLY:,} steps, {resident_mb():.1f} MB at the end")


if __name__ == "__main__":
    main()
