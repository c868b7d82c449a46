"""Guessing ahead in a chain: what is known of steps that are open on states that are not decided yet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable

from msgspec import Struct

from microagents.chat import Reply, decoder_of
from microagents.elections.election import Ballot, ElectionId, Question, Verdict

WASTE_SHARE = 0.05
WASTE_OVER_CALLS = 1000


class OpenStep:
    """A step whose election is held, on a state that may be a guess.

    The guess at its reply is what most ballots that have *arrived* say. It is only used to open the next step early: decisions are taken
    in launch order, and a step commits only if its question is the one that the decided state before it asks.
    """

    def __init__(self, number: int, state: Struct, election: ElectionId, question: Question, reply: type[Reply]) -> None:
        self.number = number
        self.state = state
        self.election = election
        self.question = question
        self.held: asyncio.Task[Verdict]
        """The election, to its verdict."""
        self.arrived = 0
        self.guess: Reply | None = None
        self._decode = decoder_of(reply).decode
        self._counts: dict[Hashable, int] = {}
        self._leader: Hashable = None

    def arrive(self, ballot: Ballot) -> bool:
        """Count a ballot that arrived; whether the guess is another one now: it moves only when another reply has more ballots."""
        reply = self._decode(ballot.value)
        vote = reply.vote()
        self.arrived += 1
        self._counts[vote] = self._counts.get(vote, 0) + 1
        if self.guess is not None and (vote == self._leader or self._counts[vote] <= self._counts[self._leader]):
            return False
        self.guess, self._leader = reply, vote
        return True


class Waste:
    """The share of calls that wrong guesses wasted, over the last thousand or so."""

    def __init__(self) -> None:
        self._steps: deque[tuple[int, int]] = deque()
        self._calls = self._wasted = 0

    def used(self, calls: int) -> None:
        """A step was committed that took so many calls."""
        self._add(calls, 0)

    def wasted(self, calls: int) -> None:
        """A step was dropped on which so many calls were made."""
        self._add(calls, calls)

    @property
    def is_high(self) -> bool:
        """Whether to wait with guesses: they waste more than they should."""
        return self._wasted > WASTE_SHARE * max(self._calls, WASTE_OVER_CALLS)

    def _add(self, calls: int, wasted: int) -> None:
        self._steps.append((calls, wasted))
        self._calls, self._wasted = self._calls + calls, self._wasted + wasted
        while self._calls - self._steps[0][0] >= WASTE_OVER_CALLS:
            calls, wasted = self._steps.popleft()
            self._calls, self._wasted = self._calls - calls, self._wasted - wasted
