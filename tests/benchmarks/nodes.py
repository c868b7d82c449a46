"""Runs on three nodes: ``python -m tests.benchmarks.nodes [--turns 5] [--latency 0.5] [--kill]``.

The nodes are raylets on this machine with a CPU each. The simulated model takes half a second, so that the cores are not the limit; if they
do much else, a longer latency helps. Printed is the throughput of three nodes against that of one, by turns; or with ``--kill`` what it
costs that one of three nodes is killed in the middle, against an undisturbed run.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct
from msgspec import json as encoding

from microagents import run
from microagents.journal.messages import Account
from microagents.tasks.hanoi import Hanoi
from tests.runtimes.ray.local_nodes import local_nodes

DISKS = 5


class Ran(Struct, frozen=True, kw_only=True):
    """One run."""

    steps_per_s: float
    """Between the first commit and the last."""
    work_s: float
    """From the first commit to the last."""
    digest: str


async def timed(towers: int, lanes: int, latency_s: float, lose: Any) -> Ran:
    """Run towers on the cluster that this process is connected to. ``lose`` is called in the middle of the run, in a thread."""
    seen: list[tuple[float, int]] = []
    half = asyncio.Event()

    def note(account: Account) -> None:
        if account.decided and (not seen or account.decided > seen[-1][1]):
            seen.append((time.perf_counter(), account.decided))
        if account.decided > towers * (2**DISKS - 1) // 2:
            half.set()

    async def in_the_middle() -> None:
        await half.wait()
        await asyncio.to_thread(lose)

    losing, model = asyncio.create_task(in_the_middle()), f"sim:gpt-4.1-mini@latency={latency_s}"
    with tempfile.TemporaryDirectory() as folder:
        result = await run(
            [Hanoi(disks=DISKS)] * towers, models=model, runs_dir=folder, on_progress=note, runtime="ray", lanes=lanes
        )
    await losing
    assert result.outcome == "completed", result.reason
    (first_s, first), (last_s, last) = seen[0], seen[-1]
    return Ran(
        steps_per_s=(last - first) / (last_s - first_s),
        work_s=last_s - first_s,
        digest=result.account.decisions_sha256,
    )


def side(nodes: int, towers: int, latency_s: float, file: str, *, kills: bool) -> None:
    """Start a cluster, run, and write what came of it. In a process of its own: Ray connects only once."""
    with local_nodes(nodes) as cluster:

        def lose() -> None:
            if kills:
                cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)

        Path(file).write_bytes(encoding.encode(asyncio.run(timed(towers * nodes, nodes, latency_s, lose))))


def ran(nodes: int, towers: int, latency_s: float, *, kills: bool = False) -> Ran:
    """What came of a run on so many nodes."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder, "ran.json"))
        words = ["--nodes", str(nodes), "--towers", str(towers), "--latency", str(latency_s), "--write", file]
        subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.nodes", *words, *["--kill"] * kills],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return encoding.decode(Path(file).read_bytes(), type=Ran)


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--towers", type=int, default=150, help="inputs a node (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--latency", type=float, default=0.5, help="seconds of a reply (default: %(default)s)")
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--write", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        side(options.nodes, options.towers, options.latency, options.write, kills=options.kill)
        return
    nodes, work = options.nodes, (options.towers, options.latency)
    if options.kill:
        pairs = []
        for _ in range(options.turns):
            pairs.append((ran(nodes, *work), ran(nodes, *work, kills=True)))
            print(
                f"{pairs[-1][0].work_s:.1f} s undisturbed, {pairs[-1][1].work_s:.1f} s with a node killed", flush=True
            )
        assert len({each.digest for pair in pairs for each in pair}) == 1
        more = [killed.work_s - whole.work_s for whole, killed in pairs]
        whole_s = median(whole.work_s for whole, _ in pairs)
        print(
            f"undisturbed {whole_s:.1f} s; one of {nodes} nodes killed in the middle, whose share is {whole_s / 2 / nodes:.1f} s, costs"
        )
        print(f"  {median(more):.1f} s more ({min(more):.1f} to {max(more):.1f}); same digests")
        return
    turns = []
    for _ in range(options.turns):
        turns.append((ran(1, *work), ran(nodes, *work)))
        print(
            f"{turns[-1][0].steps_per_s:,.0f} steps/s on one node, {turns[-1][1].steps_per_s:,.0f} on {nodes}",
            flush=True,
        )
    ratios = [many.steps_per_s / one.steps_per_s for one, many in turns]
    alone, together = (median(turn[number].steps_per_s for turn in turns) for number in (0, 1))
    print(f"one node {alone:,.0f} steps/s, {nodes} nodes {together:,.0f} steps/s")
    for sides, times in (("one", 1), (f"{nodes} times one", nodes)):
        low, middle, high = (each / times for each in (min(ratios), median(ratios), max(ratios)))
        print(f"{nodes} nodes / {sides}: {middle:.2f} ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()
