"""LEAD against voting and long replies on puzzles with hard steps: ``python -m tests.benchmarks.lead``.

`--part table` is the paper's table 1 in our form: the engine's success at Checkers Jumping beside a Monte Carlo of the algorithms, written
from the paper alone (`lead_monte_carlo`): it knows no reuse, discards nothing and has no cap. `--part reuse` compares the rollouts that are
drawn with and without reuse where hard steps come in clusters. `--part ladder` is a long chain with the ladder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from math import ceil, sqrt
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from msgspec import Struct

from microagents import Prompt, Result, run
from microagents.actors.role import Strategy
from microagents.journal.reading import Reader
from microagents.models.model import ModelSpec
from microagents.models.simulation.simulated import SimulatedModel
from microagents.replies.reply_forms import system_with_instructions
from microagents.systems import IterativeRestart, Lead, Maker, SingleShot
from microagents.task import ChainTask, chain_types
from microagents.tasks.checkers import Checkers
from microagents.tasks.drift import Drift
from microagents.tasks.hanoi import HanoiStep
from tests.benchmarks import lead_monte_carlo as monte_carlo
from tests.benchmarks.first_steps import FirstSteps
from tests.benchmarks.harness import options_of

TABLE = {"error": 0.01, "hard": 0.01, "hard_error": 0.6, "hard_ahead": 0.1, "decay": 0.002}
"""The model of the table: fixed before the first run, and the same for all strategies."""
LADDER = {"error": 0.0022, "hard": 0.02, "hard_error": 0.7, "hard_ahead": 0.1}
"""The model of the ladder: 2 % of steps hard, right .3 alone and .9 in a rollout from two or more steps before."""
SIGMAS_99 = 2.5758
TRIALS = 4_000
ROWS: list[tuple[str, Strategy]] = [
    ("atomic (maker -k 1)", Maker(k=1)),
    ("voted (maker -k 3)", Maker(k=3)),
    ("lead as in the paper, h=3", Lead(history=3, reuse=False, contradicting="count")),
    ("lead as in the paper, h=4", Lead(history=4, reuse=False, contradicting="count")),
    ("lead", Lead()),
    ("lead, history=4", Lead(history=4)),
    ("lead, history=8 margin=4", Lead(history=8, margin=4)),
    ("iterative-restart", IterativeRestart()),
    ("single-shot", SingleShot()),
]


def spec(rates: dict[str, float]) -> str:
    """A simulated model with these rates."""
    return "sim:perfect@" + ",".join(f"{name}={rate}" for name, rate in rates.items())


def hard_steps(task: ChainTask[Any, Any], model: str, seed: int) -> tuple[int, ...]:
    """The steps along the right way that are hard for a simulated model."""
    simulated = SimulatedModel(ModelSpec.parse(model), [task], seed)
    state, found, number = task.start(), [], 0
    while not task.done(state):
        if simulated.is_hard(_as_asked(task, state)):
            found.append(number)
        state, number = task.advance(state, task.oracle(state)), number + 1
    return tuple(found)


def _as_asked(task: ChainTask[Any, Any], state: Any) -> Prompt:
    asked = task.prompt(state)
    return Prompt(
        system=system_with_instructions(asked.system, chain_types(type(task))[1], task.format), user=asked.user
    )


def chance_of(strategy: Strategy, coins: monte_carlo.Coins, random: Random) -> float:
    """The chance of success by Monte Carlo."""
    trial: Callable[[], bool]
    match strategy:
        case Maker():
            trial = partial(monte_carlo.voted, coins, strategy.k, random)
        case Lead():
            trial = partial(monte_carlo.led, coins, monte_carlo.Lead(h=strategy.history, t=strategy.margin), random)
        case IterativeRestart():
            trial = partial(monte_carlo.restarted, coins, strategy.horizon, random)
        case _:
            trial = partial(monte_carlo.restarted, coins, coins.steps, random)
    return sum(trial() for _ in range(TRIALS)) / TRIALS


async def solved(
    task: ChainTask[Any, Any], strategy: Strategy, model: str, *, repeat: int, seed: int, **control: Any
) -> tuple[int, Result]:
    """The number of inputs that were solved."""
    result = await run([task] * repeat, models=model, strategy=strategy, seed=seed, runs_dir=None, **control)
    return sum(isinstance(each, dict) and each["solved"] is True for each in result.value), result


async def table(sizes: list[int], repeat: int, seed: int) -> None:
    """Print table 1 in our form."""
    model = spec(TABLE)
    print(
        f"{model}, seed {seed}, {repeat} inputs a row; interval: 99 % of the Monte Carlo's chance at that number of inputs"
    )
    for n in sizes:
        task = Checkers(n=n)
        coins = monte_carlo.Coins(
            steps=(n + 1) ** 2 - 1,
            hard=hard_steps(task, model, seed),
            error=TABLE["error"],
            hard_error=TABLE["hard_error"],
            hard_ahead=TABLE["hard_ahead"],
            decay=TABLE["decay"],
        )
        print(f"n = {n}: {coins.steps} steps, hard: {', '.join(map(str, coins.hard)) or 'none'}")
        for name, strategy in ROWS:
            chance = chance_of(strategy, coins, Random(f"{n} {name}"))
            right, result = await solved(task, strategy, model, repeat=repeat, seed=seed)
            half = SIGMAS_99 * sqrt(chance * (1 - chance) / repeat) + 0.5 / repeat
            inside = abs(right / repeat - chance) <= half
            low, high = max(0.0, chance - half), min(1.0, chance + half)
            print(
                f"  {name:<26} {right / repeat:6.1%}   Monte Carlo {chance:6.1%} ({low:.1%} to {high:.1%}) "
                f"{'inside' if inside else 'OUTSIDE'}   {result.calls / repeat:9,.1f} calls an input"
            )


async def reuse(steps: int, seed: int) -> None:
    """Print the rollouts with and without reuse, where so many steps are hard that they stand in clusters."""
    for hard in (0.02, 0.1, 0.3, 0.5):
        drawn, errors = {}, {}
        for kept in (True, False):
            # From the oracle's states: both sides then come to the same steps, whatever they decide.
            strategy = Lead(history=4, reuse=kept, known_inputs=True)
            model = f"sim:perfect@error=0.002,hard={hard},hard_error=0.6"
            account = (
                await run(Drift(length=steps), models=model, strategy=strategy, seed=seed, runs_dir=None)
            ).account
            drawn[kept], errors[kept] = account.samples, account.errors
        saved = 1 - drawn[True] / drawn[False]
        print(
            f"{hard:.0%} of {steps:,} steps hard: {drawn[True]:,} rollouts with reuse, {drawn[False]:,} without: {saved:.0%} fewer; "
            f"{errors[True]} and {errors[False]} wrong decisions"
        )


class Walked(Struct, kw_only=True):
    """What became of the hard steps and of the easy ones of a run."""

    hard: int = 0
    hard_right: int = 0
    easy: int = 0
    easy_climbed: int = 0


async def ladder(steps: int, seed: int, k: int) -> None:
    """Print what a ladder does on a long chain, beside the same chain without hard steps.

    Every step is asked in the oracle's state: after a wrong decision, a chain would come to other steps than those that are counted.
    """
    task = FirstSteps(disks=20, length=steps)
    strategy = Maker(
        k=k,
        ladder="lookahead",
        p=1 - LADDER["error"],
        false_alarms=ceil(0.005 * steps),
        history=6,
        margin=4,
        known_inputs=True,
    )
    calls = []
    for name, rates in (("no hard steps", {**LADDER, "hard": 0}), ("2 % hard steps", LADDER)):
        with TemporaryDirectory() as folder:
            result = await run(task, models=spec(rates), strategy=strategy, seed=seed, runs_dir=folder)
            found = walked(task, result, spec(rates), seed)
        calls.append(result.calls)
        print(
            f"{name}: {result.calls:,} calls, {result.account.errors} wrong decisions; climbed: {found.easy_climbed:,} of {found.easy:,} "
            f"easy steps ({found.easy_climbed / found.easy:.2%}); right in the end: {found.hard_right:,} of {found.hard:,} hard steps"
            + (f" ({found.hard_right / found.hard:.1%})" if found.hard else "")
        )
    print(f"calls with hard steps / without: {calls[1] / calls[0]:.3f}")


def walked(task: FirstSteps, result: Result, model: str, seed: int) -> Walked:
    """Count hard and easy steps."""
    simulated = SimulatedModel(ModelSpec.parse(model), [task], seed)
    assert result.journal is not None
    with Reader(result.journal) as reader:
        rows = {path: row for path, row in reader.decisions() if path.startswith("0/step/")}
    found, state = Walked(), task.start()
    for number in range(task.length):
        row = rows[f"0/step/{number}"]
        has_climbed = row.outcome == "climbed"
        value = rows[f"0/step/{number}/lookahead"].value if has_climbed else row.value
        assert value is not None
        reply = msgspec.json.decode(value, type=HanoiStep)
        if simulated.is_hard(_as_asked(task, state)):
            found.hard += 1
            found.hard_right += task.correct(state, reply) is True
        else:
            found.easy += 1
            found.easy_climbed += has_climbed
        state = task.advance(state, task.oracle(state))
    return found


def main() -> None:
    """Print the parts."""
    options = options_of(
        __doc__, part=("table", "reuse", "ladder"), size=[11, 12, 13], repeat=100, steps=10_000, k=14, seed=0
    )
    for part in options.part:
        match part:
            case "table":
                asyncio.run(table(options.size, options.repeat, options.seed))
            case "reuse":
                asyncio.run(reuse(1_000, options.seed))
            case _:
                asyncio.run(ladder(options.steps, options.seed, options.k))


if __name__ == "__main__":
    main()
