"""Documents in figures: ``python -m tests.benchmarks.documents``.

How many documents are consistent with SeqCV and with its baselines, beside a Monte Carlo that shares no code with the package. The
model is simulated and its error rates are fixed below: this measures the plumbing, not a model. The exit code is 1 if the Monte Carlo
disagrees.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from functools import partial
from statistics import mean
from typing import Any

from microagents import Strategy, run
from microagents.elections.laws import wilson_interval
from microagents.systems.documents.seqcv import SeqCV
from microagents.systems.documents.subtask_baselines import Parallel, Sequential
from tests.benchmarks.documents_monte_carlo import Document, Rates, Shape
from tests.benchmarks.harness import options_of
from tests.papers.consistency import RANK_ERROR, SPLIT_ERROR, Consistency

SHAPE = Shape(sections=8, fixes=2, uses=3, undeclared=0.3)
ERRORS = (0.02, 0.10)
"""Error rates for each term that is written."""
JUDGES = (0.05, 0.10, 0.15)
"""Error rates of the three models as validators."""
MODELS = [f"sim:perfect@alternatives=1000000,error={error}" for error in JUDGES]
"""So many alternatives that no two authors make the same mistake."""
STRATEGIES: dict[str, Strategy] = {
    "parallel": Parallel(),
    "sequential": Sequential(),
    "seqcv, depth 0": SeqCV(depth=0),
    "seqcv": SeqCV(),
}
EXPECTED = 4000
"""Documents of the Monte Carlo: so many times less noise than in what is compared with it."""


async def written(
    name: str, documents: int, error: float, seed: int, pool: Sequence[str] = MODELS, **control: Any
) -> list[int]:
    """The number of faults of each document."""
    first = Consistency(
        sections=SHAPE.sections,
        fixes=SHAPE.fixes,
        uses=SHAPE.uses,
        undeclared=SHAPE.undeclared,
        error=error,
        accuracy=None,
    )
    tasks = [first.variant(number) for number in range(documents)]
    models = list(pool) if isinstance(STRATEGIES[name], SeqCV) else [*pool][:1]
    result = await run(tasks, models=models, strategy=STRATEGIES[name], seed=seed, runs_dir=None, **control)
    assert result.outcome == "completed", result.reason
    return [task.contradictions(value["answer"]["text"]) for task, value in zip(tasks, result.value, strict=True)]


def expected(name: str, error: float, seed: int) -> list[int]:
    """The same by the Monte Carlo."""
    rates = Rates(term=error, judges=JUDGES, split=SPLIT_ERROR, rank=RANK_ERROR)
    faults_of: dict[str, Callable[[Document], int]] = {
        "parallel": Document.parallel_faults,
        "sequential": Document.sequential_faults,
        "seqcv, depth 0": partial(Document.seqcv_faults, depth=0),
        "seqcv": partial(Document.seqcv_faults, depth=2),
    }
    return [faults_of[name](Document(SHAPE, rates, f"{seed} {name} {error} {number}")) for number in range(EXPECTED)]


def table(documents: int, seed: int) -> bool:
    """Consistent documents by strategy; returns whether the estimates of the Monte Carlo agree with all of them.

    Of eight intervals of 95 % one misses in every third run. So the rows are shown with these, and compared with wider ones, which hold all
    eight estimates in 95 of 100 runs.
    """
    print(
        f"{documents} documents: {SHAPE.sections} sections, each fixes {SHAPE.fixes} terms and uses {SHAPE.uses}; ",
        end="",
    )
    print(
        f"a use is of an undeclared section with chance {SHAPE.undeclared}; 95 % Wilson intervals; Monte Carlo of {EXPECTED} documents"
    )
    print(f"error rates: validators {JUDGES}, splits {SPLIT_ERROR}, rankings {RANK_ERROR}")
    agree = True
    for error in ERRORS:
        faults: dict[str, float] = {}
        for name in STRATEGIES:
            found = asyncio.run(written(name, documents, error, seed))
            other = expected(name, error, seed)
            faults[name] = mean(found)
            right, rate = found.count(0), other.count(0) / EXPECTED
            low, high = wilson_interval(right, documents, 0.95)
            least, most = wilson_interval(right, documents, 0.95 ** (1 / (len(ERRORS) * len(STRATEGIES))))
            agree = agree and least <= rate <= most
            inside = "inside" if low <= rate <= high else "outside"
            print(
                f"error {error} a term, {name:<14}  {right / documents:.3f} ({low:.3f} to {high:.3f})  Monte Carlo {rate:.3f}, {inside} ",
                end="",
            )
            print(
                f"({least:.3f} to {most:.3f} for all rows together); contradictions a document {mean(found):.3f}, ",
                end="",
            )
            print(f"Monte Carlo {mean(other):.3f}", flush=True)
        names = list(STRATEGIES)
        for by, before, after in zip(("conditioning", "validation", "splitting"), names, names[1:], strict=False):
            if faults[before]:
                print(
                    f"error {error} a term: {by} stops {1 - faults[after] / faults[before]:.1%} ({before} to {after})",
                    flush=True,
                )
    return agree


def main() -> None:
    """Print the table."""
    options = options_of(__doc__, documents=200, seed=0)
    sys.exit(not table(options.documents, options.seed))


if __name__ == "__main__":
    main()
