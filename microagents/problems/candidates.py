"""Candidates to vote on: equal replies merged, each with a label that its place does not tell, in an order of each ballot's own."""

from __future__ import annotations

import base64
from collections.abc import Hashable, Mapping, Sequence
from hashlib import blake2b
from random import Random
from typing import Generic

import msgspec
from msgspec import Struct

from microagents.chat import A

LABEL_CHARS = 4
"""As many as tell the candidates of one vote apart; more where two would have the same."""


class Candidate(Struct, Generic[A], frozen=True, kw_only=True):
    """A reply, and how many of the samples gave it."""

    reply: A
    copies: int


def merged(replies: Sequence[A]) -> list[Candidate[A]]:
    """Candidates in the order in which each was first launched: equal replies would split the vote."""
    copies: dict[Hashable, int] = {}
    first: dict[Hashable, A] = {}
    votes: dict[bytes, Hashable] = {}
    for reply in replies:
        written = msgspec.json.encode(reply)
        vote = votes[written] if written in votes else votes.setdefault(written, reply.vote())  # the same to the letter votes the same
        first.setdefault(vote, reply)
        copies[vote] = copies.get(vote, 0) + 1
    return [Candidate(reply=reply, copies=copies[vote]) for vote, reply in first.items()]


def labels_of(candidates: Sequence[bytes]) -> list[str]:
    """A label for each, by its hash: ballots compare directly whatever order they saw, and no place has a label of its own.

    ``candidates`` are different replies as JSON.
    """
    digests = [base64.b32encode(blake2b(candidate, digest_size=20).digest()).decode() for candidate in candidates]
    chars = LABEL_CHARS
    while len({digest[:chars] for digest in digests}) < len(digests):
        chars += 1
    return [digest[:chars] for digest in digests]


def shuffled(labels: Sequence[str], ballot: int) -> list[int]:
    """The places of candidates in the order that a ballot sees: models prefer what stands first."""
    order = sorted(range(len(labels)), key=lambda place: labels[place])  # not that of their launch, which depends on chance
    Random(f"{' '.join(sorted(labels))} {ballot}").shuffle(order)  # noqa: S311 - seeded on purpose
    return order


def leader_of(votes: Mapping[str, int], labels: Sequence[str], copies: Sequence[int]) -> int:
    """The place of the candidate with most votes; of equals the one that most samples gave, then the first launched."""
    return max(range(len(labels)), key=lambda place: (votes.get(labels[place], 0), copies[place], -place))
