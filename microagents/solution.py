"""How a problem was solved that was cut in two and in two again: what comes of it, and the tree of its sub-problems."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Raw, Struct

ROOT = "solve"
"""Where the whole problem stands; the halves of a problem are 1 and 2 behind its place."""


class Turn(StrEnum):
    """What is voted on at a problem; the last component of paths."""

    DECOMPOSE = "decompose"
    ANSWER = "answer"
    COMPOSE = "compose"
    VOTE = "vote"


class Solution(Struct, frozen=True, kw_only=True):
    """The answer to a problem."""

    answer: Raw
    """The reply, as JSON."""
    correct: bool | None
    """What the problem says of it; None where code cannot tell."""
    argmax: tuple[str, ...] = ()
    """Turns at which no candidate came to k votes, and the one with most was taken."""
