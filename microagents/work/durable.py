"""Durable calls: `Work.once`, `Work.sample` and `Work.elect` answer recorded questions from the journal, and ask only new ones.

A role that uses them is replayed after its process died, and in a resumed run. Apart from these calls its work must be deterministic: it
must not depend on a clock, on randomness or on the order of completion.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, ClassVar, Generic, Unpack

import msgspec
from msgspec import Struct, structs

from microagents.actors.role import G, T
from microagents.base.errors import InvalidDefinition, InvalidUsage
from microagents.base.messages import Message, R, Request, address_of, reply_type
from microagents.base.round_trips import NotGivenBack, RoundTrip
from microagents.elections.election import Ballot, Decision, ElectionId, Flagged, Question, Verdict
from microagents.elections.rules import FirstValid
from microagents.journal.messages import Checkpoint, Recall, Record, RecordDecision, RecordProgress, answered
from microagents.replies.chat import Prompt, Sampling
from microagents.replies.reply import A
from microagents.replies.reply_forms import decoder_of
from microagents.replies.tool_calls import ToolCall
from microagents.work.elections import ElectionOptions, Elections, Elector, encode_state
from microagents.work.notes import Note

REDRAW = "redraw"
"""Last component of the path of samples that are drawn because too few were valid."""
SINGLE = "single"
"""The mark of a candidate that was the only valid one of several samples, so that it had no rival."""
PLACES_CHECKED = 10_000
"""Number of the latest places of a role that are checked for a second question. A chain of a million may not keep them all."""
PROGRESS_EVERY_S = 0.1
"""Shortest interval of progress reports from one input. The last report is always sent."""


class DurableRequest(Request[R], Generic[R], frozen=True, kw_only=True):
    """A request on behalf of one input, to a role that makes durable calls."""

    route_by = "at"
    replies_after_tells = True
    at: str
    """Place in the work; unique within the input."""
    input: int = 0
    """Number of the input. `Work.ask` fills it in."""
    recalls: bool = True
    """Whether the journal may have answers for this request, see `Elections.may_be_recorded`. `Work.ask` fills it in."""
    handed: bytes = b""
    """Calls of the hand-offs that lead to its agent, as JSON. `Work.ask` fills it in."""


class DurableRole(Elector):
    """A role with durable calls. Its handlers take a `DurableRequest` and begin with ``work = self.work_on(request)``."""

    asks: ClassVar[tuple[type[Message], ...]] = (Record,)

    def work_on(self, request: DurableRequest[Any]) -> Work:
        """Return the work on a request. Its places are the request's own and those below it."""
        return Work(self, request.input, recalls=request.recalls, handed=request.handed, within=request.at)


class Work(Elections[T, G]):
    """Durable calls on behalf of one input.

    A place (``at``) is a path that is unique within the input, such as ``line/17/rate``. A call at a recorded place is answered from the
    journal. If the question there has changed, the call is refused; so is a second question at one place in the same sitting, unless ten
    thousand other places of its role lie between the two.
    """

    role: DurableRole

    def __init__(
        self,
        role: DurableRole,
        of_input: int,
        *,
        recalls: bool,
        checkpoint: Checkpoint | None = None,
        handed: bytes = b"",
        below: str = "",
        within: str = "",
    ) -> None:
        super().__init__(role, of_input, recalls=recalls, handed=handed, below=below, within=within)
        self.checkpoint = checkpoint
        self._progress: tuple[int, int | None] = (0, None)
        self._progress_sent_s = 0.0

    async def ask(self, request: DurableRequest[R]) -> R:
        """Send a request on behalf of this input. The request itself is not durable; the durable calls of its handler are."""
        kind = _digest(address_of(type(request)).encode())
        self._only_question(request.at, ElectionId(path=self.path_of(request.at), question_digest=kind))
        recalls, at = await self.may_be_recorded(), self.place(request.at)
        of_input = structs.replace(request, at=at, input=self.input, recalls=recalls, handed=self.handed)
        return await self.role.ask(of_input)

    async def handed_off(self, call: ToolCall, at: str) -> Work[Any, G]:
        """Return the work of the agent that a call hands work off to, a part of the same input with places below ``at``.

        It has no checkpoint: a resumed run begins it again, and the journal answers for each step that is recorded.
        """
        calls = [*msgspec.json.decode(self.handed or b"[]"), call]
        handed = msgspec.json.encode(calls, order="deterministic")
        recalls, below = await self.may_be_recorded(), f"{self.place(at)}/"
        return Work(self.role, self.input, recalls=recalls, handed=handed, below=below)

    async def once(self, at: str, request: Request[R]) -> R:
        """Send a request once at this place, and answer from the journal afterwards.

        The answer is given as the journal gives it back.

        Raises:
            JournalMismatch: another request was recorded there.
            InvalidDefinition: the journal cannot give the answer back.
        """
        asked = address_of(type(request)).encode() + b"\0" + encode_state(request)
        place = self._only_question(at, ElectionId(path=self.path_of(at), question_digest=_digest(asked)))
        recalled = await self.recorded(place)
        kept: RoundTrip[R] = RoundTrip(reply_type(type(request)), "answer")
        try:
            if recalled is not None and recalled.value is not None:
                return kept.decode(recalled.value)
            written, answer = kept(await self.role.ask(request))
        except NotGivenBack as error:
            raise InvalidDefinition(
                f"the journal cannot give the answer to {type(request).__qualname__} at {place.path} back: {error}; answer with values "
                "that JSON has"
            ) from None
        self.record(answered(place, written))
        return answer

    async def sample(
        self,
        at: str,
        prompt: Prompt | Sequence[Prompt],
        reply: type[A],
        *,
        n: int = 1,
        model: str | None = None,
        sampling: Sampling | None = None,
        max_draws: int = 100,
        needed: bool = False,
        choices: Sequence[str] = (),
        state: Struct | None = None,
    ) -> list[A]:
        """Draw samples without a vote until n replies are valid or ``max_draws`` samples are drawn; returns the valid replies.

        With ``choices``, a reply with another vote is flagged. ``state`` is the state of a step, for the task's red flag. With
        ``needed``, a place without a valid reply is undecided, and ``--on-undecided`` is applied to it.

        Raises:
            Undecided: a reply is needed, and there is none.
            JournalMismatch: another question was recorded there.
        """
        question = self.question(
            prompt,
            reply,
            rule=FirstValid(n),
            model=model,
            sampling=sampling,
            max_draws=max_draws,
            choices=choices,
            state=state,
        )
        place = self._only_question(at, self.election_id(at, question))
        verdict = await self.hold(place, question)
        settled = await self._settled_sample(place, question, verdict, reply) if needed else None
        if settled is None:
            self.record_sample(place, verdict)
        return _decoded(settled or verdict, reply)

    async def draw(
        self,
        at: str,
        prompt: Prompt,
        reply: type[A],
        *,
        sampling: Sampling,
        correct: Callable[[A], bool | None] = lambda _: None,
    ) -> A | Flagged:
        """Draw one sample; returns the reply, or its red flag. ``correct`` judges a reply for the account of errors, if code can.

        Raises:
            JournalMismatch: another question was recorded there.
        """
        question = self.question(prompt, reply, rule=FirstValid(1), sampling=sampling, max_draws=1)
        place = self._only_question(at, self.election_id(at, question))
        verdict = await self.hold(place, question)
        (ballot,) = verdict.ballots
        drawn = ballot if isinstance(ballot, Flagged) else decoder_of(reply).decode(ballot.value)
        self.record_sample(place, verdict, correct=None if isinstance(drawn, Flagged) else correct(drawn))
        return drawn

    async def propose(
        self,
        at: str,
        prompt: Prompt,
        reply: type[A],
        *,
        n: int,
        at_least: int,
        max_draws: int,
        sampling: Sampling,
        needed: bool = False,
        keep: Callable[[Sequence[A]], Sequence[A]] = lambda drawn: drawn,
    ) -> list[A]:
        """Draw n candidates at once, without a vote; returns the valid ones.

        If only some of them are valid, and fewer than ``at_least``, more are drawn at ``at/redraw``, up to ``max_draws`` in all. One that
        remains the only valid one of several is marked ``single`` in the account (``settled_at``). ``keep`` keeps the replies that may
        become candidates. ``needed`` is as in `sample`.

        Raises:
            Undecided: a reply is needed, and there is none.
            JournalMismatch: another question was recorded there.
        """
        question = self.question(prompt, reply, rule=FirstValid(n), sampling=sampling, max_draws=n)
        place = self._only_question(at, self.election_id(at, question))
        verdict = await self.hold(place, question)
        settled = await self._settled_sample(place, question, verdict, reply) if needed else None
        if settled is not None:
            return list(keep(_decoded(settled, reply)))
        kept = list(keep(_decoded(verdict, reply)))
        missing = min(at_least, n) - len(kept)
        if kept and missing > 0 and max_draws > n:
            kept += keep(
                await self.sample(
                    f"{at}/{REDRAW}", prompt, reply, n=missing, max_draws=max_draws - n, sampling=sampling
                )
            )
        self.record_sample(place, verdict, mark=SINGLE if len(kept) == 1 < n else None)
        return kept

    def record_sample(
        self, place: ElectionId, verdict: Verdict, *, correct: bool | None = None, mark: str | None = None
    ) -> None:
        """Record replies that decide nothing by themselves."""
        self.record(
            RecordDecision(id=place, verdict=structs.replace(verdict, outcome="sampled"), correct=correct, settled=mark)
        )

    async def _settled_sample(
        self, place: ElectionId, question: Question, verdict: Verdict, reply: type[A]
    ) -> Verdict | None:
        """Return the verdict of a needed sample that a person, the leader or another model gave, recorded; None if a reply is valid."""
        if verdict.winner is not None and verdict.outcome != "person":
            return None
        if verdict.outcome == "person":
            undecided = verdict
        else:
            undecided = structs.replace(verdict, outcome="undecided")
        resolution = await self.settle(place, question, undecided)
        if resolution.verdict.winner is not None and resolution.verdict.outcome == "undecided":
            # The other model gave fewer than n valid replies: one is enough if a reply is needed.
            resolution = structs.replace(resolution, verdict=structs.replace(resolution.verdict, outcome="decided"))
        self.commit(resolution, reply).require()
        return resolution.verdict

    async def elect(
        self,
        at: str,
        prompt: Prompt | Sequence[Prompt],
        reply: type[A],
        *,
        correct: Callable[[A], bool | None] | None = None,
        **options: Unpack[ElectionOptions],
    ) -> Decision[A]:
        """Put a question to models until a rule decides. For its options see `ElectionOptions`.

        Samples cycle through several prompts (shuffled, paraphrased) by seq. ``correct`` judges a decision for the account of errors,
        if code can.

        Raises:
            JournalMismatch: another question was recorded there.
        """
        question = self.question(prompt, reply, **options)
        election = self._only_question(at, self.election_id(at, question))
        verdict = await self.hold(election, question)
        return self.commit(await self.settle(election, question, verdict), reply, correct)

    async def record_answer(self, at: str, value: object) -> None:
        """Record a value that depends on time, and wait until the keeper has it. Nothing may depend on the value before that.

        Raises:
            InvalidDefinition: the journal cannot give the value back.
        """
        self.tell_answer(at, value)
        await self.flush()

    def tell_answer(self, at: str, value: object) -> None:
        """Record a value that depends on time, without a wait. Records that depend on it come after it."""
        place = ElectionId(path=self.path_of(at), question_digest=_digest(at.encode()))
        kept: RoundTrip[object] = RoundTrip(type(value), "value")
        try:
            written, _ = kept(value)
        except NotGivenBack as error:
            raise InvalidDefinition(f"the journal cannot give the value at {place.path} back: {error}") from None
        self.record(answered(place, written))

    async def flush(self) -> None:
        """Wait until the keeper has all records that this role has sent."""
        # Messages from one sender to one replica keep their order, so the keeper answers after it has taken in the records.
        await self.role.ask(Recall(path=f"{self.input}/flush"))

    def _only_question(self, at: str, place: ElectionId) -> ElectionId:
        """Return the place if it has only this question. Of two, the journal keeps the first, and the run could never be resumed."""
        questions = self.role.questions
        if questions.setdefault((self.within, place.path), place.question_digest) != place.question_digest:
            raise InvalidDefinition(f"the path {at!r} names two questions; make it unique, such as {at}/3")
        if len(questions) > PLACES_CHECKED:
            del questions[next(iter(questions))]
        return place

    def note(self, note: Note) -> None:
        """Let those who listen to a replay draw this part of the work. It does nothing in a run."""
        if (listener := self.role.context.listener) is not None:
            listener(note)

    def progress(self, done: int, total: int | None = None) -> None:
        """Report the number of done steps; ``total`` is None while it is unknown.

        Raises:
            InvalidUsage: one is not a whole number from 0 on.
        """
        given: Any
        for given in (done, total or 0):
            if not isinstance(given, int) or given < 0:
                raise InvalidUsage(f"progress() takes whole numbers of steps from 0 on, not {given!r:.100}")
        self._progress = done, total
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._progress_sent_s + PROGRESS_EVERY_S:
            self._progress_sent_s = now_s
            self.tell_progress()

    def tell_progress(self) -> None:
        """Send the last progress report now: of the input's own agent, if work was handed off."""
        if self.handed:
            return
        done, total = self._progress
        self.record(RecordProgress(input=self.input, done=done, total=total))


def _decoded(verdict: Verdict, reply: type[A]) -> list[A]:
    """Return the valid replies in launch order, or the one that a person gave instead."""
    drawn = [ballot.value for ballot in verdict.ballots if isinstance(ballot, Ballot)]
    return [decoder_of(reply).decode(value) for value in drawn or [value for value, _ in verdict.tally]]


def _digest(asked: bytes) -> bytes:
    return blake2b(asked, digest_size=16).digest()
