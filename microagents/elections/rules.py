"""Stop rules and the tally: pure, no I/O. Ballots are counted in the order in which they were launched; the caller sees to that."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal

from msgspec import Struct

from microagents.errors import InvalidUsage


class FirstToAheadBy(Struct, frozen=True, tag=True):
    """Decided once one candidate leads every other by k votes (MAKER, algorithm 2)."""

    k: int = 3

    def __post_init__(self) -> None:
        _check_k(self.k)

    def votes_needed(self, leader: int, second: int, counted: int) -> int:  # noqa: ARG002 - one interface for all rules
        """The fewest further votes that can decide: 0 means decided."""
        return max(0, self.k - (leader - second))


class FirstTo(Struct, frozen=True, tag=True):
    """Decided once one candidate has k votes; with ``at_most``, the leader after that many valid votes is taken as ``argmax``."""

    k: int = 3
    at_most: int | None = None

    def __post_init__(self) -> None:
        _check_k(self.k)
        if self.at_most is not None and self.at_most < 1:
            raise InvalidUsage(f"at_most must be at least 1, not {self.at_most!r}")

    def votes_needed(self, leader: int, second: int, counted: int) -> int:  # noqa: ARG002 - one interface for all rules
        """The fewest further votes that can decide: 0 means decided."""
        needed = max(0, self.k - leader)
        return needed if self.at_most is None else min(needed, max(0, self.at_most - counted))


class FirstValid(Struct, frozen=True, tag=True):
    """No vote: over once n valid replies are in (the samples of `DurableRole.sample`)."""

    n: int = 1

    def __post_init__(self) -> None:
        if self.n < 1:
            raise InvalidUsage(f"at least 1 reply must be asked for, not {self.n!r}")

    def votes_needed(self, leader: int, second: int, counted: int) -> int:  # noqa: ARG002 - one interface for all rules
        """The fewest further replies that are needed."""
        return max(0, self.n - counted)


Rule = FirstToAheadBy | FirstTo | FirstValid


def _check_k(k: int) -> None:
    if not k >= 1:  # also nan
        raise InvalidUsage(f"k must be at least 1, not {k!r}")


class Tally:
    """The votes of one election, in order of launch."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.counts: dict[Hashable, int] = {}
        """Votes by candidate, in the order in which candidates were first launched."""
        self.counted = 0
        self.votes_needed = rule.votes_needed(0, 0, 0)
        """The fewest further votes that can decide; 0 once the election is decided."""
        self._leading = 0
        self._second = 0

    def count(self, vote: Hashable) -> None:
        """Count one ballot."""
        votes = self.counts[vote] = self.counts.get(vote, 0) + 1
        self.counted += 1
        if votes > self._leading:  # a new leader was level with the old one, who is level with the second
            self._leading = votes
        else:
            self._second = max(self._second, votes)
        self.votes_needed = self.rule.votes_needed(self._leading, self._second, self.counted)

    @property
    def leader(self) -> int | None:
        """The place in ``counts`` of the candidate with most votes, the first launched of equals; None before the first vote."""
        return list(self.counts.values()).index(self._leading) if self.counts else None

    @property
    def outcome(self) -> Literal["decided", "argmax"] | None:
        """How the rule has decided; None while it has not."""
        if self.votes_needed:
            return None
        at_most = isinstance(self.rule, FirstTo) and self._leading < self.rule.k
        return "argmax" if at_most else "decided"
