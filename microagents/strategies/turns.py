"""Votes on candidates, and calls side by side: what strategies for problems share."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from msgspec import structs

from microagents.aio import TaskScope
from microagents.errors import RoleFailed, Undecided
from microagents.problems.candidates import merged
from microagents.problems.questions import Votable
from microagents.replies.chat import A, Sampling
from microagents.roles.discriminator import Discriminate
from microagents.work.durable import Work

V = TypeVar("V")
W = TypeVar("W")


def most_ballots(k: int) -> int:
    """Number of candidates at a turn, and of ballots in a vote on them, at most (MAKER, algorithm 4: N = 2k - 1)."""
    return 2 * k - 1


def check_cap(k: int, max_draws: int) -> None:
    """Refuse a cap of draws that a vote may need more of.

    Raises:
        ValueError: it is too low.
    """
    if most_ballots(k) > max_draws:
        raise ValueError(f"a vote at k = {k} may take {most_ballots(k)} ballots, but max_draws = {max_draws}")


class Votes:
    """Votes by the discriminator, first to k.

    Args:
        work: the work on the input.
        k: number of votes that decide.
        max_draws: cap of a vote, in ballots.
        temperature: temperature of ballots.
        show_copies: whether ballots see how many samples gave each candidate.
    """

    def __init__(self, work: Work[Any, Any], *, k: int, max_draws: int, temperature: float, show_copies: bool = False) -> None:
        self.argmax: list[str] = []
        """Paths of the votes that were decided by plurality."""
        self._work = work
        self._k = k
        self._max_draws = max_draws
        self._sampling = sampling_at(work, temperature)
        self._show_copies = show_copies

    async def elect(self, at: str, asked: Votable, replies: Sequence[A]) -> A:
        """The candidate that the vote chooses. Equal replies are one candidate; where all are equal, there is no vote.

        Args:
            at: the place of the vote.
            asked: the question that the replies answer.
            replies: at least one. Ties go to the candidate with most of them, then to the first.
        """
        candidates = merged(replies)
        if len(candidates) == 1:
            return candidates[0].reply
        chosen = await self._work.ask(
            Discriminate(
                at=at,
                question=asked,
                candidates=tuple(each.json for each in candidates),
                copies=tuple(each.copies for each in candidates),
                show_copies=self._show_copies,
                k=self._k,
                max_draws=self._max_draws,
                sampling=self._sampling,
            )
        )
        if chosen.place not in range(len(candidates)):
            raise RoleFailed("Discriminator", "Discriminate", f"chose candidate {chosen.place!r} of {len(candidates)} at {at}")
        if chosen.outcome == "argmax":
            self.argmax.append(self._work.path_of(at))
        return candidates[chosen.place].reply


def sampling_at(work: Work[Any, Any], temperature: float) -> Sampling:
    """The task's sampling with this temperature."""
    usual: Sampling = work.task.sampling
    return structs.replace(usual, first_temperature=temperature, temperature=temperature)


async def all_ended(calls: Sequence[Coroutine[Any, Any, V]]) -> list[V]:
    """The results of calls that are made side by side.

    If one is undecided, the others still run to their end: decisions must not depend on which of them is faster, and the others are needed
    once a person has decided. Any other failure of one cancels the others.

    Raises:
        Undecided: one is undecided.
    """
    scope = TaskScope()
    try:
        open_calls = [scope.start(_or_undecided(call)) for call in calls]
        ended = await asyncio.gather(*open_calls)
    finally:
        await scope.close()
    results: list[V] = []
    for each in ended:
        if isinstance(each, Undecided):
            raise each
        results.append(each)
    return results


async def both_ended(first: Coroutine[Any, Any, V], second: Coroutine[Any, Any, W]) -> tuple[V, W]:
    """The results of two calls that are made side by side; else as `all_ended`.

    Raises:
        Undecided: one is undecided.
    """
    scope = TaskScope()
    try:
        one, other = await asyncio.gather(scope.start(_or_undecided(first)), scope.start(_or_undecided(second)))
    finally:
        await scope.close()
    if isinstance(one, Undecided):
        raise one
    if isinstance(other, Undecided):
        raise other
    return one, other


async def _or_undecided(call: Coroutine[Any, Any, V]) -> V | Undecided:
    try:
        return await call
    except Undecided as error:
        return error
