"""LEAD's algorithm 1 and its baselines, written from the paper alone, without the engine and its rules: only loaded coins.

A step is wrong with a rate of its own when it is asked alone. In a rollout the rate depends on the position, too.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from msgspec import Struct


class Coins(Struct, frozen=True, kw_only=True):
    """The rates of the model."""

    steps: int
    hard: tuple[int, ...]
    """The numbers of the hard steps."""
    error: float
    hard_error: float
    hard_ahead: float
    decay: float
    alternatives: int = 3
    """Number of equally likely wrong replies to a step that is not hard."""

    def reply(self, random: Random, step: int, position: int | None) -> int:
        """0 for the right reply, else the number of a wrong one. Without a position the step is asked alone."""
        depth = position or 0
        if step in self.hard:
            rate = (self.hard_error, (self.hard_error + self.hard_ahead) / 2, self.hard_ahead)[min(depth, 2)]
            return int(random.random() < rate)
        return random.randint(1, self.alternatives) if random.random() < self.error + self.decay * depth else 0

    def first_error(self, random: Random, start: int, horizon: int) -> tuple[int, int]:
        """The step at which a rollout is wrong first, and which wrong reply it gives; a step behind the last one if it is right."""
        for position in range(min(horizon, self.steps - start)):
            if reply := self.reply(random, start + position, position):
                return start + position, reply
        return self.steps, 0


class Lead(Struct, frozen=True, kw_only=True):
    """Settings of algorithm 1, by its letters."""

    v: int = 8
    """Base votes."""
    k: int = 8
    """Lookahead depth."""
    h: int = 3
    """History window."""
    t: int = 3
    """Threshold."""


def led(coins: Coins, lead: Lead, random: Random) -> bool:
    """One run of algorithm 1: whether every step was decided right. Nothing is reused, discarded or capped."""
    for step in range(coins.steps):
        replies = {coins.reply(random, step, None) for _ in range(lead.v)}
        winner = replies.pop() if len(replies) == 1 else _looked_ahead(coins, lead, random, step)
        if winner != 0:
            return False
    return True


def _looked_ahead(coins: Coins, lead: Lead, random: Random, step: int) -> object:
    votes: Counter[object] = Counter()
    while True:
        for back in range(min(lead.h, step + 1)):
            wrong_at, reply = coins.first_error(random, step - back, lead.k)
            # What follows from a wrong state is wrong as well, and the same wherever the rollout began.
            votes[0 if wrong_at > step else (wrong_at, reply)] += 1
        (leader, most), (_, second) = [*votes.most_common(2), (0, 0)][:2]
        if most - second >= lead.t:
            return leader


def voted(coins: Coins, k: int, random: Random, cap: int = 100) -> bool:
    """One run with first-to-ahead-by-k votes on each step: whether every step was decided right."""
    for step in range(coins.steps):
        votes: Counter[int] = Counter()
        for _ in range(cap):
            votes[coins.reply(random, step, None)] += 1
            (leader, most), (_, second) = [*votes.most_common(2), (0, 0)][:2]
            if most - second >= k:
                break
        else:
            return False
        if leader != 0:
            return False
    return True


def restarted(coins: Coins, horizon: int, random: Random) -> bool:
    """One run by long replies: whether every step was right."""
    return all(coins.first_error(random, start, horizon)[0] == coins.steps for start in range(0, coins.steps, horizon))
