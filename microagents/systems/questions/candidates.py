"""Candidates to vote on. Equal replies are merged, labels do not depend on positions, and every ballot gets another order."""

from __future__ import annotations

import base64
from collections.abc import Hashable, Iterable, Mapping, Sequence
from hashlib import blake2b
from random import Random
from typing import Generic, TypeVar

from msgspec import Raw, Struct

from microagents.base.errors import InvalidUsage
from microagents.replies.reply import A
from microagents.replies.reply_forms import encode_reply

LABEL_CHARS = 4
"""Length of a label, unless two candidates of a vote would share it."""
MAX_ORDERS = 16
"""Number of different orders in which ballots see candidates. Every order travels with the question, so later ballots reuse them."""
C = TypeVar("C")


class Candidate(Struct, Generic[A], frozen=True, kw_only=True):
    """A distinct reply."""

    reply: A
    copies: int
    """Number of samples that gave it."""

    @property
    def json(self) -> Raw:
        """Reply as JSON."""
        return Raw(encode_reply(self.reply))


def merged(replies: Sequence[A]) -> list[Candidate[A]]:
    """Merge equal replies, which would split the vote. Candidates are in the order of their first launch."""
    copies: dict[Hashable, int] = {}
    first: dict[Hashable, A] = {}
    votes: dict[bytes, Hashable] = {}
    for reply in replies:
        written = encode_reply(reply)
        # Identical JSON has an identical vote: `vote()` may be slow, and most replies are identical.
        vote = votes[written] if written in votes else votes.setdefault(written, reply.vote())
        first.setdefault(vote, reply)
        copies[vote] = copies.get(vote, 0) + 1
    return [Candidate(reply=reply, copies=copies[vote]) for vote, reply in first.items()]


def labels_of(candidates: Sequence[bytes | Raw]) -> list[str]:
    """Label candidates by their hash. Labels are then equal in ballots of any order, and no position has a fixed label."""
    hashes = [blake2b(candidate, digest_size=20).digest() for candidate in candidates]
    digests = [base64.b32encode(each).decode() for each in hashes]
    chars = LABEL_CHARS
    while len({digest[:chars] for digest in digests}) < len(digests):
        chars += 1
    return [digest[:chars] for digest in digests]


def shuffled(labels: Iterable[str], ballot: int) -> list[str]:
    """Labels in the order for one ballot, shuffled because models prefer the first candidate."""
    order = sorted(labels)  # the order of launch depends on chance
    Random(f"{' '.join(order)} {ballot}").shuffle(order)  # noqa: S311 - seeded on purpose
    return order


def in_orders(candidates: Mapping[str, C], ballots: int, *, opposite: bool) -> list[tuple[C, ...]]:
    """Candidates in the orders in which ballots see them; with ``opposite``, one order and the opposite one, in which models weigh them."""
    orders = [shuffled(candidates, ballot) for ballot in range(min(ballots, MAX_ORDERS))]
    if opposite:
        orders = [orders[0], orders[0][::-1]]
    return [tuple([candidates[label] for label in order]) for order in orders]


def chosen_index(vote: str, labels: Sequence[str], path: str) -> int:
    """Index of the candidate that a vote names. A person may have named none."""
    if vote not in labels:
        raise InvalidUsage(f"{vote!r} is none of the candidates at {path}: they are {', '.join(labels)}")
    return labels.index(vote)


def leader_of(votes: Mapping[str, int], labels: Sequence[str], copies: Sequence[int]) -> int:
    """Index of the candidate with most votes. Ties go to more copies, then to the earlier launch."""
    return max(range(len(labels)), key=lambda index: (votes.get(labels[index], 0), copies[index], -index))
