"""The law of votes by field against the engine, in settings drawn by a seed: python -m tests.benchmarks.field_law.

A setting has some fields of different error rates, each with one rival, and a k. The engine fills a table by a simulated model that errs
in each field by itself. The law's votes a row and its chance that all fields are right must lie in the engine's intervals. A simulation
of single votes, which shares no code with either, must agree, too. Exit code 1 if one of them does not.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from math import sqrt
from random import Random
from statistics import fmean, stdev

from msgspec import Struct

from microagents import run
from microagents.elections.election import input_of
from microagents.elections.laws import wilson_interval
from microagents.elections.races import row_end
from microagents.journal.messages import RecordedDecision
from tests.benchmarks.fields import ErrsByField, Setting, task_of
from tests.benchmarks.harness import options_of

CONFIDENCE, QUANTILE = 0.99, 2.576
CAP = 100


class Filled(Struct, frozen=True):
    """Votes of each row, and the number of rows that are decided and all right."""

    votes: list[int]
    right: int

    @property
    def interval(self) -> tuple[float, float]:
        """Bounds of the mean number of votes."""
        mean, error = fmean(self.votes), QUANTILE * stdev(self.votes) / sqrt(len(self.votes))
        return mean - error, mean + error

    @property
    def chance(self) -> tuple[float, float]:
        """Bounds of the chance that all fields are right."""
        return wilson_interval(self.right, len(self.votes), CONFIDENCE)


def drawn(seed: int, count: int) -> Iterator[tuple[Setting, int]]:
    """Draw settings, each with a k."""
    rng = Random(f"law/{seed}")
    for _ in range(count):
        fields, k = rng.randint(2, 20), rng.randint(2, 4)
        rates = tuple([round(rng.uniform(0.75, 0.99), 3) for _ in range(fields)])
        yield Setting(fields=fields, right=fmean(rates), rates=rates, rivals=1), k


async def by_engine(setting: Setting, k: int, rows: int) -> Filled:
    """Fill a table by the engine."""
    votes = [0] * rows

    def count(decision: RecordedDecision) -> None:
        votes[input_of(decision.path)] = sum(number for _, number in decision.votes)

    table = [{"number": number} for number in range(rows)]
    task = task_of(setting.fields, "field")
    result = await run(task.rows(table), models=ErrsByField(setting), k=k, runs_dir=None, on_decision=count)
    filled: Sequence[dict[str, int] | None] = result.value
    right = sum(row is not None and set(row.values()) == {0} for row in filled)
    return Filled(votes, right)


def by_single_votes(setting: Setting, k: int, rows: int, seed: int) -> Filled:
    """Draw each vote on each field until all of them lead by k at the same time."""
    rng, votes, right = Random(f"votes/{seed}"), list[int](), 0
    for _ in range(rows):
        leads, count = [0] * setting.fields, 0
        while count < CAP and any(abs(lead) < k for lead in leads):
            leads = [lead + (1 if rng.random() < p else -1) for lead, p in zip(leads, setting.rates, strict=True)]
            count += 1
        votes.append(count)
        right += all(lead >= k for lead in leads)
    return Filled(votes, right)


def main() -> None:
    of = options_of(__doc__, rows=1_000, settings=3, seed=1)
    is_missed = False
    for setting, k in drawn(of.seed, of.settings):
        law = row_end(setting.rates, k, CAP)
        print(
            f"{setting.fields} fields right in {min(setting.rates)} to {max(setting.rates)}, k = {k}, {of.rows:,} rows:"
        )
        print(f"  law            {law.draws:6.3f} votes a row, all right in {law.right:.4f}")
        engine = asyncio.run(by_engine(setting, k, of.rows))
        for name, found in (("engine", engine), ("single votes", by_single_votes(setting, k, 4 * of.rows, of.seed))):
            (low, high), (least, most) = found.interval, found.chance
            is_inside = low <= law.draws <= high and least <= law.right <= most
            is_missed = is_missed or not is_inside
            said = f"{fmean(found.votes):6.3f} ({low:.3f} to {high:.3f}) votes a row, all right in {found.right / len(found.votes):.4f}"
            print(f"  {name:14} {said} ({least:.4f} to {most:.4f}){'' if is_inside else '  OUTSIDE'}", flush=True)
    sys.exit(is_missed)


if __name__ == "__main__":
    main()
