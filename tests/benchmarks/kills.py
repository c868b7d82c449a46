"""Runs that are killed at random moments, and resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct

from microagents.base.errors import InvalidUsage
from microagents.journal.reading import Reader
from tests.benchmarks.harness import sent, until
from tests.cli.commands import OVER, PAPERS

_HARD = "sim:perfect@error=0.05,flag=0.05,hard=0.1,hard_error=0.7,latency=0.003,sigma=1"
_AGENTS = [f"sim:{name}@error=0.1,flag=0.05,latency=0.05,sigma=1" for name in ("perfect", "gpt-4.1-mini", "o3-mini")]
_REASONING = "sim:perfect@alternatives=1,tokens=1,flag=0.05,latency=0.1,sigma=1"
TASKS = {
    "drift": (
        *("drift", "-o", "length=400", "--model", "sim:perfect@error=0.4,flag=0.1,latency=0.003,sigma=1", "-k", "2"),
    ),
    "together": (*("drift", "-o", "length=400", "--model", f"{_HARD},votes_per_request=auto", "-k", "3"),),
    "lead": ("drift", "-o", "length=200", "--model", _HARD, "--strategy", "lead", "-s", "history=4"),
    "ladder": (
        "drift",
        "-o",
        "length=200",
        "--model",
        _HARD,
        *("-k", "5", "-s", "ladder=paraphrase,lookahead,judge", "-s", "p=0.95"),
    ),
    "hanoi": ("hanoi", "-o", "disks=8", "--model", "sim:gpt-4.1-mini@error=0.02,flag=0.05,latency=0.003,sigma=1"),
    "multiplication": (
        *("multiplication", "-o", "digits=5", "--model", "sim:gpt-4.1-mini@flag=0.05,latency=0.1,sigma=1"),
        *("-k", "2"),
    ),
    "relay": (
        *(f"{PAPERS}/relay.py:Relay", "-o", "length=10", "-o", "reach=9"),
        *("--model", "sim:perfect@flag=0.05,latency=0.05,sigma=1"),
    ),
    "aot": ("word-problems", "-o", "depth=5", "--model", _REASONING, "-s", "k=2"),
    "consistency": (
        *(f"{PAPERS}/consistency.py:Consistency", "-o", "sections=5"),
        *[word for agent in _AGENTS for word in ("--model", agent)],
    ),
}
"""Runs with latency: a kill finds calls in flight. They take two to five seconds undisturbed."""
WAIT_S = 120.0


class Killed(Struct, frozen=True, kw_only=True):
    """What came of a run that was killed."""

    kills: int
    decisions_sha256: str
    ballots_sha256: str
    sent: int
    """Calls that reached the seller, over all sittings."""
    calls: int
    """Calls that the journal counts."""
    lost: int
    """Calls that the journal counts as lost at the kills, at most."""
    wasted: int
    not_durable: int
    """Calls that were sent and not durable when the process was killed, added up over the kills."""


def undisturbed(task: str, *, seed: int) -> Killed:
    """The same run without a kill."""
    return kill_and_resume(task, seed=seed, random=Random(0), most=0)


def kill_and_resume(task: str, *, seed: int, random: Random, most: int) -> Killed:
    """Run a task; kill it at random moments, ``most`` times at most; resume it to its end."""
    with tempfile.TemporaryDirectory() as folder:
        runs, purchases = Path(folder, "runs"), Path(folder, "purchases")
        environment = {**os.environ, "MICROAGENTS_PURCHASES": str(purchases), "MICROAGENTS_RUNS_DIR": str(runs)}
        words = [
            sys.executable,
            "-m",
            "microagents",
            "run",
            *TASKS[task],
            *("--run-id", "killed", "--seed", str(seed), "--json"),
        ]
        kills = not_durable = 0
        while (
            out := _sitting(words, environment, purchases, random.uniform(0, 1.3) if kills < most else None)
        ) is None:
            kills += 1
            calls, lost = _booked(runs)
            bought = sent(purchases)
            assert bought <= calls + lost, f"the seller sent {bought}, the journal counts {calls}, and {lost} as lost"
            not_durable += bought - calls - not_durable
        shown: dict[str, Any] = json.loads(out)
        return Killed(
            kills=kills,
            decisions_sha256=shown["decisions_sha256"],
            ballots_sha256=shown["ballots_sha256"],
            sent=sent(purchases),
            calls=shown["calls"],
            lost=shown["lost_in_flight"],
            wasted=shown["wasted_calls"],
            not_durable=not_durable,
        )


def kill(kills: int, seed: int, tasks: Sequence[str]) -> None:
    """Kill runs until so many kills hit, and print what was bought."""
    random = Random(seed)
    done = 0
    while done < kills:
        for task in tasks:
            right = undisturbed(task, seed=done)
            found = kill_and_resume(task, seed=done, random=random, most=min(5, kills - done) or 1)
            assert (found.decisions_sha256, found.ballots_sha256) == (right.decisions_sha256, right.ballots_sha256), (
                found
            )
            assert found.sent <= found.calls + found.lost, found
            done += found.kills
            print(
                f"{task}: killed {found.kills} times; the seller sent {found.sent:,}, the journal counts {found.calls:,} of which "
                f"{found.wasted:,} wasted, and at most {found.lost:,} as lost; {found.not_durable:,} were sent and not durable at the "
                "kills; digests as undisturbed",
                flush=True,
            )
            if done >= kills:
                break
    print(f"{done} kills: every run decided what an undisturbed one decides, and bought no more than it may")


def _sitting(words: list[str], environment: dict[str, str], purchases: Path, kill_after_s: float | None) -> str | None:
    """What the command prints; None where it was killed before, so long after it sent its first call."""
    before = sent(purchases)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        if kill_after_s is not None:
            until(lambda: process.poll() is not None or sent(purchases) > before, "a call is sent", 0.002)
            time.sleep(kill_after_s)
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                return None
        out, err = process.communicate(timeout=WAIT_S)
        assert process.returncode in OVER, err
        return out


def _booked(runs: Path) -> tuple[int, int]:
    """The calls that the journal of a killed run counts, and those that it counts as lost."""
    with suppress(InvalidUsage, OSError), Reader(runs / "killed.sqlite") as reader:
        account = reader.account(is_cut_off=True)
        return account.calls, account.lost_in_flight
    return 0, 0
