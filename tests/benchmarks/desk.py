"""The desk with single calls and with votes by harm: ``python -m tests.benchmarks.desk``.

Each ticket is done several times by a model that is right at 97 % of the actions. Success (pass^1), the chance that four trials of one
ticket succeed (pass^4) and calls stand beside a Monte Carlo that does not use the engine (`desk_monte_carlo`), and beside the law of the
worst case. The world's database is the judge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod, sqrt
from pathlib import Path
from random import Random
from statistics import fmean, stdev
from tempfile import TemporaryDirectory

from msgspec import Struct

from microagents import run_sync
from microagents.elections.laws import pass_k
from microagents.studies.trials import margins_of
from microagents.systems.agents.act import Act
from microagents.tasks.desk import Desk
from microagents.tasks.desk_world import case_of
from tests.benchmarks.desk_monte_carlo import Margins, ticket
from tests.benchmarks.harness import options_of

ERROR = 0.03
MODEL = f"sim:perfect@error={ERROR},alternatives=9"
ROWS = {"single calls": Act(k_read=1, k_write=1, k_destructive=1, k_end=1), "act": Act()}
SIGMAS_99 = 2.935
"""Standard errors that 99 % of three independent differences stay within, all at once."""
MONTE_CARLO = 100
"""Trials of each ticket in the Monte Carlo."""


class Measured(Struct, frozen=True, kw_only=True):
    """Means over tickets, with their standard errors."""

    pass_1: tuple[float, float]
    pass_4: tuple[float, float]
    calls: tuple[float, float]
    """Calls of the model in a trial."""

    def shown(self) -> str:
        """The means as text."""
        return f"pass^1 {self.pass_1[0]:.3f}, pass^4 {self.pass_4[0]:.3f}, calls {self.calls[0]:.2f}"

    def agrees(self, other: Measured) -> bool:
        """Whether all means of the two differ by no more than 99 % of such differences do."""
        return all(
            abs(own[0] - others[0]) <= SIGMAS_99 * sqrt(own[1] ** 2 + others[1] ** 2) + 0.002
            for own, others in ((self.pass_1, other.pass_1), (self.pass_4, other.pass_4), (self.calls, other.calls))
        )


def measured(trials: Sequence[Sequence[tuple[bool, int]]]) -> Measured:
    """The figures of some tickets, each with its trials."""
    right = [sum(is_right for is_right, _ in each) for each in trials]
    return Measured(
        pass_1=_mean([pass_k(each, len(done), 1) for each, done in zip(right, trials, strict=True)]),
        pass_4=_mean([pass_k(each, len(done), 4) for each, done in zip(right, trials, strict=True)]),
        calls=_mean([fmean(calls for _, calls in each) for each in trials]),
    )


def rows(tickets: int, trials: int, seed: int) -> Iterator[tuple[str, Act, Measured, Measured]]:
    """For each way to act the figures of the engine and of the Monte Carlo."""
    for name, strategy in ROWS.items():
        with TemporaryDirectory() as folder:
            engine = by_engine(strategy, tickets, trials, seed, Path(folder))
        yield name, strategy, engine, by_monte_carlo(strategy, tickets, seed)


def _mean(values: Sequence[float]) -> tuple[float, float]:
    return fmean(values), stdev(values) / sqrt(len(values))


def by_engine(strategy: Act, tickets: int, trials: int, seed: int, folder: Path) -> Measured:
    """Do tickets with the engine. Its calls are known for all trials together, so their error is that of the Monte Carlo's."""
    inputs = [
        Desk(ticket=number, world=str(folder / "desk.sqlite"))
        for number in range(1, tickets + 1)
        for _ in range(trials)
    ]
    result = run_sync(inputs, models=MODEL, strategy=strategy, seed=seed, runs_dir=None)
    done = [bool(value and value["correct"]) for value in result.value]
    calls = result.calls / len(inputs)
    found = measured([[(is_right, 0) for is_right in done[at : at + trials]] for at in range(0, len(done), trials)])
    error = by_monte_carlo(strategy, tickets, seed + 1, trials).calls[1]
    return Measured(pass_1=found.pass_1, pass_4=found.pass_4, calls=(calls, error))


def by_monte_carlo(strategy: Act, tickets: int, seed: int, trials: int = MONTE_CARLO) -> Measured:
    """Do the same tickets without the engine, each more often."""
    random = Random(seed)
    margins = Margins(
        read=strategy.k_read, write=strategy.k_write, destructive=strategy.k_destructive, end=strategy.k_end
    )
    return measured(
        [
            [ticket(ERROR, margins, random, is_due=case_of(number).is_due) for _ in range(trials)]
            for number in range(1, tickets + 1)
        ]
    )


def law(strategy: Act, tickets: int) -> str:
    """The worst case, as text: all wrong replies are one action that does harm, of the kind with the smallest margin.

    Each action is then the gambler's ruin from its own margin to that of the rival (Feller, volume 1, XIV.2).
    """
    margins, odds, found = margins_of(strategy), ERROR / (1 - ERROR), []
    rival = min(margin for kind, margin in margins.items() if kind != "read")
    kept = {kind: 1 - odds**rival * (1 - odds**k) / (1 - odds ** (k + rival)) for kind, k in margins.items()}
    for number in range(1, tickets + 1):
        actions = {"read": 5, "write": 1, "destructive": 1 + case_of(number).is_due, "end": 1}
        found.append(prod(kept[kind] ** times for kind, times in actions.items()))
    return f"pass^1 {fmean(found):.3f}, pass^4 {fmean(each**4 for each in found):.3f}"


def main() -> None:
    """Print a row for each way to act."""
    options = options_of(__doc__, tickets=200, trials=8, seed=0)
    calls = []
    for name, strategy, engine, simulated in rows(options.tickets, options.trials, options.seed):
        calls.append(engine.calls[0])
        print(f"{name}: {engine.shown()}")
        print(f"  Monte Carlo: {simulated.shown()}; {'agrees' if engine.agrees(simulated) else 'DIFFERS'}")
        print(f"  law of the worst case: {law(strategy, options.tickets)}")
    print(f"calls of act / of single calls: {calls[1] / calls[0]:.2f}")


if __name__ == "__main__":
    main()
