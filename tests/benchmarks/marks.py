"""Whether the marks of plans hold: python -m tests.benchmarks.marks [--worlds N] [--only KIND] [--jobs N] [--seed N].

Each world is a chain whose replies to every step are planted. The product measures and plans it; the truth of a plan is computed here, by
the law of each step's race, from the planted shares. Of worlds with all steps sampled, a mark must be right. Of others no mark is
expected, and the sentence "enough if none of the unsampled steps errs more often than the worst sampled one" must be right where none
does. Where a plan asks for more draws of the sampled steps before it says so, they are drawn. Exit code 1 if an aim is missed.
"""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
from msgspec import Struct

from microagents import Call, Model, Sample, measure, plan
from microagents.replies.chat import Usage
from microagents.studies.measured import ModelMeasurement
from microagents.studies.measuring import ALL
from microagents.studies.planned_runs import PlannedRuns
from microagents.tasks.drift import RING, Drift
from tests.benchmarks.harness import options_of
from tests.benchmarks.step_rates import Law, ended

STEPS, TARGET, MOST_K, CAP = 1_000, 0.95, 12, 100
AIM_RIGHT, AIM_MARKED = 0.95, 0.5
ELECTIONS = 20_000
"""Number of elections that are held at a step with several wrong replies, to know how often it is lost."""


# -- worlds -------------------------------------------------------------------------------------------------------------


def against(errors: Sequence[float], shares: Sequence[float] = (1.0,)) -> list[Law]:
    """Plant error rates; each wrong reply to a step has its share of them."""
    return [(1 - error, *[error * share for share in shares]) for error in errors]


def mixture(rng: np.random.Generator, steps: int) -> list[Law]:
    """A few hard and a few difficult steps among easy ones."""
    rates, weights = (0.003, 0.15, 0.3, 0.6), (0.955, 0.03, 0.0145, 0.0005)
    return against(rng.choice(rates, size=steps, p=weights).tolist())


def ladder(rng: np.random.Generator, steps: int) -> list[Law]:
    """Rates that rise in stairs; the last stair differs from world to world."""
    top = rng.uniform(0.05, 0.42)
    return against(np.repeat(np.geomspace(0.001, top, 10), steps // 10).tolist())


def alike(rng: np.random.Generator, steps: int) -> list[Law]:
    """Beta-distributed rates; the wrong replies to a step mostly agree."""
    return against(np.minimum(rng.beta(0.7, rng.uniform(10, 60), steps), 0.95).round(2).tolist(), (0.8, 0.1, 0.1))


def beta(rng: np.random.Generator, steps: int) -> list[Law]:
    """Beta-distributed rates of one wrong reply, from nearly equal to very unequal."""
    shape = rng.uniform(0.3, 4)
    return against(np.minimum(rng.beta(shape, shape * rng.uniform(12, 80), steps), 0.98).tolist())


def one_hard(rng: np.random.Generator, steps: int) -> list[Law]:
    """No hard step or one, or two, among steps with one rate."""
    errors = np.full(steps, rng.uniform(0.002, 0.1))
    errors[rng.choice(steps, size=rng.poisson(0.5), replace=False)] = rng.uniform(0.5, 0.9)
    return against(errors.tolist())


def near_half(rng: np.random.Generator, steps: int) -> list[Law]:
    """Some steps just below one half."""
    errors = np.full(steps, 0.01)
    errors[rng.choice(steps, size=rng.poisson(2), replace=False)] = rng.uniform(0.3, 0.48)
    return against(errors.tolist())


def scattered(rng: np.random.Generator, steps: int) -> list[Law]:
    """Right replies with .4 to .9 at some steps, among ten wrong ones that are all different."""
    right = np.where(rng.random(steps) < 0.05, rng.choice([0.4, 0.5, 0.7, 0.9], size=steps), 0.99)
    return against((1 - right).tolist(), (0.1,) * 10)


def drifting(rng: np.random.Generator, steps: int) -> list[Law]:
    """Rates that change slowly along the chain."""
    walk = np.cumsum(rng.normal(0, 0.06, steps))
    return against((1 / (1 + np.exp(5 - (walk - walk.mean())))).tolist())


def equal(rng: np.random.Generator, steps: int) -> list[Law]:
    """One rate."""
    return against([float(rng.uniform(0.001, 0.25))] * steps)


WORLDS: dict[str, Callable[[np.random.Generator, int], list[Law]]] = {
    each.__name__: each for each in (equal, beta, alike, scattered, mixture, ladder, one_hard, near_half, drifting)
}


# -- the truth ----------------------------------------------------------------------------------------------------------


def lost_to_one(error: float, k: int) -> float:
    """Chance that a race against one rival does not end for the right reply within the cap: vote by vote."""
    alive, won = np.zeros(2 * k + 1), 0.0
    alive[k] = 1.0  # index 0 is lost, the last one won
    for _ in range(CAP):
        ahead, behind = alive * (1 - error), alive * error
        alive = np.zeros(2 * k + 1)
        alive[1:] += ahead[:-1]
        alive[:-1] += behind[1:]
        won += alive[-1]
        alive[0] = alive[-1] = 0.0
    return 1 - won


def lost(law: Law, k: int) -> float:
    """Chance that a step is not decided right by a lead of k votes."""
    if k == 1:
        return 1 - law[0]
    if len(law) == 2:
        return lost_to_one(law[1], k)
    return 1 - ended(law, k, np.random.default_rng(k), ELECTIONS).right


def chance(laws: Sequence[Law], k: int) -> float:
    """Chance that all steps are decided right."""
    number = {law: laws.count(law) for law in dict.fromkeys(laws)}
    return float(math.prod((1 - lost(law, k)) ** count for law, count in number.items()))


def worst(laws: Sequence[Law]) -> float:
    """Greatest error rate of some steps; 0 of none."""
    return max((1 - law[0] for law in laws), default=0.0)


# -- the product --------------------------------------------------------------------------------------------------------


class Planted(Model):
    """Gives the replies to each step of `Drift` by their planted shares."""

    answers_at_once = True
    throttled_as = None

    def __init__(self, laws: Sequence[Law], seed: int) -> None:
        self._laws, self._seed = laws, seed

    async def complete(self, call: Call) -> Sample:
        """Draw one reply by its key."""
        path = call.id.election.path
        law = self._laws[int(path.split("/")[2])]
        rng = Random(f"{self._seed}/{path}/{call.id.seq}")
        (vote,) = rng.choices(range(len(law)), law)
        number = int(call.prompt.user.partition("\n")[0].removeprefix("Number: "))
        text = f"number = {(number * 17 + 5 + vote) % RING}"
        return Sample(text=text, finish="stop", usage=Usage(input_tokens=50, output_tokens=10))


class Told(Struct, frozen=True, kw_only=True):
    """The advice of one plan, held against the truth."""

    kind: str
    sampled: int
    is_marked: bool
    """Whether a row is marked."""
    is_right: bool | None
    """Whether the k of the marked row, or of the sentence, is enough; None without either. What a ladder mends is not counted."""
    row: str
    is_condition_true: bool
    """Whether none of the unsampled steps errs more often than the worst sampled one."""
    is_possible: bool
    """Whether some k up to `MOST_K` is enough."""
    is_drawn_again: bool = False
    """Whether the plan asked for more draws of the sampled steps."""


def advised(task: Drift, laws: Sequence[Law], seed: int, **asked: Any) -> tuple[ModelMeasurement, PlannedRuns | None]:
    """Measure and plan; no plan if voting hurts."""
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(measure(task, Planted(laws, seed), runs_dir=folder, seed=seed, **asked))
    (model,) = found.models
    return model, None if model.verdict()[0] == "voting-hurts" else plan(task, found, target=TARGET)


def told_of(of_world: tuple[str, int, int, int]) -> Told:
    """Make a world by its kind, number of sampled steps, number and seed; measure it and plan it, with more draws where the plan asks."""
    kind, sampled, world, seed = of_world
    rng = np.random.default_rng([seed, world, list(WORLDS).index(kind)])
    laws, task = WORLDS[kind](rng, STEPS), Drift(length=STEPS)
    model, planned = advised(task, laws, world, steps=sampled)
    is_drawn_again = planned is not None and planned.needed is not None
    if is_drawn_again:
        model, planned = advised(task, laws, world, steps=sampled, draws=ALL)
    sampled_steps = {each.number for each in model.steps}
    unsampled = [law for step, law in enumerate(laws) if step not in sampled_steps]
    row = None if planned is None else planned.best or planned.assumed
    return Told(
        kind=kind,
        sampled=sampled,
        is_marked=row is not None and row.is_best,
        is_right=None if row is None else chance(laws, row.k or 1) >= TARGET,
        row="-" if row is None else " ".join([row.strategy, f"k={row.k}", *row.options.values()]),
        is_condition_true=worst(unsampled) <= worst([laws[step] for step in sampled_steps]),
        is_possible=any(chance(laws, k) >= TARGET for k in range(1, MOST_K + 1)),
        is_drawn_again=is_drawn_again,
    )


def share(found: Sequence[bool | None]) -> str:
    """Write a share with its counts."""
    right = sum(each is True for each in found)
    return f"{right} of {len(found)}" + (f" ({right / len(found):.3f})" if found else "")


def summary(told: Sequence[Told]) -> list[str]:
    """Write what the marks of some worlds came to, by the number of sampled steps; an aim that is missed says OUTSIDE."""
    lines = []
    for sampled in dict.fromkeys(each.sampled for each in told):
        of = [each for each in told if each.sampled == sampled]
        marks = [each.is_right for each in of if each.is_marked]
        possible = [each.is_marked for each in of if each.is_possible]
        sentences = [each for each in of if each.is_right is not None and not each.is_marked]
        holding_worlds = [each for each in sentences if each.is_condition_true]
        holding = [each.is_right for each in holding_worlds]
        if sampled == STEPS:
            is_met = sum(map(bool, marks)) >= AIM_RIGHT * len(marks) and sum(possible) >= AIM_MARKED * len(possible)
            said = f"marks right {share(marks)}, plans marked where some k <= {MOST_K} is enough {share(possible)}"
        else:
            is_met = not marks and sum(map(bool, holding)) >= AIM_RIGHT * len(holding)
            true = [each in holding_worlds for each in of if each.is_condition_true and each.is_possible]
            said = (
                f"marks {len(marks)}, asked for more draws {sum(each.is_drawn_again for each in of)}, sentences {len(sentences)}, "
                f"right where their condition holds {share(holding)}, said where it does and some k <= {MOST_K} is enough {share(true)}"
            )
        lines.append(f"{sampled:,} of {STEPS:,} steps sampled, {len(of)} worlds: {said}{'' if is_met else '  OUTSIDE'}")
    return lines


def main() -> None:
    of = options_of(__doc__, worlds=12, only=WORLDS, sampled=[STEPS, 300, 100], jobs=1, seed=11)
    each = [(kind, sampled, world, of.seed) for world in range(of.worlds) for sampled in of.sampled for kind in of.only]
    told = list[Told]()
    with multiprocessing.get_context("spawn").Pool(of.jobs) as pool:
        for found in pool.imap(told_of, each):
            told.append(found)
            print(found, flush=True)
    for sampled in of.sampled:
        for kind in of.only:
            own = [one for one in told if (one.kind, one.sampled) == (kind, sampled)]
            said = summary(own)[0].partition(": ")[2].removesuffix("  OUTSIDE")
            print(f"{kind}, {sampled:,}: {said}", flush=True)
    lines = summary(told)
    print(*lines, sep="\n")
    sys.exit(any("OUTSIDE" in line for line in lines))


if __name__ == "__main__":
    main()
