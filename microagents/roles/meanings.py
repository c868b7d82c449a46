"""Votes by meaning: which ballots of one election count as one, as the matcher says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import cast

import msgspec
from msgspec import Raw, structs

from microagents.base.aio import TaskScope
from microagents.base.errors import MicroagentsError
from microagents.base.text_digests import digest_of
from microagents.elections.election import Ballot
from microagents.elections.groups import Groups
from microagents.replies.reply import CheckedReply, Reply, vote_of
from microagents.replies.reply_forms import decoder_of
from microagents.roles.matcher import MeanTheSame, ToMatch
from microagents.roles.sampler import Sampler


class FieldMeanings:
    """Groups of the values of each field, of an election in which fields are voted on by themselves. Values without text must be equal.

    Args:
        of_fields: for each part of a vote the names of its fields, and its groups; None for a part without text.
    """

    def __init__(self, of_fields: Sequence[tuple[tuple[str, ...], Meanings | None]]) -> None:
        self._of_fields = of_fields

    @property
    def comparisons(self) -> list[asyncio.Task[None]]:
        """The comparisons that are under way."""
        return [each for _, of_field in self._of_fields if of_field is not None for each in of_field.comparisons]

    def counted_as(self, ballot: Ballot, vote: Hashable) -> Ballot | None:
        """Return the ballot with the first values of their groups; None while one is not known."""
        values, is_known = _fields.decode(ballot.value), True
        for (names, of_field), part in zip(self._of_fields, cast("tuple[Hashable, ...]", vote), strict=True):
            if of_field is None:
                continue
            own = msgspec.json.encode({name: values[name] for name in names if name in values})
            found = of_field.counted_as(structs.replace(ballot, value=own), part)
            if found is None:
                is_known = False  # the other fields are compared meanwhile
            else:
                values |= _fields.decode(found.value)
        return structs.replace(ballot, value=msgspec.json.encode(values)) if is_known else None


_fields = msgspec.json.Decoder(dict[str, Raw])


class Meanings:
    """Groups of one election. Ballots are asked for in launch order, so a comparison goes before the next ballot.

    Args:
        sampler: its samples.
        reply: the class of its replies.
        ask: asks the matcher.
        on_found: called once the group of a ballot is found, with whether groups became one, so that counted votes have changed.
        on_failure: called with the error of a comparison.
    """

    def __init__(
        self,
        sampler: Sampler,
        reply: type[Reply],
        *,
        ask: Callable[[MeanTheSame], Awaitable[bool]],
        on_found: Callable[[bool], None],
        on_failure: Callable[[MicroagentsError], None],
    ) -> None:
        self.comparisons: list[asyncio.Task[None]] = []
        """The comparison that is under way, if any."""
        self._election = sampler.election_id
        self._prompt = sampler.prompt(0).flat
        self._reply = reply
        self._prose = sampler.question.prose
        """Arguments of calls that are compared by meaning; all others must be equal."""
        self._ask = ask
        self._on_found = on_found
        self._on_failure = on_failure
        self._groups = Groups()
        self._loop = asyncio.get_running_loop()

    def counted_as(self, ballot: Ballot, vote: Hashable) -> Ballot | None:
        """Return the ballot with the first reply of its group; None while the group is not known, which is then found out."""
        representative = self._groups.of(vote)
        if representative is not None:
            return structs.replace(ballot, value=representative)
        if not self._groups.representatives:
            self._groups.add(vote, ballot.value, ())
            return ballot
        if not self.comparisons:
            self.comparisons.append(self._loop.create_task(self._compare(ballot.value, vote)))
        return None

    async def _compare(self, value: bytes, vote: Hashable) -> None:
        representatives, scope = self._groups.representatives, TaskScope()
        try:
            answers = [scope.start(self._means(value, each)) for each in representatives]
            same = [each for each, answer in zip(representatives, answers, strict=True) if await answer]
        except MicroagentsError as error:
            self._on_failure(error)
            return
        finally:
            await scope.close()
            self.comparisons.clear()  # not before: a ballot that arrives meanwhile would be compared a second time
        self._on_found(self._groups.add(vote, value, same))

    def _may_mean_the_same(self, *replies: bytes) -> bool:
        if not issubclass(self._reply, CheckedReply):
            return True
        decode = decoder_of(self._reply).decode
        votes = {vote_of(decode(each), self._prose) for each in replies}
        return len(votes) == 1

    async def _means(self, *replies: bytes) -> bool:
        if not self._may_mean_the_same(*replies):
            return False
        one, other = sorted(replies)  # the comparison does not depend on which was first
        pair = digest_of(one + b"\0" + other, 8).hex()
        asked_of = digest_of(f"{self._prompt.system}\0{self._prompt.user}", 4)
        at = f"{self._election.path.partition('/')[2]}/same/{asked_of.hex()}/{pair}"
        asked = ToMatch(system=self._prompt.system, user=self._prompt.user, replies=(Raw(one), Raw(other)))
        return await self._ask(MeanTheSame(at=at, input=self._election.input, asked=asked))
