"""What each system decides: ``python -m tests.baseline [--write]`` compares with ``tests/data/baseline.json``, or writes it.

A change that moves code must not change a decision or a ballot. Of each system a small run is recorded: a digest of its decisions by path,
outcome and value, one of its ballots in launch order, and counts. No address of a class enters them, so files may move.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from contextlib import chdir
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from microagents import Result, run_sync
from microagents.elections.election import Flagged
from microagents.journal.reading import Reader
from microagents.systems import Maker
from microagents.tasks.desk import Desk
from microagents.tasks.drift import Drift
from microagents.tasks.hanoi import Hanoi
from microagents.tasks.multiplication import Multiplication
from microagents.tasks.word_problems import WordProblem
from tests.papers.relay import Relay
from tests.systems.documents.lines import Lines

FILE = Path(__file__).parent / "data" / "baseline.json"
NOISY = "sim:perfect@error=0.3,flag=0.1"
HARD = "sim:perfect@error=0.1,flag=0.05,hard=0.4,hard_error=0.6"
TURNS = "sim:perfect@error=0.3,flag=0.1"
LADDERS = ("paraphrase,model=sim:o3-mini@error=0.3", "lookahead,judge")
AUTHORS = ("sim:perfect@error=0.15,flag=0.1", "sim:gpt-4.1-mini@error=0.3,flag=0.1", "sim:o3-mini@error=0.25,flag=0.1")
SYSTEMS: Mapping[str, tuple[Any, Mapping[str, Any]]] = {
    "maker": (Hanoi(disks=4), {"models": "sim:perfect@error=0.2,flag=0.1", "k": 3}),
    "maker, many inputs": ([Drift(length=length) for length in (3, 1, 5)], {"models": NOISY, "k": 2}),
    "maker, a pool": (Drift(length=12), {"models": (NOISY, "sim:o3-mini@error=0.2"), "k": 2}),
    "lead": (Drift(length=20), {"models": HARD, "strategy": "lead"}),
    **{
        f"ladder, {ladder}": (Drift(length=20), {"models": HARD, "strategy": Maker(k=2, max_draws=7, ladder=ladder)})
        for ladder in LADDERS
    },
    "recursive": (Multiplication(digits=3), {"models": "sim:perfect@error=0.2,alternatives=3,flag=0.1", "k": 2}),
    "aot": (WordProblem(depth=4), {"models": TURNS, "strategy": "aot"}),
    "aot+tree": (WordProblem(depth=4), {"models": TURNS, "strategy": "aot+tree"}),
    "tot": (WordProblem(depth=4), {"models": TURNS, "strategy": "tot"}),
    "cot-sc": (WordProblem(depth=4), {"models": TURNS, "strategy": "cot-sc"}),
    "swarm": (Relay(length=9), {"models": "sim:perfect@flag=0.05"}),
    "seqcv": (Lines(sections=2), {"models": AUTHORS, "strategy": "seqcv"}),
    "act, desk": (Desk(ticket=3), {"models": "sim:perfect@error=0.1,alternatives=9", "strategy": "act"}),
}


class Recorded(Struct, frozen=True, kw_only=True):
    """What a system came to."""

    outcome: str
    decisions: int
    """Places with a decision or an answer of a role."""
    ballots: int
    """Counted samples, flagged ones included."""
    flagged: int
    decisions_sha256: str
    ballots_sha256: str


def recorded(name: str) -> Recorded:
    """Run a system, and record what it decides.

    Raises:
        AssertionError: the address of a class is in it, which changes where files move.
    """
    task, given = SYSTEMS[name]
    with tempfile.TemporaryDirectory() as folder, chdir(folder):  # the desk has its database in the working folder
        result: Result = run_sync(task, runs_dir="runs", run_id="baseline", durability="normal", seed=1, **given)
        assert result.journal is not None
        with Reader(result.journal) as reader:
            rows = sorted(reader.decisions())
    decisions = [(path, row.outcome, _text(row.value)) for path, row in rows]
    ballots = [
        (path, [each.flag if isinstance(each, Flagged) else _text(each.value) for each in row.ballots])
        for path, row in rows
        if row.ballots
    ]
    return Recorded(
        outcome=result.outcome,
        decisions=len(decisions),
        ballots=sum(len(each) for _, each in ballots),
        flagged=sum(isinstance(each, Flagged) for _, row in rows for each in row.ballots),
        decisions_sha256=_digest(decisions),
        ballots_sha256=_digest(ballots),
    )


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode()


def _digest(found: list[Any]) -> str:
    written = msgspec.json.encode(found)
    assert b"microagents." not in written, "the address of a class is in a decision or a ballot"
    return sha256(written).hexdigest()[:32]


def baseline() -> dict[str, Recorded]:
    """Return what was written."""
    return msgspec.json.decode(FILE.read_bytes(), type=dict[str, Recorded])


def main() -> None:
    """Compare all systems, or write what they come to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write the file anew")
    options = parser.parse_args()
    found = {name: recorded(name) for name in SYSTEMS}
    if options.write:
        FILE.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    before = baseline()
    others = [name for name in {**before, **found} if before.get(name) != found.get(name)]
    lines = [f"{name}: {found.get(name)}, before {before.get(name)}" for name in others]
    lines.append(f"{len(found)} systems, {len(others)} decide otherwise than before")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.exit(bool(others))


if __name__ == "__main__":
    main()
