"""Verification: a valid reply that the task's `verify` finds wrong is asked again with the feedback, in the place of its seq."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from msgspec import structs

from microagents.aio import TaskScope
from microagents.elections.election import Ballot, ElectionId, Flagged, Question, Rejected, Rejection, SampleId, total_usd
from microagents.elections.red_flags import UNVERIFIED
from microagents.journal.messages import RecordSample
from microagents.messages import resolve
from microagents.replies.chat import Prompt, Reply, Sample, decoder_of, with_feedback
from microagents.task import Task, feedback_on

MAX_REPAIRS = 2
"""Number of times that a sample is asked again. If `verify` rejects the last reply, too, the sample is flagged."""
GUESS_AFTER = 0.02
"""A reply whose verification takes longer than this share of its draw serves as a guess before it is verified."""

Drawn = tuple[Sample, Ballot | Flagged]


class Verification:
    """Verifies the valid replies of one election.

    Args:
        task: the task of the election's input.
        election: its id.
        question: its question, asked in a state.
        draw: draws and screens one sample of the election; None once it is not counted any more.
        guess: gets a valid reply whose verification takes long.
        record: records a rejected reply, so that a resumed run does not pay for it again.
    """

    def __init__(
        self,
        task: Task,
        election: ElectionId,
        question: Question,
        *,
        draw: Callable[[int, Prompt, int], Awaitable[Drawn | None]],
        guess: Callable[[Ballot], None],
        record: Callable[[RecordSample], None],
    ) -> None:
        self._task = task
        self._election = election
        self._question = question
        self._draw = draw
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
        """Continue a sample of which replies were rejected before."""
        self._rejected[rejected.seq] = rejected

    async def close(self) -> None:
        """Cancel what runs."""
        await self._scope.close()

    async def sample(self, seq: int) -> Drawn | None:
        """Draw a sample, and again while its reply is rejected; returns the final one with the cost of all.

        Raises:
            TaskFailed: ``verify()`` raised, or gave something else than a text or None.
        """
        while True:
            before = self._rejected.get(seq, Rejected(seq=seq, replies=(), cost_usd=0.0))
            asked = self._question.prompts[seq % len(self._question.prompts)]
            began_s = self._loop.time()
            drawn = await self._draw(seq, self._with_feedback(asked, before.replies), len(before.replies))
            if drawn is None:
                return None
            sample, ballot = drawn
            ballot = structs.replace(ballot, cost_usd=total_usd([before.cost_usd, ballot.cost_usd]))
            feedback = await self._feedback_on(ballot, (self._loop.time() - began_s) * GUESS_AFTER) if isinstance(ballot, Ballot) else None
            if isinstance(ballot, Ballot) and feedback is not None:
                if len(before.replies) < MAX_REPAIRS:
                    replies = (*before.replies, Rejection(value=ballot.value.decode(), feedback=feedback))
                    rejected = self._rejected[seq] = Rejected(seq=seq, replies=replies, cost_usd=ballot.cost_usd)
                    self._record(RecordSample(id=SampleId(election=self._election, seq=seq), ballot=rejected))
                    continue
                ballot = Flagged(seq=seq, flag=UNVERIFIED, cost_usd=ballot.cost_usd)
            self._rejected.pop(seq, None)
            return sample, ballot

    async def _feedback_on(self, ballot: Ballot, patience_s: float) -> str | None:
        """The feedback on a reply. Equal replies are verified once."""
        check = self._checks.get(ballot.value)
        if check is None:
            reply = decoder_of(resolve(self._question.reply, Reply)).decode(ballot.value)
            check = self._checks[ballot.value] = self._scope.start(feedback_on(self._task, reply, self._question.state))
        if not check.done():
            # A wrong guess costs calls, so one that is verified at once is better. But no step may wait for a slow verification.
            await asyncio.wait([check], timeout=patience_s)
            if not check.done():
                self._guess(ballot)
        return await asyncio.shield(check)

    def _with_feedback(self, asked: Prompt, rejected: Sequence[Rejection]) -> Prompt:
        decode = decoder_of(resolve(self._question.reply, Reply)).decode
        return with_feedback(asked, [(decode(each.value), each.feedback) for each in rejected], self._task.format)
