"""How true measurements are, on planted error rates: python -m tests.benchmarks.measurement [--plans 100].

Samples are drawn and votes are held by code of its own. A plan agrees if its interval and the exact one of 400 runs overlap.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from math import exp, log1p
from random import Random

from microagents.elections.error_rates import exact_interval
from microagents.studies.measured import ModelMeasurement
from microagents.studies.measuring import MeasuredStep

RUNS, STEPS = 400, 1_000
PROFILES: dict[str, Callable[[Random], float]] = {
    "equal, 1 %": lambda _: 0.01,
    "2 % hard": lambda rng: 0.7 if rng.random() < 0.02 else 0.002,
    "beta(.2, 20)": lambda rng: rng.betavariate(0.2, 20),
    "hard once in 10,000": lambda rng: 0.7 if rng.random() < 1e-4 else 0.01,
}
PLANNED = ((1_023, 3), (16_383, 4))
"""Steps and k."""


def measurement(rng: Random, rate_of: Callable[[Random], float]) -> tuple[ModelMeasurement, list[float]]:
    """Samples of steps in two stages, and the error rates of the steps."""
    rates, steps = [rate_of(rng) for _ in range(STEPS)], []
    for number, rate in enumerate(rates):
        drawn = [rng.random() < rate for _ in range(2)]
        drawn += [rng.random() < rate for _ in range(8 if any(drawn) else 0)]
        steps.append(MeasuredStep(number, len(drawn), 2, tuple(map(int, drawn)), (True, False), {}))
    found = ModelMeasurement(
        model="planted",
        run_id="",
        total=10**6,
        steps=tuple(steps),
        calls=1,
        input_tokens=0,
        output_tokens=0,
        cost_usd=None,
    )
    return found, rates


def lost(rate: float, k: int) -> float:
    """Chance that a random walk from 0 reaches k before -k, where it rises with this chance: solved as a chain of states."""
    at = [0.0] * (2 * k) + [1.0]
    if not 0 < rate < 1:
        return float(rate == 1)
    # Thomas's elimination of at[i] = rate * at[i + 1] + (1 - rate) * at[i - 1].
    up = [0.0] * (2 * k + 1)
    for state in range(1, 2 * k):
        up[state] = rate / (1 - (1 - rate) * up[state - 1])
    for state in range(2 * k - 1, 0, -1):
        at[state] = up[state] * at[state + 1]
    return at[k]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=int, default=100)
    plans = parser.parse_args().plans
    print(
        f"{'profile':<20} {'p held':>7} {'hard found':>11} {'false':>6}",
        *(f"{f'{s:,} at k={k}':>15}" for s, k in PLANNED),
    )
    for name, rate_of in PROFILES.items():
        true = [rate_of(Random(f"truth {number}")) for number in range(100_000)]
        mean = sum(true) / len(true)
        losses = {k: sum(lost(rate, k) for rate in true) / len(true) for _, k in PLANNED}
        held, found, planted, false, agreed = 0, 0, 0, 0, dict.fromkeys(PLANNED, 0)
        for seed in range(plans):
            rng = Random(seed)
            made, rates = measurement(rng, rate_of)
            held += made.p.low <= 1 - mean <= made.p.high
            hard = {number for number, rate in enumerate(rates) if rate > 0.5}
            planted, found, false = (
                planted + len(hard),
                found + len(hard & set(made.hard)),
                false + len(set(made.hard) - hard),
            )
            for steps, k in PLANNED:
                chance = exp(steps * log1p(-losses[k]))
                low, high = exact_interval(sum(rng.random() < chance for _ in range(RUNS)), RUNS)
                told = made.chances(k, steps).measured
                agreed[steps, k] += told.low <= high and low <= told.high
        print(
            f"{name:<20} {held:>7} {f'{found} of {planted}':>11} {false:>6}",
            *(f"{each:>15}" for each in agreed.values()),
            flush=True,
        )


if __name__ == "__main__":
    main()
