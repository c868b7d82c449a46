"""Whether ceilings hold: python -m tests.benchmarks.ceiling [--only votes|tiny|planted] [--worlds N].

The truth is computed here, from the definition alone: one minus the mean chance that all of n draws of each model are wrong. A ceiling
holds if it is not below that. Recorded votes: measured on one half of the votes of random questions, held against the other half of all
questions. Trained models: the replies in every state are enumerated. Planted pools: three models with equal error rates and equal
correlations of every two, which all err together seldom or often: a correlation gives both the same ceiling. Exit code 1 below the aim.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence

import numpy as np

from microagents.models.tiny.trained import TinyModel
from microagents.studies.ceilings import Ceiling, ceiling_of
from microagents.studies.measuring import MeasuredStep
from microagents.tasks.checkers import Checkers
from tests.benchmarks.harness import options_of
from tests.benchmarks.step_rates import VOTES, laws_of
from tests.benchmarks.stopping import recorded

AIM, WORLDS = 0.93, 400
DRAWS, FIRST = 10, 2
SAMPLED = 200
"""Number of questions or steps of a world."""
ERROR, BOTH, ALL_RARELY, ALL_OFTEN = 0.3, 0.15, 0.02, 0.12
"""Shares of the steps that a planted model gets wrong, that two of them do, and that all three do in either pool."""

Draw = Callable[[int], Sequence[int]]
"""Gives the next samples of a step; 0 is right, and -1 flagged."""


def measured(number: int, draw: Draw, draws: int | None = None) -> MeasuredStep:
    """Draw the samples of a step: so many, or two, and ten if these are not both right."""
    samples = [*draw(draws or FIRST)]
    if draws is None and any(samples):
        samples += draw(DRAWS - FIRST)
    valid = [each for each in samples if each >= 0]
    kinds = [*dict.fromkeys(valid)]
    votes, right = tuple(map(kinds.index, valid)), tuple(kind == 0 for kind in kinds)
    first = sum(each >= 0 for each in samples[:FIRST])
    return MeasuredStep(number, len(samples), first, votes, right, {}, names=tuple(kinds))


def dealt(deck: list[int]) -> Draw:
    """Draw recorded votes without replacement."""
    return lambda count: [deck.pop() for _ in range(count)]


def drawn(p: float, rng: np.random.Generator) -> Draw:
    """Draw replies that are right with a chance."""
    return lambda count: (rng.random(count) >= p).astype(int).tolist()


def always(reply: int) -> Draw:
    """Give one reply again and again."""
    return lambda count: [reply] * count


class Held:
    """Ceilings beside the truth."""

    def __init__(self, truth: float, unanimous: float | None = None) -> None:
        self.truth, self.unanimous = truth, unanimous
        self.told: list[Ceiling] = []

    def says(self, name: str) -> bool:
        """Print the share of worlds whose ceiling holds; return whether it reaches the aim."""
        most = [each.most for each in self.told]
        held = np.mean([each >= self.truth - 1e-12 for each in most])
        said = f"{name}: truth {self.truth:.4f}, ceiling {np.mean(most):.4f} on average, holds in {held:.3f} of {len(most)}"
        is_met = bool(held >= AIM)
        if self.unanimous is not None:
            intervals = [each.unanimous for each in self.told]
            inside = np.mean([each.low - 1e-12 <= self.unanimous <= each.high + 1e-12 for each in intervals])
            said += f"; unanimous and wrong {self.unanimous:.4f}, interval holds in {inside:.3f}"
            is_met &= bool(inside >= AIM)
        print(said + "" if is_met else f"{said}  OUTSIDE", flush=True)
        return is_met


# -- recorded votes -----------------------------------------------------------------------------------------------------


def all_among(votes: Sequence[int], kind: Callable[[int], bool], draws: int) -> float:
    """Chance that so many of these votes, drawn without replacement, are all of a kind."""
    return math.comb(sum(map(kind, votes)), draws) / math.comb(len(votes), draws)


def check_votes(worlds: int) -> bool:
    """Hold ceilings of recorded votes against the other half of the votes, and the policies that they bound."""
    lines = [[int(each, 36) for each in line.votes] for line in recorded(VOTES.read_text(encoding="utf-8"))]
    half = len(lines[0]) // 2
    halves = [np.random.default_rng([1, at]).permutation(votes).tolist() for at, votes in enumerate(lines)]
    others = [votes[half:] for votes in halves]
    missed = float(np.mean([all_among(votes, bool, DRAWS) for votes in others]))
    agreed = [sum(all_among(votes, wrong.__eq__, DRAWS) for wrong in {*votes} - {0}) for votes in others]
    held = Held(1 - missed, float(np.mean(agreed)))
    for world in range(worlds):
        rng = np.random.default_rng([2, world])
        steps = []
        for at in rng.choice(len(lines), SAMPLED, replace=False):
            deck = rng.permutation(halves[at][:half]).tolist()
            steps.append(measured(int(at), dealt(deck)))
        held.told.append(ceiling_of(["recorded"], [steps]))
    firsts = [votes[:DRAWS] for votes in others]
    majority = np.mean([max(set(each), key=each.count) == 0 for each in firsts])
    print(
        f"recorded votes: right by the plurality of {DRAWS} {majority:.4f}, by the best choice among them {1 - missed:.4f}"
    )
    return held.says(f"recorded votes, {SAMPLED} of {len(lines):,} questions")


# -- trained models -------------------------------------------------------------------------------------------------------


def check_tiny(worlds: int) -> bool:
    """Hold ceilings of trained models, alone and pooled, against their enumerated replies in every state."""
    temperatures, is_met = (1.0, 0.6), True
    names, chances = [f"tiny:checkers at {each:g}" for each in temperatures], []
    for temperature in temperatures:
        laws, flagged = laws_of(TinyModel("checkers"), Checkers(n=8), temperature)
        chances.append([law[0] / sum(law) * (1 - lost) for law, lost in zip(laws, flagged, strict=True)])
    for of in (chances[:1], chances):
        for draws in (FIRST, DRAWS):
            truth = 1 - float(np.mean(np.prod([(1 - np.array(each)) ** draws for each in of], axis=0)))
            held = Held(truth)
            for world in range(worlds):
                rng = np.random.default_rng([3, world, draws, len(of)])
                at = rng.choice(len(of[0]), len(of[0]) // 2, replace=False)
                sampled = [[measured(int(n), drawn(p[n], rng), draws) for n in at] for p in of]
                held.told.append(ceiling_of(names[: len(of)], sampled))
            is_met &= held.says(f"{' and '.join(names[: len(of)])}, {draws} draws, half of {len(of[0])} states")
    return is_met


# -- planted pools --------------------------------------------------------------------------------------------------------


def pool_of(all_wrong: float) -> list[tuple[tuple[int, ...], float]]:
    """Outcomes of three models, 1 for an error, with their shares: equal errors and pairs, and this share of common errors."""
    two, one = BOTH - all_wrong, ERROR - 2 * BOTH + all_wrong
    shares = {0: 1 - 3 * one - 3 * two - all_wrong, 1: one, 2: two, 3: all_wrong}
    return [(each, shares[sum(each)]) for each in np.ndindex(2, 2, 2)]


def by_correlation() -> float:
    """Ceiling by the error rate and the correlation of two models, if common errors are beta-binomial: of any pool with these two."""
    correlation = (BOTH - ERROR**2) / (ERROR - ERROR**2)
    size = 1 / correlation - 1
    return 1 - math.prod((ERROR * size + more) / (size + more) for more in range(3))


def check_planted(worlds: int) -> bool:
    """Hold the ceilings of two pools that only their common errors tell apart."""
    is_met, told = True, by_correlation()
    for all_wrong in (ALL_RARELY, ALL_OFTEN):
        outcomes, shares = zip(*pool_of(all_wrong), strict=True)
        held = Held(1 - all_wrong)
        for world in range(worlds):
            rng = np.random.default_rng([4, world])
            wrong = np.array(outcomes)[rng.choice(len(outcomes), SAMPLED, p=shares)]
            sampled = [[measured(n, always(int(each))) for n, each in enumerate(column)] for column in wrong.T]
            held.told.append(ceiling_of(("a", "b", "c"), sampled))
        is_met &= held.says(f"planted pool, errors {ERROR}, of two {BOTH}, of all three {all_wrong}")
        fails = (
            "too high: a promise that no policy keeps"
            if told > held.truth
            else "too low: it refuses what a pool reaches"
        )
        effective = np.mean([each.effective for each in held.told])
        print(
            f"  by the correlation {told:.4f}, {abs(told - held.truth):.4f} {fails}; effective votes {effective:.2f} of 6"
        )
    return is_met


def main() -> None:
    """Print the shares of ceilings that hold."""
    parts = {"votes": check_votes, "tiny": check_tiny, "planted": check_planted}
    of = options_of(__doc__, worlds=WORLDS, only=parts)
    met = [parts[name](of.worlds) for name in of.only]
    sys.exit(not all(met))


if __name__ == "__main__":
    main()
