"""Promises on planted worlds: python -m tests.benchmarks.promise [--worlds 400] [--runs 20] [--only calibrated] [--of .05] [--labels 300].

A world is a table of rows with known right values. A cheap model gives each row a reply and a score, a strong one another reply and its
score. Some rows are labelled, the thresholds are found on them, and all rows are taken by these. The promise is broken if more than the
promised share of all rows is taken and wrong. How the worlds are drawn is written from the statement of the promise: it shares no code
with the tests, and finds the best threshold in hindsight by itself. Of other worlds --runs go through the command `run`, the first three
also killed by -9 at random moments: the output must be the same. Exit code 1 if a promise is broken in more than .13 of the worlds where
.10 is stated, or the bound of an audit holds in less than .93 of them where .95 is.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
from msgspec import Struct

from microagents.elections.promises import CONFIDENCE, LabelledRow, find_thresholds, wrong_bound
from microagents.systems.chains.cascade import Cascade
from tests.benchmarks.harness import options_of

ROWS, CELLS, SAMPLE = 5_000, 4, 100
BROKEN, HOLDS = 0.13, 0.93
VOTES = Path(__file__).parent / "votes" / "gsm8k-gpt-4o-mini.txt"
AHEAD = Cascade.model_fields["k"].default
Floats = np.ndarray[tuple[int], np.dtype[np.float64]]
Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]


class World(Struct, frozen=True):
    """The rows of a table, by what both models do with them."""

    cheap: Floats
    """Scores of the cheap model."""
    cheap_right: Flags
    strong: Floats
    strong_right: Flags

    def lost(self, cheap: float, strong: float) -> float:
        """The share of rows that are taken and wrong with these thresholds."""
        by_cheap = self.cheap >= cheap
        by_strong = ~by_cheap & (self.strong >= strong)
        return float(np.mean((by_cheap & ~self.cheap_right) | (by_strong & ~self.strong_right)))

    def best_share(self, most: float) -> float:
        """The largest share of rows that the cheap model could take in hindsight, with all others decided by the strong one."""
        order = np.argsort(-self.cheap, kind="stable")
        cheap_lost = np.cumsum(~self.cheap_right[order])
        strong_lost: Ints = np.sum(~self.strong_right) - np.cumsum(~self.strong_right[order])
        is_last = np.append(np.diff(self.cheap[order]) != 0, True)  # rows of one score are taken together
        allowed = np.nonzero(is_last & (cheap_lost + strong_lost <= most * len(order)))[0]
        return float(allowed[-1] + 1) / len(order) if len(allowed) else 0.0


def strong_side(rng: np.random.Generator, hard: Flags) -> tuple[Floats, Flags]:
    """Three votes and more of a strong model, which is wrong in .01 of the rows, and in .05 of the hard ones."""
    right = rng.random(len(hard)) > np.where(hard, 0.05, 0.01)
    return np.where(right, rng.choice([1.0, 0.8], len(hard), p=[0.9, 0.1]), rng.choice([1.0, 0.8], len(hard))), right


def from_chances(rng: np.random.Generator, chances: Floats, scores: Floats) -> World:
    """A world whose cheap replies are right with these chances, and have these scores."""
    right = rng.random(len(chances)) < chances
    return World(scores, right, *strong_side(rng, ~right))


def calibrated(rng: np.random.Generator) -> World:
    """The score is the chance of being right."""
    chances = rng.beta(8, 1, ROWS)
    return from_chances(rng, chances, chances)


def overconfident(rng: np.random.Generator) -> World:
    """The score is far above the chance, in the same order."""
    chances = rng.beta(6, 1, ROWS)
    return from_chances(rng, chances, chances**0.2)


def noisy(rng: np.random.Generator) -> World:
    """The score says little about the chance."""
    chances = rng.beta(8, 1, ROWS)
    return from_chances(rng, chances, np.clip(0.5 * chances + 0.5 * rng.random(ROWS), 0, 1))


def drift(rng: np.random.Generator) -> World:
    """The second half of the file is harder, and its scores do not show it."""
    scores = rng.beta(8, 1, ROWS)
    is_late = np.arange(ROWS) >= ROWS // 2
    return from_chances(rng, np.where(is_late, scores**3, scores**0.5), scores)


def votes(rng: np.random.Generator) -> World:
    """Recorded votes of a real model, ahead by five as in a cascade; the score is the share of the leader."""
    scores, right = [], []
    for line in VOTES.read_text(encoding="utf-8").split():
        counts: dict[str, int] = {}
        for place in rng.permutation(len(line)):
            vote = line[place]
            counts[vote] = counts.get(vote, 0) + 1
            first, second, *_ = [*sorted(counts.values(), reverse=True), 0]
            if first - second >= AHEAD:
                break
        leader = max(counts, key=counts.__getitem__)
        scores.append(counts[leader] / sum(counts.values()))
        right.append(leader == "0")
    is_right = np.array(right)
    return World(np.array(scores), is_right, *strong_side(rng, ~is_right))


KINDS: dict[str, Callable[[np.random.Generator], World]] = {
    each.__name__: each for each in (calibrated, overconfident, noisy, drift, votes)
}


class Found(Struct, frozen=True):
    """Outcome of a promise in a world."""

    is_promised: bool
    is_broken: bool
    cheap: float
    """Share of rows by the cheap model."""
    best: float
    open: float


def promised(rng: np.random.Generator, world: World, labels: int, most: float, *, first_rows: bool) -> Found:
    """Label some rows, random ones or the first, find the thresholds, and look at all rows."""
    rows = len(world.cheap)
    chosen = np.arange(labels) if first_rows else rng.choice(rows, labels, replace=False)
    labelled = [
        LabelledRow(
            cheap=float(world.cheap[each]),
            cheap_is_right=bool(world.cheap_right[each]),
            strong=float(world.strong[each]),
            strong_is_right=bool(world.strong_right[each]),
        )
        for each in chosen
    ]
    found = find_thresholds(labelled, most, CONFIDENCE)
    best = world.best_share(most)
    if found is None:
        return Found(is_promised=False, is_broken=False, cheap=0.0, best=best, open=1.0)
    at = found.thresholds
    by_cheap = world.cheap >= at.cheap
    is_open = ~by_cheap & (world.strong < at.strong)
    return Found(
        is_promised=True,
        is_broken=world.lost(at.cheap, at.strong) > most,
        cheap=float(np.mean(by_cheap)),
        best=best,
        open=float(np.mean(is_open)),
    )


def line_of(name: str, found: list[Found]) -> str:
    """A line of figures about the worlds of a kind."""
    broken = sum(each.is_broken for each in found) / len(found)
    none = sum(not each.is_promised for each in found) / len(found)
    cheap, best, is_open = (
        np.mean([getattr(each, each_name) for each in found]) for each_name in ("cheap", "best", "open")
    )
    share = np.mean([each.cheap / each.best for each in found if each.best])
    return (
        f"{name:<32} broken {broken:.3f}  no promise {none:.3f}  cheap {cheap:.3f} of {best:.3f} in hindsight ({share:.2f})  "
        f"open {is_open:.3f}"
    )


def audited(rng: np.random.Generator, kind: str) -> bool:
    """Whether the bound of an audit holds in a drawn table: of rows, or of cells of which one a row is judged."""
    rows = int(rng.integers(150, 3_000))
    share = float(rng.choice([0.01, 0.03, 0.1, 0.3]))
    sample = rng.choice(rows, SAMPLE, replace=False)
    if kind == "rows":
        wrong = rng.random(rows) < share
        return bool(np.mean(wrong) <= wrong_bound(int(wrong[sample].sum()), SAMPLE, rows) + 1e-12)
    together = rng.random((rows, 1)) < share
    cells = np.where(
        together,
        rng.random((rows, CELLS)) < (0.9 if kind == "cells together" else 0.3),
        rng.random((rows, CELLS)) < 0.01,
    )
    judged = cells[sample, rng.integers(CELLS, size=SAMPLE)]
    return bool(np.mean(cells) <= wrong_bound(int(judged.sum()), SAMPLE, rows * CELLS) + 1e-12)


MODELS = """
import json
from random import Random
from microagents import Model, Sample


class Doubles(Model):
    def __init__(self):
        self.spec = type(self).__name__

    async def complete(self, call):
        x, world = map(int, call.prompt.user.partition(chr(10))[0].removeprefix("Double ").split(" in "))
        is_right = Random(f"{self.spec} {world} {x} {call.id.seq}").random() < self.chance(x, world)
        return Sample(text=json.dumps({"y": 2 * x + (not is_right)}))


class Cheap(Doubles):
    def chance(self, x, world):
        return Random(f"{world} {x}").betavariate(4 if x % 2 and world % 2 else 8, 1)


class Strong(Doubles):
    def chance(self, x, world):
        return .5 if Random(f"strong {world} {x}").random() < .03 else .97
"""
MOST_S = 300
RUN_ROWS = 600
COMMAND = (
    *("run", "rows", "--inputs", "in.csv", "-o", "out.csv", "-o", "ask=Double {x} in {world}", "-o", "columns=y: int"),
    *("--format", "json", "--gold", "right=y", "--model", "cheap=world.py:Cheap", "--model", "strong=world.py:Strong"),
    *("--trust-columns", "--trust-folder"),
)


def run_of(folder: Path, world: int, most: float, kills: Random | None) -> tuple[bool, list[dict[str, str]]]:
    """Fill a table of a world by the command, killed at random moments or not; returns whether there is a promise, and the rows."""
    (folder / "world.py").write_text(MODELS)
    rows = "\n".join(f"{x},{world},{2 * x}" for x in range(RUN_ROWS))
    (folder / "in.csv").write_text(f"x,world,right\n{rows}\n")
    command = [sys.executable, "-m", "microagents", *COMMAND, "--wrong-at-most", str(most)]
    for _ in range(0 if kills is None else 4):
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            assert kills is not None
            time.sleep(kills.uniform(1, 4))
            process.kill()
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=MOST_S, check=False)
    if "no promise" in ended.stderr:
        return False, []
    assert ended.returncode in (0, 4, 5), ended.stderr
    with (folder / "out.csv").open(encoding="utf-8-sig", newline="") as file:
        return True, list(csv.DictReader(file))


def through_runs(worlds: int, most: float, seed: int) -> bool:
    """Fill tables by the command; returns whether too many promises are broken, or a killed run has another output."""
    broken, cheap, promises, differing = 0, [], 0, 0
    for world in range(seed * 1_000, seed * 1_000 + worlds):
        with TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder, TemporaryDirectory() as other:
            is_promised, rows = run_of(Path(folder), world, most, None)
            if world < seed * 1_000 + 3:
                differing += (is_promised, rows) != run_of(Path(other), world, most, Random(world))
        if is_promised:
            wrong = sum(each["state"] == "decided" and each["y"] != each["right"] for each in rows)
            broken += wrong > most * len(rows)
            promises += 1
            cheap.append(sum(each["settled_by"] == "cheap" for each in rows) / len(rows))
    share = f"{np.mean(cheap):.2f}" if cheap else "none"
    print(
        f"{worlds} worlds by `run`: {promises} promises, {broken} broken, {share} by the cheap model; killed: {differing} differ"
    )
    return broken > 5 or differing > 0  # of 20 at .10 more than 5 have a chance of .011


def main() -> int:
    """Print a line for each kind of world."""
    options = options_of(__doc__, worlds=400, runs=20, seed=1, labels=300, of=0.05, only="")
    failed = False
    for name, kind in KINDS.items():
        if options.only and options.only != name:
            continue
        for first_rows in (False, True) if name == "drift" else (False,):
            rng = np.random.default_rng([options.seed, len(name), first_rows])
            found = [
                promised(rng, kind(rng), options.labels, options.of, first_rows=first_rows)
                for _ in range(options.worlds)
            ]
            said = f"{name}, labels of the first rows" if first_rows else name
            print(line_of(said, found), flush=True)
            broken = sum(each.is_broken for each in found) / len(found)
            failed |= (broken <= BROKEN) if first_rows else (broken > BROKEN)
    for unit in ("rows", "cells", "cells together"):
        rng = np.random.default_rng([options.seed, len(unit)])
        holds = sum(audited(rng, unit) for _ in range(options.worlds)) / options.worlds
        print(f"audit of {unit:<23} holds {holds:.3f}")
        failed |= holds < HOLDS
    if options.runs:
        failed |= through_runs(options.runs, options.of, options.seed)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
