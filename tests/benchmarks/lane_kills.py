"""Runs on lanes whose actors, nodes and driver are killed at random: ``python -m tests.benchmarks.lane_kills [--kills 200]``.

The cluster has three nodes, raylets on this machine. A run has many inputs on three lanes: every other one with an actor for each lane, the
rest with its solvers in actors of their own. Each ends with the digests of an undisturbed run, and leaves no actor; the seller sent no more
calls than the journal counts, those that it counts as lost included. With ``--only driver`` the driver alone is killed, and resumed at once
while its lanes still live.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

from ray.cluster_utils import Cluster

from microagents.models.simulation.simulated import Purchases
from tests.benchmarks.harness import options_of, sent, until
from tests.cli.commands import OVER
from tests.runtimes.ray.local_nodes import add_node, local_nodes
from tests.runtimes.ray.ray_processes import is_actor, kill, read_bytes

LENGTHS = (30, 1, 12, 45, 3, 18, 25, 9, 40, 22, 35, 16)
MODEL = "sim:perfect@error=0.4,flag=0.1,latency=0.05"
"""It errs so often that one wrong count would lead a walk elsewhere."""
OWN_SOLVERS = ("--deploy", "solver.colocate=solvers")
KINDS = {"actor": 0.8, "driver": 0.1, "node": 0.1}
MOST_OF_A_RUN = 4
"""Kills of one run. A lane is given up after more than five deaths in ten minutes, and a lost node may take two attempts."""
PAUSE_S = (0.3, 2.5)
BOUGHT = 150
"""Calls since a driver started before it may be killed, more than lanes of the last one had in hand: a driver that starts loses none."""
WAIT_S = 120.0
MARK = "MARK_OF_LANE_KILLS"
SOON_MISSED = {
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "4",
}


class Hunt:
    """A cluster of three nodes, and what is killed on it.

    Args:
        cluster: the cluster.
        seed: seed of what is killed, and when.
        purchases: where the seller notes its calls.
        only: the kinds that are killed.
    """

    def __init__(self, cluster: Cluster, seed: int, purchases: Path, only: Sequence[str]) -> None:
        self._cluster = cluster
        self._kinds = {kind: KINDS[kind] for kind in only}
        self._purchases = purchases
        self._random = Random(seed)
        self.kills: Counter[str] = Counter()

    def run(self, folder: str, number: int, most: int) -> dict[str, Any]:
        """Run once, with so many kills at most; what its last driver prints."""
        words = [
            sys.executable,
            "-m",
            "microagents",
            *_words(folder, number),
            "--runtime",
            "ray",
            "--address",
            self._cluster.address,
        ]
        words += ["--insecure", "--lanes", "3", *(OWN_SOLVERS if number % 2 else ())]
        driver, left, bought = _started(words, folder), most, 0
        code: int | None = None
        try:
            while code is None:
                try:
                    code = driver.wait(self._random.uniform(*PAUSE_S) if left else WAIT_S)
                    continue
                except subprocess.TimeoutExpired:
                    assert left, "the run does not end"
                kind = self._random.choices(list(self._kinds), list(self._kinds.values()))[0]
                if not (there := self._actors()):  # the run has not begun
                    continue
                if kind == "driver":
                    if sent(self._purchases) < bought + BOUGHT:
                        continue
                    driver.kill()
                    driver.wait()
                    bought = sent(self._purchases)
                    driver = _started(words, folder)
                elif kind == "actor":
                    kill(self._random.choice(there))
                else:
                    self._kill_node()
                self.kills[kind] += 1
                left -= 1
        finally:
            driver.kill()
        assert code in OVER, Path(folder, "err").read_text()[-2000:]
        until(lambda: not self._actors(), "the actors end", 0.1)
        shown: dict[str, Any] = json.loads(Path(folder, "out").read_text())
        return shown

    def _kill_node(self) -> None:
        nodes = sorted(self._cluster.worker_nodes, key=lambda node: node.node_id)
        self._cluster.remove_node(self._random.choice(nodes), allow_graceful=False)
        add_node(self._cluster)

    def _actors(self) -> list[int]:
        named = [
            each for each in Path("/proc").iterdir() if each.name.isdigit() and is_actor(read_bytes(each / "cmdline"))
        ]
        return sorted(
            int(each.name)
            for each in named
            if f"{MARK}={os.environ[MARK]}".encode() in read_bytes(each / "environ").split(b"\0")
        )


def _words(folder: str, number: int) -> list[str]:
    """A run: its number is its seed."""
    model = ["--model", MODEL, "-k", "2", "--seed", str(number)]
    return [
        "run",
        "drift",
        "--inputs",
        f"{folder}/walks.jsonl",
        *model,
        "--runs-dir",
        folder,
        "--run-id",
        f"r{number}",
        "--json",
    ]


def _started(words: list[str], folder: str) -> subprocess.Popen[bytes]:
    with Path(folder, "out").open("wb") as out, Path(folder, "err").open("ab") as err:
        return subprocess.Popen(words, stdout=out, stderr=err)


def hunt(kills: int, seed: int, only: Sequence[str]) -> Counter[str]:
    """Run until so many kills hit; what was killed."""
    with tempfile.TemporaryDirectory() as shop:
        purchases = Path(shop, "purchases")
        # All processes of the cluster inherit these.
        os.environ.update({**SOON_MISSED, MARK: str(uuid4()), Purchases.VARIABLE: str(purchases)})
        with local_nodes(3) as cluster:
            hunting, number = Hunt(cluster, seed, purchases, only), seed
            while (left := kills - hunting.kills.total()) > 0:
                purchases.write_bytes(b"")
                _check(hunting, number, min(left, MOST_OF_A_RUN), purchases)
                number += 1
            return hunting.kills


def _check(hunting: Hunt, number: int, most: int, purchases: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "walks.jsonl").write_text("".join(f'{{"length": {length}}}\n' for length in LENGTHS))
        words = [sys.executable, "-m", "microagents", *_words(folder, number), "--no-journal"]
        unsold = {name: value for name, value in os.environ.items() if name != Purchases.VARIABLE}
        undisturbed = subprocess.run(words, check=False, capture_output=True, text=True, env=unsold)
        assert undisturbed.returncode in OVER, undisturbed.stderr
        right = json.loads(undisturbed.stdout)
        found = hunting.run(folder, number, most)
        for field in ("outcome", "decisions_sha256", "ballots_sha256", "result"):
            assert found[field] == right[field], (number, field, found[field], right[field])
        assert not [each.name for each in Path(folder).iterdir() if each.suffix not in ("", ".jsonl", ".sqlite")]
    bought, counted, lost = sent(purchases), found["calls"], found["lost_in_flight"]
    assert bought <= counted + lost, f"run {number}: the seller sent {bought}, {counted} are counted, {lost} as lost"
    print(
        f"run {number}: {dict(hunting.kills)} so far; digests as undisturbed; sent {bought:,}, the journal counts {counted:,} and "
        f"{lost:,} as lost",
        flush=True,
    )


def main() -> None:
    """Print what was killed."""
    options = options_of(__doc__, kills=200, seed=0, only=KINDS)
    began_s = time.monotonic()
    kills = hunt(options.kills, options.seed, options.only)
    killed = ", ".join(f"{number} {kind}s" for kind, number in sorted(kills.items()))
    print(
        f"{kills.total()} kills ({killed}) in {time.monotonic() - began_s:.0f} s: every run decided what an undisturbed one decides"
    )


if __name__ == "__main__":
    main()
