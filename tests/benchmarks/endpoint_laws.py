"""The law of an election of the endpoint: how often it is right, its rounds of samples that begin together, and how many it takes."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from math import sqrt
from typing import NamedTuple

PATIENCE = 4
"""Times the margin, in votes, after which the leader is taken."""


class Law(NamedTuple):
    """What to expect of an election."""

    right: float
    """Chance that the right call is answered."""
    at_once: float
    """Chance that its first round decides it."""
    rounds: float
    """Mean number of rounds: samples that are found to be missing begin together, and take one time each."""
    deviation: float
    """Standard deviation of the rounds."""
    samples: float
    """Mean number of samples."""


class State(NamedTuple):
    """An election that is not decided."""

    votes: tuple[int, ...] = ()
    """Votes of each call, in the order in which they were first cast."""
    right: int = -1
    """Place of the right call among them; -1 before its first vote."""
    begun: tuple[int, ...] = ()
    """For each sample without a vote so far, the round in which it began."""

    def after(self, place: int, *, is_right: bool) -> State:
        """Count the next vote, for the call at a place; for one without a vote that is the next place."""
        votes = [*self.votes, *[0] * (place == len(self.votes))]
        votes[place] += 1
        return State(tuple(votes), place if is_right else self.right, self.begun[1:])

    def missing(self, k: int) -> int:
        """Count the votes, all for the leader, that end it."""
        first, second = sorted((0, 0, *self.votes))[:-3:-1]
        return max(0, min(k - first + second, PATIENCE * k - sum(self.votes)))

    def cast(self, wrong: float, alternatives: int) -> list[tuple[State, float]]:
        """List the states after the next vote, with their chances."""
        right = len(self.votes) if self.right < 0 else self.right
        found = [(self.after(right, is_right=True), 1 - wrong)]
        others = [place for place in range(len(self.votes)) if place != self.right]
        found += [(self.after(place, is_right=False), wrong / alternatives) for place in others]
        unseen = alternatives - len(others)
        return [*found, (self.after(len(self.votes), is_right=False), wrong * unseen / alternatives)]


@lru_cache
def law_of(k: int, wrong: float, alternatives: int, hedge: int = 0) -> Law:
    """Follow all courses of an election.

    Args:
        k: the lead that decides.
        wrong: chance that a sample is wrong.
        alternatives: number of equally likely wrong calls.
        hedge: samples in flight beyond those that are missing, while two or more are.
    """
    right = at_once = rounds = squares = samples = 0.0
    states = {State(begun=(1,) * (k + hedge)): 1.0}
    while states:
        later = defaultdict[State, float](float)
        for state, chance in states.items():
            for found, share in state.cast(wrong, alternatives):
                p, missing = chance * share, found.missing(k)
                if not missing:
                    right += p * (found.votes.index(max(found.votes)) == found.right)
                    at_once += p * (state.begun[0] == 1)
                    rounds += p * state.begun[0]
                    squares += p * state.begun[0] ** 2
                    samples += p * (sum(found.votes) + len(found.begun))
                elif p:
                    wanted = missing + hedge * (missing > 1)
                    most = PATIENCE * k - sum(found.votes)
                    more = max(0, min(wanted, most) - len(found.begun))
                    later[found._replace(begun=found.begun + (state.begun[0] + 1,) * more)] += p
        states = later
    return Law(right, at_once, rounds, sqrt(squares - rounds**2), samples)
