"""The promises under faults: ``python -m tests.benchmarks.faults``.

Each seed runs a chain, five of them, a problem that is cut up, or a document, in virtual time behind a link that delays
batches, kills the process at random moments (for real: each sitting is a process of its own), and resumes the run from
its journal. What it promises is then checked. A seed that fails is printed, and ``--seed N`` replays it alone.
"""

from __future__ import annotations

import os
import sys
import tempfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from microagents import Result, run
from microagents.journal import writer
from microagents.journal.messages import Account
from microagents.journal.reading import Reader
from microagents.runs.driver import execute as driving
from microagents.runtimes.virtual import run_virtual
from microagents.tasks.drift import Drift
from microagents.tasks.multiplication import Multiplication
from tests.benchmarks.harness import checked, options_of, sent
from tests.runtimes.delayed import DelayedRuntime, Faults
from tests.systems.documents.lines import Lines

TASKS = (
    Drift(length=25),
    [Drift(length=length) for length in (6, 1, 9, 3, 6)],
    Multiplication(digits=4),
    Lines(n=3, sections=2),
)
"""One walk, five side by side, a problem that is cut up, or a document that is split."""
MODEL = "sim:perfect@error=0.4,flag=0.1,latency=1.0,sigma=0.7"
AGENTS = tuple(
    f"sim:{name}@error=0.25,flag=0.1,latency=1.0,sigma=0.7" for name in ("perfect", "gpt-4.1-mini", "o3-mini")
)
COMMIT_S = 0.2
"""Slow enough that a kill finds records which are not durable."""
RIGHT = 10
"""How many different undisturbed runs the seeds are compared with."""
ALIKE = (
    *("decisions_sha256", "ballots_sha256", "decided", "valid", "flagged", "votes", "errors", "steps"),
    "undecided_at",
)
"""What is counted as without faults."""


def carried_out(seed: int, runs: Path | None) -> Result:
    """A sitting of the run, to its end."""
    task = TASKS[seed % RIGHT % len(TASKS)]
    how: dict[str, Any] = (
        {"models": AGENTS, "strategy": "seqcv"} if isinstance(task, Lines) else {"models": MODEL, "k": 2}
    )
    running = run(task, seed=seed % RIGHT, runs_dir=runs, run_id="faults", runtime="linked", **how)
    return run_virtual(running, seed=seed)


@cache
def undisturbed(seed: int) -> Account:
    """What is decided and counted without faults."""
    return carried_out(seed, None).account


def sitting(seed: int, runs: Path, faults: Faults) -> bool:
    """A sitting in a process of its own; whether it came to the end. It raises nothing: its promises are checked in its journal."""
    child = os.fork()
    if not child:
        vars(driving).update(
            runtime_of=lambda _, context, deployments: DelayedRuntime(context, deployments, faults=faults)
        )
        writer.VIRTUAL_COMMIT_S = COMMIT_S
        try:
            os._exit(0 if carried_out(seed, runs).outcome == "completed" else 1)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is said and the process ends here
            print(f"seed {seed}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return False
    if os.waitstatus_to_exitcode(status):
        raise AssertionError("a sitting failed")
    return True


def decided(journal: Path) -> dict[str, tuple[str, bytes | None]]:
    """What the journal holds as decided."""
    if not journal.exists():
        return {}
    with Reader(journal) as reader:
        return {path: (row.outcome, row.value) for path, row in reader.decisions()}


def check(seed: int) -> int:
    """Carry out a seed and check the promises; how often it was killed.

    Raises:
        AssertionError: one of them does not hold.
    """
    random = Random(seed)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        runs, purchases = Path(folder, "runs"), Path(folder, "purchases")
        os.environ["MICROAGENTS_PURCHASES"] = str(purchases)
        journal, kills, not_durable = runs / "faults.sqlite", 0, 0
        most = random.randrange(4)
        while True:
            before = decided(journal)
            kill_at_s = random.uniform(0, 40) if kills < most else None
            over = sitting(seed, runs, Faults(seed=seed * 10 + kills, kill_at_s=kill_at_s))
            now = decided(journal)
            assert before.items() <= now.items(), "a decided step was lost, or decided again"
            if over:
                break
            kills += 1
            with Reader(journal) as reader:
                durable = reader.account().calls
            not_durable += sent(purchases) - durable - not_durable
        with Reader(journal) as reader:
            account, problems = reader.account(), reader.verify()
        bought = sent(purchases)
    os.environ.pop("MICROAGENTS_PURCHASES")
    right = undisturbed(seed % RIGHT)
    assert problems == []
    for name in ALIKE:
        assert getattr(account, name) == getattr(right, name), (
            f"{name} is {getattr(account, name)!r}, undisturbed {getattr(right, name)!r}"
        )
    assert bought == account.calls + not_durable, (
        f"{bought} calls were bought, {account.calls} are accounted for, {not_durable} were not durable"
    )
    assert bought <= account.calls + account.lost_in_flight, (
        f"{bought} calls were bought, {account.calls} are accounted for, and {account.lost_in_flight} as lost at most"
    )
    return kills


def main() -> None:
    """Check seeds, and print those that fail."""
    kills, failed = checked(check, options_of(__doc__, seeds=2000, first=0, seed=int))
    print(f"{len(kills)} seeds, {sum(kills)} kills, {len(failed)} failed {failed or ''}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
