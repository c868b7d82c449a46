"""Whether plans are the cheapest, and keep their promise: python -m tests.benchmarks.plans [--worlds N] [--jobs N].

A world is a chain and two models with planted error rates of their own at each step, one rival reply each, and prices. All steps are
sampled ten times. The plan's choice is compared with the cheapest of all that it could promise (both models and their pool, each k up to
30, the rule certify), and held against the truth: the chance that all steps are decided right, by the law of each step's race written
here, for a pool by elections held here. Exit code 1 if a choice costs a tenth more, or fewer promises than .93 are kept. All 400 worlds
take some 15 minutes of one processor.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from microagents import plan
from microagents.elections.rules import Certify
from microagents.studies.measured import ModelMeasurement
from microagents.studies.planned_runs import PlannedRun
from microagents.studies.pools import pooled
from tests.benchmarks.ceiling import drawn, measured
from tests.benchmarks.harness import options_of
from tests.benchmarks.marks import lost_to_one
from tests.benchmarks.stopping import wealth

Errors = NDArray[np.float64]

STEPS, DRAWS, CAP, MOST_K = 150, 10, 100, 30
TARGETS = (0.8, 0.9, 0.95)
AIM_COST, AIM_KEPT, BEYOND = 1.1, 0.93, 6
ELECTIONS = 3_000
LEVEL = 0.05


def errors_of(rng: np.random.Generator) -> Errors:
    """Plant error rates: alike, or beta-distributed, or a few difficult steps among easy ones."""
    kind = rng.integers(3)
    if kind == 0:
        return np.full(STEPS, rng.uniform(0.002, 0.1))
    if kind == 1:
        return np.minimum(rng.beta(0.7, rng.uniform(10, 60), STEPS), 0.9)
    return np.where(rng.random(STEPS) < 0.03, rng.uniform(0.1, 0.4), rng.uniform(0.001, 0.02))


def model_of(name: str, errors: Errors, usd: float, rng: np.random.Generator) -> ModelMeasurement:
    """Measure a planted model: each step ten times."""
    steps = tuple(measured(at, drawn(1 - error, rng), DRAWS) for at, error in enumerate(errors))
    return ModelMeasurement(
        model=name,
        run_id=name,
        total=STEPS,
        steps=steps,
        calls=1_000,
        input_tokens=1,
        output_tokens=1,
        cost_usd=1_000 * usd,
    )


# -- the truth ----------------------------------------------------------------------------------------------------------


def lost_by_test(error: float) -> float:
    """Chance that a step is not decided right by the test, vote by vote."""
    won = 0.0
    at: dict[tuple[int, int], float] = {(0, 0): 1.0}
    for _ in range(CAP):
        there = defaultdict[tuple[int, int], float](float)
        for (right, rival), chance in at.items():
            for state, share in (((right + 1, rival), 1 - error), ((right, rival + 1), error)):
                if wealth(max(state), min(state)) < 1 / LEVEL:
                    there[state] += chance * share
                elif state[0] > state[1]:
                    won += chance * share
        at = there
    return 1 - won


def lost_in_turn(errors: Sequence[float], k: int, rng: np.random.Generator) -> float:
    """Chance that a pool does not decide a step right: elections in which the models vote in turn, their wrong replies agree, and the
    vote ends when each has cast so many votes beyond its lead, all alike, that the models contradict each other."""
    right = np.zeros((ELECTIONS, len(errors)), np.int64)
    cast, won, is_open = np.zeros(len(errors), np.int64), 0, np.ones(ELECTIONS, bool)
    for vote in range(CAP):
        of = vote % len(errors)
        cast[of] += 1
        right[:, of] += rng.random(ELECTIONS) >= errors[of]
        lead = 2 * right.sum(1) - (vote + 1)
        won += int((is_open & (lead >= k)).sum())
        is_open &= abs(lead) < k
        if (cast >= k + BEYOND).all():
            is_alike = (right == 0) | (right == cast)
            is_open &= ~(is_alike.all(1) & (right == 0).any(1) & (right > 0).any(1))
    return 1 - won / ELECTIONS


def kept(run: PlannedRun, errors: dict[str, Errors], rng: np.random.Generator) -> float:
    """Chance that a planned run decides all steps right."""
    of = np.array([errors[name] for name in run.models]).T
    if run.options.get("rule") == "certify":
        lost = [lost_by_test(float(error)) for (error,) in of]
    elif len(run.models) > 1:
        lost = [lost_in_turn(each.tolist(), run.k or 1, rng) for each in of]
    else:
        lost = [lost_to_one(float(error), run.k or 1) if run.k != 1 else float(error) for (error,) in of]
    return math.prod(1 - each for each in lost)


# -- the cheapest -------------------------------------------------------------------------------------------------------


def cheapest(models: Sequence[ModelMeasurement], target: float) -> float:
    """Least cost of all that these measurements promise; infinite if nothing."""
    groups = [*models, *filter(None, map(pooled, combinations(models, 2)))]
    costs = [math.inf]
    for of in groups:
        for rule in (*range(1, MOST_K + 1), Certify(LEVEL)):
            chances = of.chances(rule, STEPS)
            if chances.measured.low >= target:
                costs.append(chances.calls * (of.call_usd or 0))
    return min(costs)


class Chosen(NamedTuple):
    """The choice of one plan."""

    row: str
    cost: float
    """In the least cost of all that could be promised; infinite if there is no choice, 1 if there is nothing to promise."""
    is_kept: bool | None
    """None without a choice."""


def chosen_in(world: int) -> Chosen:
    """Make a world, measure and plan it."""
    rng = np.random.default_rng([6, world])
    errors = {"cheap:m": errors_of(rng), "dear:m": errors_of(rng) * 0.5}
    prices = {"cheap:m": 0.001, "dear:m": 0.001 * rng.uniform(1.0, 4.0)}
    models = [model_of(name, each, prices[name], rng) for name, each in errors.items()]
    target = TARGETS[world % len(TARGETS)]
    least, best = cheapest(models, target), plan(None, models, steps=STEPS, target=target).best
    if best is None:
        return Chosen("none", 1.0 if least == math.inf else math.inf, None)
    row = " + ".join(best.models) + f" {best.options.get('rule', f'k={best.k}')}"
    return Chosen(row, (best.cost_usd or 0) / least, kept(best, errors, rng) >= target)


def main() -> None:
    """Print the choices."""
    of = options_of(__doc__, worlds=400, jobs=1)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # small products: threads only wait for each other
    with multiprocessing.get_context("spawn").Pool(of.jobs) as pool:
        chosen = pool.map(chosen_in, range(of.worlds), chunksize=1)
    promises = [each.is_kept for each in chosen if each.is_kept is not None]
    worst, share = max(each.cost for each in chosen), float(np.mean(promises))
    is_met = worst <= AIM_COST and share >= AIM_KEPT
    print(f"chosen: {dict(Counter(each.row for each in chosen).most_common())}")
    print(
        f"{of.worlds} worlds: cost of the choice {worst:.3f} times the cheapest at most; promises kept {sum(promises)} of {len(promises)} "
        f"({share:.3f}){'' if is_met else '  OUTSIDE'}"
    )
    sys.exit(not is_met)


if __name__ == "__main__":
    main()
