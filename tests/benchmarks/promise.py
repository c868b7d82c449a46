"""Promises on planted worlds: python -m tests.benchmarks.promise [--worlds 400] [--only calibrated] [--of .05] [--labels 300].

A world is a table of rows with known right values. A cheap model gives each row a reply and a score, a strong one another reply and its
score. Some rows are labelled, the thresholds are found on them, and all rows are taken by these. The promise is broken if more than the
promised share of all rows is taken and wrong. How the worlds are drawn is written from the statement of the promise: it shares no code
with the tests, and finds the best threshold in hindsight by itself. Exit code 1 if a promise is broken in more than .13 of the worlds
where .10 is stated, or the bound of an audit holds in less than .93 of them where .95 is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from msgspec import Struct

from microagents.elections.promises import CONFIDENCE, LabelledRow, find_thresholds, wrong_bound
from tests.benchmarks.harness import options_of

ROWS, CELLS, SAMPLE = 5_000, 4, 100
BROKEN, HOLDS = 0.13, 0.93
VOTES = Path(__file__).parent / "votes" / "gsm8k-gpt-4o-mini.txt"
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
    """Recorded votes of a real model, ahead by three; the score is the share of the leader."""
    scores, right = [], []
    for line in VOTES.read_text(encoding="utf-8").split():
        counts: dict[str, int] = {}
        for place in rng.permutation(len(line)):
            vote = line[place]
            counts[vote] = counts.get(vote, 0) + 1
            first, second, *_ = [*sorted(counts.values(), reverse=True), 0]
            if first - second >= 3:
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


def main() -> int:
    """Print a line for each kind of world."""
    options = options_of(__doc__, worlds=400, seed=1, labels=300, of=0.05, only="")
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
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
