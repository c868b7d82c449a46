"""Durable calls: what a role asks models, or others, once and for all; whoever takes the run up again gets the same answers.

A `Conductor` does the work on one input with them. Apart from these calls it is deterministic: it may be replayed.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing
from hashlib import blake2b
from typing import Any, ClassVar, Generic, Self, TypedDict, Unpack, cast

import msgspec
from msgspec import Struct, structs

from microagents.actors import Context, G, Messenger, Role, T
from microagents.chat import A, Prompt, Reply, Sampling, decoder_of, fingerprint, system_with_instructions
from microagents.elections.count import Count
from microagents.elections.election import ESCALATED, Ballot, Decision, Elect, ElectionId, Follow, Question, Verdict
from microagents.elections.rules import FirstValid, Rule
from microagents.errors import InvalidDefinition, InvalidUsage, JournalMismatch, TaskFailed
from microagents.journal.messages import (
    Checkpoint,
    HasRecords,
    Recall,
    RecallCheckpoint,
    Recalled,
    RecordAnswer,
    RecordDecision,
    RecordProgress,
)
from microagents.messages import Message, R, Request, address_of, reply_type, resolve

PROGRESS_EVERY_S = 0.1
"""How often a conductor tells how far it is; the last word is always told."""


class How(TypedDict, total=False):
    """How an election is held; what is not said is the run's."""

    model: str | None
    """One model's spec; else the run's pool."""
    rule: Rule | None
    """When it is decided; else ahead-by the strategy's k."""
    sampling: Sampling | None
    """Temperatures and lengths; else the task's."""
    max_draws: int
    """Its cap, 100: after so many samples it ends undecided."""
    choices: Sequence[str]
    """The only votes that count, such as the labels of candidates; a reply that casts another is flagged."""


class Resolution(Struct, frozen=True, kw_only=True):
    """An election that has ended, and who decided it if the vote did not."""

    id: ElectionId
    verdict: Verdict
    settled: str | None = None
    choices: tuple[str, ...] = ()
    """The votes that could be cast; empty where any could be."""


class DurableRole(Role):
    """A role that holds elections, draws samples and asks once. Paths are unique within an input."""

    asks: ClassVar[tuple[type[Message], ...]] = (Elect, Follow, Recall, HasRecords, RecordAnswer, RecordDecision)
    draws_as: ClassVar[str] = "solver"
    """The role by whose name ``--model ROLE=SPEC`` gives its questions a pool of their own."""
    input: int = 0
    """Which of the run's inputs it works on."""

    def __init__(self, context: Context, messenger: Messenger) -> None:
        super().__init__(context, messenger)
        self._recalls: dict[int, bool] = {}
        """Whether the journal held anything of an input when this process first asked; shared with the objects that work on one."""
        self._asker_recalls: bool | None = None
        """What whoever asked for the work knows of that: after a death it may ask again for what this process has done."""

    def for_input(self, number: int, *, recalls: bool | None = None) -> Self:
        """The same role at work on one of the run's inputs: an object of its own, since a role may work on many at a time.

        ``recalls`` is what `recalls` told whoever asks for the work; without it the journal is looked into before every durable call.
        """
        one = copy.copy(self)
        one.input, one._asker_recalls = number, recalls  # noqa: SLF001 - its own
        return one

    async def recalls(self) -> bool:
        """Whether the journal may hold what is asked for now: the work was begun in another sitting, or by a process that has died."""
        if self._asker_recalls or self._recalls.get(self.input):
            return True
        if self.input not in self._recalls or self._asker_recalls is None:
            self._recalls[self.input] = await self.ask(HasRecords(input=self.input))
        return self._recalls[self.input]

    async def once(self, at: str, request: Request[R]) -> R:
        """Ask once at this place of the work. ``at`` is a path unique within an input.

        Raises:
            JournalMismatch: another request was answered there.
        """
        asked = address_of(type(request)).encode() + b"\0" + encode_state(request)
        place = ElectionId(path=self._path(at), question_digest=blake2b(asked, digest_size=16).digest())
        recalled = await self.recalled(place.path, place.question_digest)
        if recalled is not None and recalled.value is not None:
            answer: R = msgspec.json.decode(recalled.value, type=reply_type(type(request)))
            return answer
        answer = await self.ask(request)
        self.tell(RecordAnswer(id=place, value=msgspec.json.encode(answer)))
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
    ) -> list[A]:
        """Draw until n replies are valid, without a vote; fewer, possibly none, once ``max_draws`` samples are drawn.

        With ``needed`` a place without a valid reply is undecided, and ``--on-undecided`` is applied to it.

        Raises:
            Undecided: a reply is needed, and there is none.
        """
        question = self.question(prompt, reply, rule=FirstValid(n), model=model, sampling=sampling, max_draws=max_draws)
        place = self.election_id(at, question)
        verdict = await self.recall(place, question) or await self.hold(place, question)
        if needed and (verdict.winner is None or verdict.outcome == "person"):
            undecided = verdict if verdict.outcome == "person" else structs.replace(verdict, outcome="undecided")
            held = await self.settle(place, question, undecided)
            if held.verdict.winner is not None and held.verdict.outcome == "undecided":  # of another model, and fewer than n
                held = structs.replace(held, verdict=structs.replace(held.verdict, outcome="decided"))
            self.commit(held, reply).require()
            verdict = held.verdict
        else:
            self.tell(RecordDecision(id=place, verdict=structs.replace(verdict, outcome="sampled"), correct=None))
        decode = decoder_of(reply).decode
        return [decode(value) for value in _valid(verdict)]

    async def elect(
        self,
        at: str,
        prompt: Prompt | Sequence[Prompt],
        reply: type[A],
        *,
        correct: Callable[[A], bool | None] | None = None,
        **how: Unpack[How],
    ) -> Decision[A]:
        """Put a question to models until a rule decides. ``at`` is a path unique within an input; `How` names the other options.

        Several prompts are cycled by seq (shuffled, paraphrased). ``correct`` judges a decision for the account of errors, where code can.
        """
        question = self.question(prompt, reply, **how)
        election = self.election_id(at, question)
        verdict = await self.recall(election, question) or await self.hold(election, question)
        return self.commit(await self.settle(election, question, verdict), reply, correct)

    async def election(
        self,
        at: str,
        prompt: Prompt | Sequence[Prompt],
        reply: type[A],
        *,
        correct: Callable[[A], bool | None] | None = None,
        **how: Unpack[How],
    ) -> AsyncIterator[A | Decision[A]]:
        """The same as `elect`, item by item: valid replies as they arrive (to guess with, never to decide), then the `Decision`."""
        question = self.question(prompt, reply, **how)
        election = self.election_id(at, question)
        verdict = await self.recall(election, question)
        if verdict is None:
            async with aclosing(self.stream(Follow(id=election, question=question))) as items:
                async for item in items:
                    if isinstance(item, Verdict):
                        verdict = item
                    else:
                        yield decoder_of(reply).decode(item.value)
        if verdict is None:
            raise no_verdict(election)
        yield self.commit(await self.settle(election, question, verdict), reply, correct)

    # What the durable calls are made of; a strategy that guesses ahead puts them together in its own way.

    def question(self, prompt: Prompt | Sequence[Prompt], reply: type[A], *, state: Struct | None = None, **how: Unpack[How]) -> Question:
        """Put together what an election asks, with the format instructions in its prompts."""
        prompts = [prompt] if isinstance(prompt, Prompt) else prompt
        max_draws = how.get("max_draws", 100)
        if not prompts or max_draws < 1:
            raise InvalidUsage(f"an election needs a prompt and at least one draw, not {len(prompts)} prompts and max_draws={max_draws}")
        for each in prompts:
            if not isinstance(each, Prompt):
                raise TaskFailed("prompt()", f"must give a Prompt, not {each!r:.100}")
        address = address_of(reply)
        if resolve(address, Reply) is not reply:
            raise InvalidDefinition(f"there are two classes {address}; an election names its reply by it: give one another name")
        task = self.context.tasks[self.input]
        model = how.get("model")
        return Question(
            prompts=tuple([Prompt(system=system_with_instructions(each.system, reply, task.format), user=each.user) for each in prompts]),
            reply=address,
            form=fingerprint(reply),
            rule=how.get("rule") or self.context.strategy.default_rule,
            sampling=how.get("sampling") or task.sampling,
            models=self.context.pool(self.draws_as) if model is None else (model,),
            max_draws=max_draws,
            state=b"" if state is None else encode_state(state),
            choices=tuple(how.get("choices", ())),
        )

    def election_id(self, at: str, question: Question) -> ElectionId:
        """The name of a question's election at this place of the work."""
        return question.id_at(self._path(at))

    async def recall(self, election: ElectionId, question: Question) -> Verdict | None:
        """How the election ended in an earlier sitting of the run; None where it has still to be held.

        Raises:
            JournalMismatch: another question was decided there.
        """
        recalled = await self.recalled(election.path, election.question_digest)
        if recalled is None:
            return None
        count = Count(question)
        for ballot in recalled.ballots:
            count.add(ballot)
        verdict = structs.replace(count.verdict(), cost_usd=recalled.cost_usd)
        if recalled.value is None:
            return verdict
        outcome = structs.replace(verdict, outcome=cast("Any", recalled.outcome))
        return _won_by(outcome, recalled.value) if verdict.winner != recalled.value else outcome

    def hold(self, election: ElectionId, question: Question) -> Coroutine[Any, Any, Verdict]:
        """Hold an election to its end without going on from its verdict."""
        return self.ask(Elect(id=election, question=question))

    async def settle(self, election: ElectionId, question: Question, verdict: Verdict) -> Resolution:
        """What is done where an election ended undecided: ``--on-undecided``."""
        on_undecided: str = self.context.settings.get("on_undecided", "stop")
        if verdict.outcome in ("leader", "person"):  # recalled
            return Resolution(id=election, verdict=verdict, settled=verdict.outcome)
        held = Resolution(id=election, verdict=verdict, choices=question.choices)
        if verdict.outcome != "undecided" or on_undecided == "stop":
            return held
        if on_undecided == "leader":
            if verdict.leader is None:
                return held
            return Resolution(id=election, verdict=structs.replace(verdict, outcome="leader"), settled="leader")
        self.tell(RecordDecision(id=election, verdict=verdict, correct=None, reply=question.reply, choices=question.choices))
        again = structs.replace(question, models=(on_undecided,))
        second = again.id_at(election.path + ESCALATED)
        verdict = await self.recall(second, again) or await self.hold(second, again)
        who = "person" if verdict.outcome == "person" else on_undecided
        return Resolution(id=second, verdict=verdict, settled=who, choices=question.choices)

    def commit(
        self,
        held: Resolution,
        reply: type[A],
        correct: Callable[[A], bool | None] | None = None,
        *,
        done: int | None = None,
        state: bytes = b"",
    ) -> Decision[A]:
        """Go on from a verdict: it enters the record, the digests and the account of errors.

        ``done`` and ``state`` say how far the input is with it, in work that can be taken up after a step.
        """
        decision = _decision(held.id.path, held.verdict, reply)
        right = correct(decision.value) if correct is not None and decision.decided and decision.value is not None else None
        self.tell(
            RecordDecision(
                id=held.id,
                verdict=held.verdict,
                correct=right,
                done=done,
                state=state,
                settled=held.settled,
                reply=address_of(reply),
                choices=held.choices,
            )
        )
        return decision

    async def recalled(self, path: str, question_digest: bytes) -> Recalled | None:
        """What the journal holds at a place.

        Raises:
            JournalMismatch: another question was decided there.
        """
        recalled = await self.ask(Recall(path=path)) if await self.recalls() else None
        if recalled is None or recalled.question_digest == question_digest or (recalled.changed and recalled.value is not None):
            return recalled
        if recalled.value is None:  # it ended undecided when the question was another one
            return None
        raise JournalMismatch("question", f"another one at {path}", "what the task or the strategy asks there")

    def _path(self, at: str) -> str:
        if not at or not at.isprintable():
            raise InvalidUsage(f"{at!r} is no path: name the place in the work, such as 'line/17'")
        return f"{self.input}/{at}"


class Conducted(Struct, frozen=True, kw_only=True):
    """What the work on one input gave, as JSON."""

    value: bytes


class Conduct(Request[Conducted], frozen=True, kw_only=True):
    """Do the whole work on one input."""

    route_by = "input"
    input: int


class Conductor(DurableRole, Generic[T, G]):
    """Does the work on one input."""

    asks: ClassVar[tuple[type[Message], ...]] = (RecallCheckpoint, RecordProgress)
    task: T
    strategy: G
    reached: Checkpoint | None = None
    """How far the input is: after which step it can be taken up."""
    _progress: tuple[int, int | None] = (0, None)
    _progress_told_s = 0.0

    async def conduct(self) -> object:
        """Do the work; returns what it gives, as JSON-like values or a struct."""
        raise NotImplementedError

    async def conduct_input(self, request: Conduct) -> Conducted:
        """Do the work on one input with an object of its own."""
        one = self.for_input(request.input, recalls=False)
        one.reached = await self.ask(RecallCheckpoint(input=request.input))
        try:
            return Conducted(value=msgspec.json.encode(await one.conduct()))
        finally:
            one._tell_progress()  # noqa: SLF001 - its own

    def for_input(self, number: int, *, recalls: bool | None = None) -> Self:
        """The same conductor at work on one of the run's inputs."""
        one = super().for_input(number, recalls=recalls)
        one.task = cast("T", self.context.tasks[number])
        one.strategy = cast("G", self.context.strategy)
        return one

    def progress(self, done: int, total: int | None = None) -> None:
        """Say how far the work is."""
        self._progress = done, total
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._progress_told_s + PROGRESS_EVERY_S:
            self._progress_told_s = now_s
            self._tell_progress()

    def _tell_progress(self) -> None:
        done, total = self._progress
        self.tell(RecordProgress(input=self.input, done=done, total=total))


encode_state = msgspec.json.Encoder(order="deterministic").encode
"""A state as it enters the name of an election, and the journal."""


def no_verdict(election: ElectionId) -> InvalidDefinition:
    """What is said of a voter of a user's own that breaks off."""
    return InvalidDefinition(f"the election at {election.path} ended without a verdict: the handler of Follow must yield one")


def _won_by(verdict: Verdict, value: bytes) -> Verdict:
    """A verdict for another reply than the one with most votes, or for one without any."""
    values = [each for each, _ in verdict.tally]
    tally = verdict.tally if value in values else (*verdict.tally, (value, 0))
    return structs.replace(verdict, tally=tally, leader=values.index(value) if value in values else len(values))


def _valid(verdict: Verdict) -> list[bytes]:
    """The valid replies in order of launch, or what a person gave in their place."""
    drawn = [ballot.value for ballot in verdict.ballots if isinstance(ballot, Ballot)]
    return drawn or [value for value, _ in verdict.tally]


def _decision(path: str, verdict: Verdict, reply: type[A]) -> Decision[A]:
    decode = decoder_of(reply).decode
    tally = tuple((decode(value), votes) for value, votes in verdict.tally)
    value = None if verdict.leader is None or verdict.outcome == "undecided" else tally[verdict.leader][0]
    flagged = len(verdict.ballots) - sum(votes for _, votes in tally)
    return Decision(path=path, value=value, outcome=verdict.outcome, tally=tally, flagged=flagged)
