"""What trials of an agent say: error rates of its actions by kind, and the chance of a trial with other margins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from math import exp, fsum, log1p
from typing import Any

from msgspec import Struct

from microagents.base.errors import InvalidUsage
from microagents.elections.laws import uneven_race_lost, uneven_race_votes
from microagents.elections.race_tables import ERRORS
from microagents.elections.step_rates import SeenStep, StepRates, ends_of
from microagents.studies.measured import Proportion, proportion, proportion_of

LEAST = 0.5001
"""Share of right replies, above one half, from which on the laws of races hold."""


@lru_cache(maxsize=16)
def rates_of(seen: tuple[SeenStep, ...]) -> StepRates:
    """Return the error rates of actions by the votes for each."""
    return StepRates(seen, len(seen))


class MeasuredAction(Struct, frozen=True, kw_only=True):
    """Actions of one kind. Of a trial that fails, they are those up to the one with the least lead, which counts as the wrong one."""

    kind: str
    """`read`, `write`, `destructive` or `end`."""
    a_trial: float
    """Mean number in a trial that succeeds."""
    seen: tuple[SeenStep, ...]
    """Votes for each action."""
    p: Proportion
    """Share of the valid replies that are the right action, over actions."""
    same_wrong: float
    """Share of the other replies of an action that are its most frequent other one: 1 if all errors are one."""


class AgentMeasurement(Struct, frozen=True, kw_only=True, dict=True):
    """What trials of an agent say of one model, or of a pool."""

    models: tuple[str, ...]
    """One model, or those of a pool, whose samples alternate."""
    run_id: str
    draws: int
    """Number of samples of each action."""
    trials: int
    succeeded: int
    """Number of trials that `check` finds right."""
    unseen: int
    """Number of other trials in which every action had all its votes: errors that no vote sees, and no margin mends."""
    actions: tuple[MeasuredAction, ...]
    calls: int
    cost_usd: float | None

    @property
    def name(self) -> str:
        """Names of the models."""
        return ", ".join(self.models)

    @cached_property
    def success(self) -> Proportion:
        """Share of the trials that succeed, with each action decided by plurality."""
        return proportion(self.succeeded, self.trials)

    def at(self, margins: Mapping[str, int]) -> tuple[Proportion, float]:
        """Compute the chance that a trial succeeds with margins by kind of action, and its calls.

        By the races of each kind at error rates that differ from action to action as its votes say, all wrong replies of an action being
        one that does harm.

        Raises:
            InvalidUsage: no trial succeeded, so nothing is known of the actions.
        """
        if not self.succeeded:
            raise InvalidUsage(f"no trial of {self.run_id!r} succeeded, so nothing is known of its actions")
        rival = _margin_of_rival([each.kind for each in self.actions], margins)
        kept: Any = 1.0
        votes = 0.0
        for each in self.actions:
            k, rates = margins[each.kind], rates_of(each.seen)
            lost, raced = (rates.populations @ [_race(1 - error, k, rival) for error in ERRORS]).T
            kept = kept * (1 - lost) ** each.a_trial
            votes += each.a_trial * float((raced * rates.replies[1]).mean())
        return proportion_of(ends_of(kept)), votes


def trial_law(actions: Sequence[tuple[str, float, float]], margins: Mapping[str, int]) -> tuple[float, float]:
    """Compute the chance that a trial succeeds, and its votes, by MAKER's races between the margins of an action and of its rival.

    The worst case: all wrong replies are one action that does harm, of the kind with the smallest margin.

    Args:
        actions: for each kind of action its number and the share of right replies.
        margins: the margin of each kind.
    """
    rival = _margin_of_rival([kind for kind, _, _ in actions], margins)
    races = [(n, _race(p, margins[kind], rival)) for kind, n, p in actions]
    kept = fsum(n * log1p(-min(lost, 1 - 1e-12)) for n, (lost, _) in races)
    return exp(kept), fsum(n * votes for n, (_, votes) in races)


def _margin_of_rival(kinds: Iterable[str], margins: Mapping[str, int]) -> int:
    """Return the least margin of an action that does harm: an end too early is always possible, and so is each effect of the agent."""
    return min(margins[kind] for kind in {*kinds, "end"} - {"read"})


def _race(p: float, k: int, rival: int) -> tuple[float, float]:
    """Return the chance that the right action loses, and the votes."""
    if p >= LEAST:
        return uneven_race_lost(p, k, rival), uneven_race_votes(p, k, rival)
    against = max(LEAST, 1 - p)
    return 1 - uneven_race_lost(against, rival, k), uneven_race_votes(against, rival, k)
