"""What a pool loses to elections that end as contested: ``python -m tests.benchmarks.contested [--runs 100] [--beyond 6]``.

Two models take turns. Each is wrong in .45 of its replies at 30 of 1,000 steps of its own, and in .003 at the others, always with the same
wrong reply. The engine does whole runs; beside it stands a Monte Carlo of single elections that knows nothing of the engine: a list of
votes, the first to be ahead by k, and the number of votes of each model, all alike, that end the election without a decision.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from math import inf, prod
from random import Random
from unittest.mock import patch

from microagents import Call, Model, Sample, Usage, run_sync
from microagents.elections import rules
from microagents.replies.reply_forms import write
from microagents.systems import Maker
from microagents.tasks.drift import RING, Drift, Onward
from tests.benchmarks.harness import options_of
from tests.evidence import Figure, of_trials

STEPS, OWN, HARD, EASY = 1_000, 30, 0.45, 0.003
KS = (2, 3, 4)
TRIALS = 400_000
"""Elections of each kind in the Monte Carlo."""


@cache
def way() -> list[int]:
    """The numbers of the right walk, in their order, and the one that it ends at."""
    numbers = [Drift().start().number]
    for _ in range(STEPS):
        numbers.append((numbers[-1] * 17 + 5) % RING)
    return numbers


class Errs(Model):
    """A model of the pool."""

    priced = True

    def __init__(self, turn: int) -> None:
        self.spec = f"model {turn}"
        self._hard = frozenset(way()[turn : 2 * OWN : 2])

    async def complete(self, call: Call) -> Sample:
        number = int(call.prompt.user.removeprefix("Number: "))
        rng = Random(f"{self.spec} {call.id.election.path} {call.id.seq}")
        is_wrong = rng.random() < (HARD if number in self._hard else EASY)
        reply = Onward(number=(number * 17 + 5 + is_wrong) % RING)
        return Sample(text=write(reply), usage=Usage(output_tokens=5, cost_usd=0.0))


def by_engine(k: int, beyond: float, runs: int) -> int:
    """Number of runs that end at the right number."""
    task = Drift(length=STEPS)
    with patch.object(rules, "BEYOND", beyond):
        result = run_sync([task] * runs, models=[Errs(0), Errs(1)], strategy=Maker(k=k, speculate=False), runs_dir=None)
    return sum(each is not None and each["number"] == way()[-1] for each in result.recorded)


def by_monte_carlo(k: int, beyond: float, trials: int = TRIALS) -> float:
    """Chance that all steps are decided right, from the share of each kind of step."""
    kinds = {(HARD, EASY): OWN, (EASY, HARD): OWN, (EASY, EASY): STEPS - 2 * OWN}
    rng = Random(f"{k} {beyond}")
    return prod(
        (sum(_is_right(errors, k, k + beyond, rng) for _ in range(trials)) / trials) ** steps
        for errors, steps in kinds.items()
    )


def _is_right(errors: Sequence[float], k: int, alike: float, rng: Random) -> bool:
    """Draw one election, the first vote by either model; False if it is decided wrong, or contested."""
    turn, lead = rng.randrange(2), 0
    wrong, votes = [0, 0], [0, 0]
    while abs(lead) < k:
        is_wrong = rng.random() < errors[turn]
        lead += -1 if is_wrong else 1
        wrong[turn] += is_wrong
        votes[turn] += 1
        if abs(lead) < k and min(votes) >= alike and wrong in ([0, votes[1]], [votes[0], 0]):
            return False
        turn = 1 - turn
    return lead > 0


def compare(k: int, beyond: float, runs: int, trials: int = TRIALS) -> Figure:
    """The share of the engine's runs that are right beside the chance by the Monte Carlo."""
    chance = by_monte_carlo(k, beyond, trials)
    return of_trials(f"k + {beyond:g} votes each, k = {k}", by_engine(k, beyond, runs), runs, [chance], "")


def main() -> int:
    """Print both, and where they differ."""
    given = options_of(__doc__, runs=100, trials=TRIALS, beyond=[inf, 0, rules.BEYOND])
    differs = False
    for beyond in given.beyond:
        for k in KS:
            found = compare(k, beyond, given.runs, given.trials)
            differs |= not found.holds
            print(
                f"contested at {found.says}: {STEPS:,} steps right {found.expected:.3f}, "
                f"by the engine {found.ours:.3f} ({found.low:.3f} to {found.high:.3f}){' OUTSIDE' * (not found.holds)}",
                flush=True,
            )
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
