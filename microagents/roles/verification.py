"""Samples in rounds: a reply that `verify` finds wrong, or that wants to look something up, is asked again in the place of its seq."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from microagents.base.aio import TaskScope
from microagents.base.messages import resolve
from microagents.elections.election import (
    Ballot,
    ElectionId,
    Flagged,
    Question,
    Rejected,
    Rejection,
    SampleId,
    total_usd,
)
from microagents.elections.red_flags import UNVERIFIED, flag_unread
from microagents.journal.messages import RecordSample
from microagents.replies.chat import Prompt, Reply, Sample, decoder_of, with_feedback
from microagents.replies.parsing import Malformed, parse
from microagents.replies.tool_calls import LookUp, ToolCall, with_observations
from microagents.task import Task, feedback_on, verifies
from microagents.tools.effect_keys import KeyedBy

TOO_MANY_ROUNDS = "too_many_rounds"
"""The red flag of a sample that wants to look things up more often than it may."""
MAX_REPAIRS = 2
"""Number of times that a sample is asked again. If `verify` rejects the last reply, too, the sample is flagged."""
GUESS_AFTER = 0.02
"""A reply whose verification takes longer than this share of its draw serves as a guess before it is verified."""


class Wanted(Struct, frozen=True, kw_only=True):
    """A reply that asks to look something up first. It is neither ballot nor flag yet."""

    seq: int
    calls: tuple[ToolCall, ...]
    cost_usd: float | None
    """Cost of its sample; None if the price is unknown."""


Drawn = tuple[Sample, Ballot | Flagged]
"""A sample, and what it counts as."""
Screened = tuple[Sample, Ballot | Flagged | Wanted]


def wanted_in(seq: int, sample: Sample, question: Question, task: Task) -> Wanted | Flagged | None:
    """Look-ups that a reply asks for, or the red flag of its calls; None for a reply that asks nothing."""
    if "look_up" not in sample.text or flag_unread(sample, question.sampling.flag_above_tokens) is not None:
        return None
    try:
        wanted = parse(sample.text, LookUp, task.format, question.reading)
    except Malformed:
        return None
    flag, cost_usd = wanted.flaw(), sample.usage.cost_usd
    calls = tuple([task.toolbox.as_declared(call) for call in wanted.look_up])
    if flag is None:
        flags = (task.toolbox.flag_of(call.tool, call.arguments) for call in calls)
        flag = next((each for each in flags if each is not None), None)
    if flag is None:
        return Wanted(seq=seq, calls=calls, cost_usd=cost_usd)
    return Flagged(seq=seq, flag=flag, cost_usd=cost_usd)


class Verification:
    """Verifies the valid replies of one election, and makes their look-ups.

    Args:
        run_id: the run.
        task: the task of the election's input.
        election: its id.
        question: its question.
        draw: draws and screens one sample of the election, by its seq, its prompt, that without feedback, and the number of its earlier
            replies; None once it is not counted any more.
        look_up: makes a call, and writes down its result.
        guess: gets a valid reply whose verification takes long.
        record: records a rejected reply, so that a resumed run does not pay for it again.
    """

    def __init__(
        self,
        run_id: str,
        task: Task,
        election: ElectionId,
        question: Question,
        *,
        draw: Callable[[int, Prompt, Prompt, int], Awaitable[Screened | None]],
        look_up: Callable[[ToolCall], Coroutine[Any, Any, str]],
        guess: Callable[[Ballot], None],
        record: Callable[[RecordSample], None],
    ) -> None:
        self._run_id = run_id
        self._task = task
        self._election = election
        self._question = question
        self._draw = draw
        self._look_up = look_up
        self._verifies = bool(question.state) and verifies(type(task))
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
            seen = [each.feedback for each in before.replies if each.is_look_up]
            first, rejections = with_observations(asked, seen), [each for each in before.replies if not each.is_look_up]
            drawn = await self._draw(seq, self._with_feedback(first, rejections), first, len(before.replies))
            if drawn is None:
                return None
            sample, ballot = drawn
            ballot = structs.replace(ballot, cost_usd=total_usd([before.cost_usd, ballot.cost_usd]))
            further: Rejection | str | None = None
            if isinstance(ballot, Wanted):
                if len(seen) < self._task.tool_rounds:
                    further = await self._looked_up(ballot)
                else:
                    further = TOO_MANY_ROUNDS
            elif isinstance(ballot, Ballot) and self._verifies:
                feedback = await self._feedback_on(ballot, (self._loop.time() - began_s) * GUESS_AFTER)
                if feedback is not None:
                    rejection = Rejection(value=ballot.value.decode(), feedback=feedback)
                    further = rejection if len(rejections) < MAX_REPAIRS else UNVERIFIED
            if isinstance(further, Rejection):
                rejected = Rejected(seq=seq, replies=(*before.replies, further), cost_usd=ballot.cost_usd)
                self._rejected[seq] = rejected
                self._record(RecordSample(id=SampleId(election=self._election, seq=seq), ballot=rejected))
                continue
            self._rejected.pop(seq, None)
            if isinstance(ballot, Wanted) or further is not None:
                return sample, Flagged(seq=seq, flag=further or TOO_MANY_ROUNDS, cost_usd=ballot.cost_usd)
            return sample, ballot

    async def _looked_up(self, wanted: Wanted) -> Rejection:
        """Make the calls of a reply side by side; the results are in their order."""
        value = msgspec.json.encode(wanted.calls).decode()
        calls = [self._scope.start(self._look_up(call)) for call in wanted.calls]
        try:
            return Rejection(value=value, feedback="".join([await call for call in calls]), is_look_up=True)
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
        with KeyedBy(self._run_id, self._election.path, value):
            return await feedback_on(self._task, reply, self._question.state)

    def _with_feedback(self, asked: Prompt, rejected: Sequence[Rejection]) -> Prompt:
        decode = decoder_of(resolve(self._question.reply, Reply)).decode
        return with_feedback(asked, [(decode(each.value), each.feedback) for each in rejected], self._task.format)
