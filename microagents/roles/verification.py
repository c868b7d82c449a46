"""Samples in rounds: a reply that `verify` finds wrong, or that wants to look something up, is asked again in the place of its seq."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from msgspec import structs

from microagents.base.aio import TaskScope
from microagents.base.messages import resolve
from microagents.elections.election import (
    AnyBallot,
    Ballot,
    Flagged,
    Rejected,
    Rejection,
    SampleId,
    Wanted,
    total_usd,
)
from microagents.elections.red_flags import TOO_MANY_ROUNDS, UNVERIFIED
from microagents.journal.messages import RecordSample
from microagents.replies.chat import Sample, feedback_turn, with_turns
from microagents.replies.reply import Reply
from microagents.replies.reply_forms import decoder_of, write
from microagents.replies.turns import Turn
from microagents.roles.sampler import Sampler
from microagents.task import feedback_on, verifies
from microagents.tools.effect_keys import keyed_by

MAX_REPAIRS = 2
"""Number of times that a sample is asked again. If `verify` rejects the last reply, too, the sample is flagged."""
GUESS_AFTER = 0.02
"""A reply whose verification takes longer than this share of its draw serves as a guess before it is verified."""


Drawn = tuple[Sample, AnyBallot]
"""A sample, and what it counts as."""


class Verification:
    """Verifies the valid replies of one election, and makes their look-ups.

    Args:
        sampler: draws and screens its samples, and makes the calls that they want.
        guess: gets a valid reply whose verification takes long.
        record: records a rejected reply, so that a resumed run does not pay for it again.
    """

    def __init__(
        self,
        sampler: Sampler,
        *,
        guess: Callable[[Ballot], None],
        record: Callable[[RecordSample], None],
    ) -> None:
        self._sampler = sampler
        self._question, self._task = sampler.question, sampler.task
        self._verifies = bool(sampler.question.state) and verifies(type(sampler.task))
        self._guess = guess
        self._record = record
        self._rejected: dict[int, Rejected] = {}
        """Rejected replies of samples that are not final, by seq."""
        self._checks: dict[bytes, asyncio.Task[str | None]] = {}
        """The verification of each distinct reply."""
        self._scope = TaskScope()
        self._loop = asyncio.get_running_loop()

    @property
    def rejected(self) -> Sequence[Rejected]:
        """Paid replies of samples that are not final."""
        return list(self._rejected.values())

    def take_up(self, rejected: Rejected) -> None:
        """Continue a sample whose replies were rejected before."""
        self._rejected[rejected.seq] = rejected

    async def close(self) -> None:
        """Cancel the running work."""
        await self._scope.close()

    async def sample(self, seq: int) -> Drawn | None:
        """Draw a sample, and again while its reply is rejected or wants to look something up; returns the final one with the cost of all.

        Raises:
            TaskFailed: ``verify()`` raised, or gave something else than a text or None.
        """
        while True:
            before = self._rejected.get(seq, Rejected(seq=seq, replies=(), cost_usd=0.0))
            asked = self._question.prompt_of(seq)
            began_s = self._loop.time()
            looked_up = sum(each.is_look_up for each in before.replies)
            turns = [turn for each in before.replies for turn in each.turns]
            drawn = await self._sampler.sample(seq, with_turns(asked, turns), len(before.replies))
            if drawn is None:
                return None
            sample, ballot = drawn
            ballot = structs.replace(ballot, cost_usd=total_usd([before.cost_usd, ballot.cost_usd]))
            further: tuple[Turn, ...] = ()
            if isinstance(ballot, Wanted):
                if looked_up < self._task.tool_rounds:
                    further = await self._looked_up(ballot)
                else:
                    ballot = Flagged(seq=seq, flag=TOO_MANY_ROUNDS, cost_usd=ballot.cost_usd)
            elif isinstance(ballot, Ballot) and self._verifies:
                feedback = await self._feedback_on(ballot, (self._loop.time() - began_s) * GUESS_AFTER)
                if feedback is not None and len(before.replies) - looked_up < MAX_REPAIRS:
                    further = self._rejecting(sample, ballot, feedback)
                elif feedback is not None:
                    ballot = Flagged(seq=seq, flag=UNVERIFIED, cost_usd=ballot.cost_usd)
            if not isinstance(ballot, Wanted) and not further:
                self._rejected.pop(seq, None)
                return sample, ballot
            replies = (*before.replies, Rejection(turns=further))
            rejected = self._rejected[seq] = Rejected(seq=seq, replies=replies, cost_usd=ballot.cost_usd)
            self._record(RecordSample(id=SampleId(election=self._sampler.election_id, seq=seq), ballot=rejected))

    async def _looked_up(self, wanted: Wanted) -> tuple[Turn, ...]:
        """Make the calls of a reply side by side; returns it with the results, in their order."""
        calls = [self._scope.start(self._sampler.look_up(call)) for call in wanted.turn.calls]
        try:
            results = [structs.replace(await call, call=place) for place, call in enumerate(calls)]
            return wanted.turn, *results
        finally:
            for call in calls:
                call.cancel()

    async def _feedback_on(self, ballot: Ballot, patience_s: float) -> str | None:
        """Return the feedback on a reply. Equal replies are verified once."""
        check = self._checks.get(ballot.value)
        if check is None:
            check = self._checks[ballot.value] = self._scope.start(self._verified(ballot.value))
        if not check.done():
            # A wrong guess costs calls, so one that is verified at once is better. But no step may wait for a slow verification.
            await asyncio.wait([check], timeout=patience_s)
            if not check.done():
                self._guess(ballot)
        return await asyncio.shield(check)

    async def _verified(self, value: bytes) -> str | None:
        reply = decoder_of(resolve(self._question.reply, Reply)).decode(value)
        with keyed_by(self._sampler.run_id, self._sampler.election_id.path, value):
            return await feedback_on(self._task, reply, self._question.state)

    def _rejecting(self, sample: Sample, ballot: Ballot, feedback: str) -> tuple[Turn, ...]:
        """Return the turns of a reply that was found wrong: the reply, results of calls that were not made, and the feedback."""
        if sample.turn is None:
            reply = decoder_of(resolve(self._question.reply, Reply)).decode(ballot.value)
            return Turn(role="assistant", text=write(reply, self._task.format)), feedback_turn(feedback)
        results = [
            Turn(role="tool", call=place, outcome="rejected", text="This call was not made.")
            for place in range(len(sample.turn.calls))
        ]
        return sample.turn, *results, feedback_turn(feedback)
