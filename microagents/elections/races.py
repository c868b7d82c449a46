"""One election in figures: how it ends, and after how many draws, under a rule and a cap; exactly, or by simulation.

A race is between the right reply and a number of rivals that share the wrong votes evenly. One rival is the worst case for the chance of
the right reply, but not for the number of draws: several rivals may keep each other in the race.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random
from statistics import fmean, stdev
from typing import Literal

from msgspec import Struct

from microagents.base.errors import InvalidUsage
from microagents.elections.laws import wilson_interval
from microagents.elections.rules import FirstToAheadBy, Rule, Tally

MAX_WORK = 2_000_000
"""Work on a course, in moves: some two seconds of computing. A course that takes more is left at the votes it has come to."""
NEW_STATE = 30
"""Work on a state that is met for the first time, in moves."""
EXACT = 1e-40
"""A course against one rival is followed until so little of it is open: one step of the longest task."""
CLOSE = 1e-12
"""The same against several rivals."""
TOO_RARE = 1e-16
"""With several rivals, states that are rarer than this are counted as undecided: there are too many of them."""
TRIALS = 20_000
"""Number of simulated elections."""
MAX_SIMULATED = 1_000_000
"""Number of simulated draws, after which no further election is simulated."""
MIN_TRIALS = 100
"""Fewest simulated elections that say anything."""
SIGMAS = 1.959963984540054
"""Half of a confidence interval of 95 %, in standard errors."""

_End = Literal["right", "wrong", "undecided"]
_Counts = tuple[int, ...]
"""Votes of the right reply, then of its rivals, most first."""


class Race(Struct, frozen=True, kw_only=True):
    """Votes of one election."""

    p: float
    """Probability that a vote is right."""
    rule: Rule
    rivals: int = 1
    """Number of wrong replies, all equally likely."""


class CapOutcome(Struct, frozen=True, kw_only=True):
    """End of an election at a cap."""

    right: float
    """Probability that the right reply wins."""
    wrong: float
    """Probability that another reply wins."""
    undecided: float
    """Probability that no reply has won at the cap."""
    draws: float
    """Expected number of draws, flagged ones included."""
    right_interval: tuple[float, float] | None = None
    """95 % confidence interval of ``right``; None if it is exact."""
    draws_interval: tuple[float, float] | None = None
    """95 % confidence interval of ``draws``; None if it is exact."""


class Course:
    """Course of a race, vote by vote, without a cap: at which vote it ends, and how.

    Args:
        race: the race.
        max_work: work after which the course is left.
    """

    def __init__(self, race: Race, *, max_work: int = MAX_WORK) -> None:
        self._race = race
        self._moves: dict[_Counts, list[tuple[float, _Counts | _End]]] = {}
        self._ends: dict[_Counts, _End | None] = {}
        self.ended: dict[_End, list[float]] = {"right": [0.0], "wrong": [0.0], "undecided": [0.0]}
        """Probability that the race ends so with the vote of this number."""
        self.open: list[float] = [1.0]
        """Probability that the race is open, by the number of votes."""
        self._follow(max_work)

    @property
    def is_whole(self) -> bool:
        """Whether the course was followed to its end."""
        return self.open[-1] <= (EXACT if self._race.rivals == 1 else CLOSE)

    @property
    def loss(self) -> float:
        """Probability that the race does not end right, without a cap."""
        return math.fsum([*self.ended["wrong"], *self.ended["undecided"], self.open[-1]])

    def covers(self, max_draws: int) -> bool:
        """Return whether the ending at this cap is known."""
        return self.is_whole or max_draws < len(self.open)

    def ending(self, max_draws: int, valid: float) -> CapOutcome:
        """Compute the ending at a cap that the course covers, when this share of draws are votes."""
        missing = _fewer_votes(max_draws, valid, len(self.open))
        ended = {
            end: math.fsum(share * (1 - less) for share, less in zip(shares, missing, strict=True))
            for end, shares in self.ended.items()
        }
        # Summed by itself: as the rest of the others it would lose its digits if it is small.
        undecided = math.fsum(
            share * less for shares in self.ended.values() for share, less in zip(shares, missing, strict=True)
        )
        votes = math.fsum(still * (1 - less) for still, less in zip(self.open, missing[1:], strict=False))
        return CapOutcome(
            right=ended["right"],
            wrong=ended["wrong"],
            undecided=ended["undecided"] + undecided + self.open[-1],
            draws=votes / valid,
        )

    def _follow(self, max_work: int) -> None:
        here: dict[_Counts, float] = {(0,) * (1 + self._race.rivals): 1.0}
        work, least = 0, TOO_RARE if self._race.rivals > 1 else 0.0
        while here and not self.is_whole:
            work += len(here) * (1 + self._race.rivals)
            if work + NEW_STATE * len(self._moves) > max_work:
                break
            there: dict[_Counts, float] = {}
            ended: dict[_End, float] = {"right": 0.0, "wrong": 0.0, "undecided": 0.0}
            for state, chance in here.items():
                if chance < least:
                    ended["undecided"] += chance
                    continue
                for share, after in self._moves.get(state) or self._moves.setdefault(
                    state, list(self._moves_from(state))
                ):
                    if isinstance(after, str):
                        ended[after] += chance * share
                    else:
                        there[after] = there.get(after, 0.0) + chance * share
            for end, shares in self.ended.items():
                shares.append(ended[end])
            self.open.append(math.fsum(there.values()))
            here = there

    def _moves_from(self, state: _Counts) -> Iterator[tuple[float, _Counts | _End]]:
        """Yield the probability of each next vote, and the state after it."""
        right, *rivals = state
        yield self._race.p, self._after(right + 1, rivals)
        share = (1 - self._race.p) / len(rivals)
        for index, count in enumerate(rivals):
            if (
                index == 0 or rivals[index - 1] > count
            ):  # the first of several rivals with as many votes: the order stays
                yield (
                    share * rivals.count(count),
                    self._after(right, [*rivals[:index], count + 1, *rivals[index + 1 :]]),
                )

    def _after(self, right: int, rivals: list[int]) -> _Counts | _End:
        # Only leads matter to first-to-ahead-by, so that votes which all have are left out.
        least = min(right, rivals[-1]) if isinstance(self._race.rule, FirstToAheadBy) else 0
        counts = (right - least, *[votes - least for votes in rivals]) if least else (right, *rivals)
        if counts not in self._ends:
            self._ends[counts] = _end(self._race.rule, counts)
        return self._ends[counts] or counts


def _end(rule: Rule, counts: _Counts) -> _End | None:
    """Return the end of a race with these votes; None while it is open."""
    tally = Tally(rule)
    # Of equals the one that was launched first wins; here that is a rival.
    tally.counts = {index: counts[index] for index in (*range(1, len(counts)), 0) if counts[index]}
    tally.leading, tally.second = sorted(counts, reverse=True)[:2]
    tally.counted = sum(counts)
    if rule.votes_needed(tally):
        return None
    if rule.outcome(tally) != "decided":  # a plurality decides no step
        return "undecided"
    return "right" if rule.winner(tally) == 0 else "wrong"


def simulated(race: Race, max_draws: int, valid: float) -> CapOutcome:
    """Simulate the ending at a cap, with confidence intervals of 95 %.

    Raises:
        InvalidUsage: an election takes too many draws.
    """
    rng = Random("the same at every call")  # noqa: S311 - seeded on purpose
    ends: dict[_End, int] = {"right": 0, "wrong": 0, "undecided": 0}
    drawn: list[int] = []
    left = MAX_SIMULATED
    while left > 0 and len(drawn) < TRIALS:
        tally, draws = Tally(race.rule), 0
        while tally.votes_needed and draws < min(max_draws, left):
            draws += 1
            if rng.random() < valid:
                tally.count(0 if rng.random() < race.p else 1 + rng.randrange(race.rivals))
        decided = tally.outcome == "decided"
        ends["undecided" if not decided else "right" if race.rule.winner(tally) == 0 else "wrong"] += 1
        drawn.append(draws)
        left -= draws
    trials = len(drawn)
    if trials < MIN_TRIALS:
        raise InvalidUsage(
            f"an election takes some {drawn[-1]:,} draws, too many to simulate; take a stronger model, or a smaller k or cap"
        )
    mean, reach = fmean(drawn), SIGMAS * stdev(drawn) / math.sqrt(trials)
    return CapOutcome(
        right=ends["right"] / trials,
        wrong=ends["wrong"] / trials,
        undecided=ends["undecided"] / trials,
        draws=mean,
        right_interval=wilson_interval(ends["right"], trials),
        draws_interval=(mean - reach, mean + reach),
    )


def _fewer_votes(max_draws: int, valid: float, votes: int) -> list[float]:
    """Compute, for each number of votes below ``votes``, the probability that the draws up to the cap hold fewer."""
    if valid == 1:
        return [float(each > max_draws) for each in range(votes)]
    fewer, below = [0.0], 0.0
    all_draws = math.lgamma(max_draws + 1)
    for each in range(votes - 1):
        if each <= max_draws:
            ways = all_draws - math.lgamma(each + 1) - math.lgamma(max_draws - each + 1)
            below += math.exp(ways + each * math.log(valid) + (max_draws - each) * math.log1p(-valid))
        fewer.append(1.0 if each >= max_draws else min(1.0, below))
    return fewer
