"""Durable calls: `Work.once`, `Work.sample` and `Work.elect` answer recorded questions from the journal, and ask only new ones.

A role that uses them is replayed after its process died, and in a resumed run. Apart from these calls its work must be deterministic: it
must not depend on a clock, on randomness or on the order of completion.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing
from hashlib import blake2b
from typing import Any, ClassVar, Generic, TypedDict, TypeVar, Unpack, cast

import msgspec
from msgspec import Struct, structs

from microagents.actors import Context, G, Messenger, Role, T
from microagents.elections.count import Count
from microagents.elections.election import ESCALATED, Ballot, Decision, Elect, ElectionId, Flagged, Follow, Question, Verdict
from microagents.elections.rules import FirstValid, Rule, UntilImprobable, portable
from microagents.errors import InvalidDefinition, InvalidUsage, JournalMismatch, TaskFailed
from microagents.journal.messages import Checkpoint, HasRecords, Recall, Recalled, RecordAnswer, RecordDecision, RecordProgress
from microagents.messages import Message, R, Request, address_of, reply_type, resolve
from microagents.models.weighing import at_least, options_of, rule_for
from microagents.registry import unknown
from microagents.replies.chat import A, Prompt, Reply, Sampling, decoder_of, fingerprint, has_prose, system_with_instructions
from microagents.user_code import shown

V = TypeVar("V")

REDRAW = "redraw"
"""Last component of the path of samples that are drawn because too few were valid."""
SINGLE = "single"
"""The mark of a candidate that was the only valid one of several samples, so that it had no rival."""
PLACES_CHECKED = 1000
"""Number of the latest places of a piece of work that are checked for a second question. A chain of a million may not keep them all."""
PROGRESS_EVERY_S = 0.1
"""Shortest interval of progress reports from one input. The last report is always sent."""


class DurableRequest(Request[R], Generic[R], frozen=True, kw_only=True):
    """A request on behalf of one input, to a role that makes durable calls."""

    route_by = "at"
    at: str
    """Place in the work; unique within the input."""
    input: int = 0
    """Number of the input. `Work.ask` fills it in."""
    recalls: bool = True
    """Whether the journal may have answers for this request, see `Work.recalls`. `Work.ask` fills it in."""


class ElectionOptions(TypedDict, total=False):
    """Options of an election. The strategy, the task and the run set the defaults."""

    model: str | None
    """Spec of one model; by default the run's pool."""
    rule: Rule | None
    """Rule that decides; by default ahead by the strategy's k."""
    sampling: Sampling | None
    """Temperatures and length limits; by default the task's."""
    max_draws: int
    """Cap: after this many samples the election ends undecided; by default 100."""
    choices: Sequence[str]
    """Votes that a reply may cast, such as the labels of candidates; a reply with another vote is flagged. By default any vote."""


_ELECTION_OPTIONS = frozenset(ElectionOptions.__annotations__)


class Resolution(Struct, frozen=True, kw_only=True):
    """The result of an election after the ladder was climbed, and ``--on-undecided`` was applied to it."""

    id: ElectionId
    verdict: Verdict
    settled: str | None = None
    """How an undecided election was settled: ``leader``, ``person`` or the spec of another model; None where it was not."""
    rung: str | None = None
    """Name of the rung of a ladder that decided it; None where none was climbed."""
    choices: tuple[str, ...] = ()
    """The votes that a reply may cast; empty for any vote."""


class DurableRole(Role):
    """A role with durable calls. Its handlers take a `DurableRequest` and begin with ``work = self.work_on(request)``."""

    asks: ClassVar[tuple[type[Message], ...]] = (Elect, Follow, Recall, HasRecords, RecordAnswer, RecordDecision, RecordProgress)
    handles_no_message: ClassVar[tuple[str, ...]] = ("has_records",)
    draws_as: ClassVar[str] = "solver"
    """Name of this role in ``--model ROLE=SPEC``, which sets the pool for its questions."""

    def __init__(self, context: Context, messenger: Messenger) -> None:
        super().__init__(context, messenger)
        self._has_records: dict[int, bool] = {}
        """For each input, whether the journal had records of it when this process first asked."""
        limits = {name: context.settings.get(name) for name in ("max_output_tokens", "flag_above_tokens")}
        self.sampling_limits = {name: limit for name, limit in limits.items() if limit is not None}
        """The run's own limits of replies, by the name of the field of `Sampling`."""
        self._began_with_nothing = False
        """Whether the journal had no records at all when this process started."""

    async def start(self) -> None:
        """Ask whether this process begins a run, or takes part in one that has records."""
        # A role that is first asked in the middle of a run finds records of it. Without this, it would look up each of its calls in vain: a
        # round trip to the recorder, and a commit (measured on Ray: 18 of 20 ms of a turn).
        self._began_with_nothing = not await self.ask(HasRecords(input=None))

    def work_on(self, request: DurableRequest[Any]) -> Work[Any, Any]:
        """The work that a request is part of."""
        return Work(self, request.input, recalls=request.recalls)

    async def has_records(self, of_input: int) -> bool:
        """Whether the journal had records of an input when this process first asked."""
        if self._began_with_nothing:
            return False
        if of_input not in self._has_records:
            self._has_records[of_input] = await self.ask(HasRecords(input=of_input))
        return self._has_records[of_input]


class Work(Generic[T, G]):
    """Durable calls on behalf of one input.

    A place (``at``) is a path that is unique within the input, such as ``line/17/rate``. A call at a recorded place is answered from the
    journal. If the question there has changed, the call is refused; so is a second question at one place in the same sitting, unless a
    thousand other places lie between the two.

    Args:
        role: the role that does the work; it sends the messages.
        of_input: number of the input.
        recalls: the `recalls` flag of the request that asked for this work.
        checkpoint: the last decided step of the input, in work that can resume after a step.
    """

    def __init__(self, role: DurableRole, of_input: int, *, recalls: bool, checkpoint: Checkpoint | None = None) -> None:
        self.role = role
        self.input = of_input
        self.checkpoint = checkpoint
        self._asker_recalls = recalls
        self._form: tuple[Question, tuple[object, ...]] | None = None
        """The last question without its prompts and its state, and what it was made of: most questions of a work are alike."""
        self._questions: dict[str, bytes] = {}
        """The digest of the question at each of the latest places."""
        self._progress: tuple[int, int | None] = (0, None)
        self._progress_sent_s = 0.0

    @property
    def task(self) -> T:
        """The task of this input."""
        return cast("T", self.role.context.tasks[self.input])

    @property
    def strategy(self) -> G:
        """The run's strategy."""
        return cast("G", self.role.context.strategy)

    async def recalls(self) -> bool:
        """Whether the journal may have answers for this work, because an earlier sitting or a process that died began it.

        The flag travels with every `DurableRequest`. A role that began with an empty journal would otherwise not look there when the
        replacement of a dead conductor repeats a request, and would pay for its samples again.
        """
        return self._asker_recalls or await self.role.has_records(self.input)

    async def ask(self, request: DurableRequest[R]) -> R:
        """Send a request on behalf of this input. The request itself is not durable; the durable calls of its handler are."""
        return await self.role.ask(structs.replace(request, input=self.input, recalls=await self.recalls()))

    async def once(self, at: str, request: Request[R]) -> R:
        """Send a request once at this place, and answer from the journal afterwards.

        Raises:
            JournalMismatch: another request was recorded there.
        """
        asked = address_of(type(request)).encode() + b"\0" + encode_state(request)
        place = self._only_question(at, ElectionId(path=self.path_of(at), question_digest=blake2b(asked, digest_size=16).digest()))
        recalled = await self.recalled(place)
        if recalled is not None and recalled.value is not None:
            answer: R = msgspec.json.decode(recalled.value, type=reply_type(type(request)))
            return answer
        answer = await self.role.ask(request)
        self.role.tell(RecordAnswer(id=place, value=msgspec.json.encode(answer)))
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

        Where ``choices`` are given, a reply with another vote is flagged. ``state`` is that of a step, for the task's red flag. With
        ``needed``, a place without a valid reply is undecided, and ``--on-undecided`` is applied to it.

        Raises:
            Undecided: a reply is needed, and there is none.
            JournalMismatch: another question was recorded there.
        """
        question = self.question(
            prompt, reply, rule=FirstValid(n), model=model, sampling=sampling, max_draws=max_draws, choices=choices, state=state
        )
        place = self._only_question(at, self.election_id(at, question))
        verdict = await self.recall_or_hold(place, question)
        settled = await self._settled_sample(place, question, verdict, reply) if needed else None
        if settled is None:
            self.record_sample(place, verdict)
        return _decoded(settled or verdict, reply)

    async def draw(
        self, at: str, prompt: Prompt, reply: type[A], *, sampling: Sampling, correct: Callable[[A], bool | None] = lambda _: None
    ) -> A | Flagged:
        """Draw one sample; returns the reply, or its red flag. ``correct`` judges a reply for the account of errors, where code can.

        Raises:
            JournalMismatch: another question was recorded there.
        """
        question = self.question(prompt, reply, rule=FirstValid(1), sampling=sampling, max_draws=1)
        place = self._only_question(at, self.election_id(at, question))
        verdict = await self.recall_or_hold(place, question)
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
        remains the only valid one of several is marked ``single`` in the account (``settled_at``).

        Args:
            at: the place in the work.
            prompt: the question.
            reply: the class of replies.
            n: number of samples.
            at_least: number of valid ones that is aimed at; n at most.
            max_draws: cap of all samples.
            sampling: their sampling.
            needed: whether a place without a valid reply is undecided, see `sample`.
            keep: keeps the replies that may become candidates.

        Raises:
            Undecided: a reply is needed, and there is none.
            JournalMismatch: another question was recorded there.
        """
        question = self.question(prompt, reply, rule=FirstValid(n), sampling=sampling, max_draws=n)
        place = self._only_question(at, self.election_id(at, question))
        verdict = await self.recall_or_hold(place, question)
        settled = await self._settled_sample(place, question, verdict, reply) if needed else None
        if settled is not None:
            return list(keep(_decoded(settled, reply)))
        kept = list(keep(_decoded(verdict, reply)))
        missing = min(at_least, n) - len(kept)
        if kept and missing > 0 and max_draws > n:
            kept += keep(await self.sample(f"{at}/{REDRAW}", prompt, reply, n=missing, max_draws=max_draws - n, sampling=sampling))
        self.record_sample(place, verdict, mark=SINGLE if len(kept) == 1 < n else None)
        return kept

    def record_sample(self, place: ElectionId, verdict: Verdict, *, correct: bool | None = None, mark: str | None = None) -> None:
        """Record replies that decide nothing by themselves."""
        self.role.tell(RecordDecision(id=place, verdict=structs.replace(verdict, outcome="sampled"), correct=correct, settled=mark))

    async def _settled_sample(self, place: ElectionId, question: Question, verdict: Verdict, reply: type[A]) -> Verdict | None:
        """The verdict of a needed sample that a person, the leader or another model gave, recorded; None if a reply is valid.

        Raises:
            Undecided: there is no valid reply.
        """
        if verdict.winner is not None and verdict.outcome != "person":
            return None
        undecided = verdict if verdict.outcome == "person" else structs.replace(verdict, outcome="undecided")
        resolution = await self.settle(place, question, undecided)
        if resolution.verdict.winner is not None and resolution.verdict.outcome == "undecided":
            # The other model gave fewer than n valid replies: one is enough where a reply is needed.
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
        """Put a question to models until a rule decides.

        Args:
            at: the place in the work.
            prompt: the question; samples cycle through several prompts (shuffled, paraphrased) by seq.
            reply: the class of replies.
            correct: judges a decision for the account of errors, where code can.
            options: see `ElectionOptions`.

        Raises:
            JournalMismatch: another question was recorded there.
        """
        question = self.question(prompt, reply, **options)
        election = self._only_question(at, self.election_id(at, question))
        verdict = await self.recall_or_hold(election, question)
        return self.commit(await self.settle(election, question, verdict), reply, correct)

    async def election(
        self,
        at: str,
        prompt: Prompt | Sequence[Prompt],
        reply: type[A],
        *,
        correct: Callable[[A], bool | None] | None = None,
        **options: Unpack[ElectionOptions],
    ) -> AsyncIterator[A | Decision[A]]:
        """The same as `elect`, item by item: valid replies as they arrive, then the `Decision`.

        Replies that arrive early may serve as guesses; only the decision counts.
        """
        question = self.question(prompt, reply, **options)
        election = self._only_question(at, self.election_id(at, question))
        verdict = await self.recall(election, question)
        if verdict is None:
            async with aclosing(self.follow(election, question)) as items:
                async for item in items:
                    if isinstance(item, Verdict):
                        verdict = item
                    else:
                        yield decoder_of(reply).decode(item.value)
        if verdict is None:
            raise no_verdict(election)
        yield self.commit(await self.settle(election, question, verdict), reply, correct)

    async def recalled_answer(self, at: str, reply: type[V]) -> V | None:
        """The value that `record_answer` recorded at a place; None if there is none."""
        recalled = await self.recalled(self._answer_place(at))
        return None if recalled is None or recalled.value is None else msgspec.json.decode(recalled.value, type=reply)

    async def is_recorded(self, at: str) -> bool:
        """Whether an earlier sitting, or a process that died, has recorded a reply at a place."""
        return await self.recalls() and await self.role.ask(Recall(path=self.path_of(at))) is not None

    async def record_answer(self, at: str, value: object) -> None:
        """Record a value that depends on time, and wait until the recorder has it. Nothing may depend on the value before that."""
        self.role.tell(RecordAnswer(id=self._answer_place(at), value=msgspec.json.encode(value)))
        await self.flush()

    async def flush(self) -> None:
        """Wait until the recorder has all records that this role has sent."""
        # Messages from one sender to one replica keep their order, so the recorder answers after it has taken in the records.
        await self.role.ask(Recall(path=self.path_of("flush")))

    def _only_question(self, at: str, place: ElectionId) -> ElectionId:
        """The place, where it has this question alone. Of two the journal keeps the first, and the run could never be resumed.

        Raises:
            InvalidDefinition: another question was asked there in this sitting.
        """
        if self._questions.setdefault(at, place.question_digest) != place.question_digest:
            raise InvalidDefinition(f"the path {at!r} names two questions; make it unique, such as {at}/3")
        if len(self._questions) > PLACES_CHECKED:
            del self._questions[next(iter(self._questions))]
        return place

    def _answer_place(self, at: str) -> ElectionId:
        return ElectionId(path=self.path_of(at), question_digest=blake2b(at.encode(), digest_size=16).digest())

    def progress(self, done: int, total: int | None = None) -> None:
        """Report the number of done steps; ``total`` is None while it is unknown."""
        self._progress = done, total
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._progress_sent_s + PROGRESS_EVERY_S:
            self._progress_sent_s = now_s
            self.tell_progress()

    def tell_progress(self) -> None:
        """Send the last progress report now."""
        done, total = self._progress
        self.role.tell(RecordProgress(input=self.input, done=done, total=total))

    # The parts of durable calls, for strategies that combine them in another way.

    def question(
        self, prompt: Prompt | Sequence[Prompt], reply: type[A], *, state: Struct | None = None, **options: Unpack[ElectionOptions]
    ) -> Question:
        """The question of an election, with the format instructions in its prompts.

        Raises:
            InvalidUsage: there is no prompt, or no draw is allowed.
            TaskFailed: the task returned something else than a prompt.
            InvalidDefinition: another class has the same address as the reply class.
        """
        prompts = [prompt] if isinstance(prompt, Prompt) else prompt
        if not options.keys() <= _ELECTION_OPTIONS:
            name = next(name for name in options if name not in _ELECTION_OPTIONS)
            raise InvalidUsage(unknown("option of an election named", name, sorted(_ELECTION_OPTIONS)))
        max_draws = options.get("max_draws", 100)
        if not prompts or max_draws < 1:
            raise InvalidUsage(f"an election needs a prompt and at least one draw, not {len(prompts)} prompts and max_draws={max_draws}")
        for each in prompts:
            if not isinstance(each, Prompt):
                raise TaskFailed(f"the prompt of an election of {type(self.task).__name__}", f"must be a Prompt, not {shown(each)}")
        given = (reply, options.get("rule"), options.get("sampling"), options.get("model"), max_draws, options.get("choices", ()))
        if self._form is None or self._form[1] != given:
            self._form = self._form_of(reply, options, max_draws), given
        form = self.task.format
        asked = structs.replace(
            self._form[0],
            prompts=tuple([structs.replace(each, system=system_with_instructions(each.system, reply, form)) for each in prompts]),
            state=b"" if state is None else encode_state(state),
        )
        return asked if at_least(asked.models) is None else put_to(asked, asked.models)

    def _form_of(self, reply: type[A], options: ElectionOptions, max_draws: int) -> Question:
        """A question without its prompts and its state.

        Raises:
            InvalidDefinition: another class has the same address as the reply class.
        """
        address = address_of(reply)
        if resolve(address, Reply) is not reply:
            raise InvalidDefinition(f"there are two classes {address}; an election names its reply by it: give one another name")
        context, task, model = self.role.context, self.task, options.get("model")
        return Question(
            prompts=(),
            reply=address,
            form=fingerprint(reply),
            rule=portable(options.get("rule") or context.strategy.default_rule),
            sampling=self._limited(options.get("sampling") or task.sampling),
            models=context.pool(self.role.draws_as) if model is None else (model,),
            max_draws=max_draws,
            choices=tuple(options.get("choices", ())),
            reading=task.reading,
            votes="exact" if options.get("choices") or not has_prose(reply) else context.strategy.votes,
        )

    @property
    def weighs(self) -> bool:
        """Whether the models of this role weigh options, and write nothing."""
        return at_least(self.role.context.pool(self.role.draws_as)) is not None

    def _limited(self, sampling: Sampling) -> Sampling:
        """The sampling with the run's own limits (``--max-output-tokens``, ``--flag-above-tokens``)."""
        limits = self.role.sampling_limits
        return structs.replace(sampling, **limits) if limits else sampling

    def path_of(self, at: str) -> str:
        """The path of a place: ``input/at``.

        Raises:
            InvalidUsage: the place is empty, or contains control characters.
        """
        if not at or not at.isprintable():
            raise InvalidUsage(f"{at!r} is no path: name the place in the work, such as 'line/17'")
        return f"{self.input}/{at}"

    def election_id(self, at: str, question: Question) -> ElectionId:
        """The id of a question's election at a place."""
        return question.id_at(self.path_of(at))

    async def recall(self, election: ElectionId, question: Question) -> Verdict | None:
        """The recorded verdict of an election; None where the election must be held.

        Raises:
            JournalMismatch: another question was recorded there.
        """
        recalled = await self.recalled(election)
        if recalled is None:
            return None
        count = Count(question)
        for ballot in recalled.ballots:
            count.add(ballot)
        verdict = structs.replace(count.verdict(), cost_usd=recalled.cost_usd)
        if recalled.outcome == "contested":  # its value is only its leading reply; and its row stays, whatever another rule makes of it
            return structs.replace(verdict, outcome="undecided")
        if recalled.value is None:
            return verdict
        outcome = structs.replace(verdict, outcome=cast("Any", recalled.outcome))
        return outcome.won_by(recalled.value) if verdict.winner != recalled.value else outcome

    def hold(self, election: ElectionId, question: Question) -> Coroutine[Any, Any, Verdict]:
        """Hold an election. Only `commit` records its verdict."""
        return self.role.ask(Elect(id=election, question=question))

    async def recall_or_hold(self, election: ElectionId, question: Question) -> Verdict:
        """The recorded verdict of an election, or that of an election held now."""
        return await self.recall(election, question) or await self.hold(election, question)

    def follow(self, election: ElectionId, question: Question, *, hedge: int = 0) -> AsyncGenerator[Ballot | Verdict]:
        """Hold an election and follow it: valid ballots as they arrive, then the verdict. Close it (``aclosing``) to leave the election.

        ``hedge`` is the number of draws beyond those needed, so that the first ballot arrives sooner.
        """
        # The stream itself: a generator around it would cost 2 us a ballot.
        return self.role.stream(Follow(id=election, question=question, hedge=hedge))

    async def settle(self, election: ElectionId, question: Question, verdict: Verdict) -> Resolution:
        """Apply ``--on-undecided`` to a verdict. A decided one stays as it is."""
        on_undecided: str = self.role.context.settings.get("on_undecided", "stop")
        if verdict.outcome in ("leader", "person"):  # recalled from the journal, settled before
            return Resolution(id=election, verdict=verdict, settled=verdict.outcome)
        resolution = Resolution(id=election, verdict=verdict, choices=question.choices)
        if verdict.outcome != "undecided" or on_undecided == "stop":
            return resolution
        if on_undecided == "leader":
            if verdict.leader is None:
                return resolution
            return Resolution(id=election, verdict=structs.replace(verdict, outcome="leader"), settled="leader")
        # The undecided election keeps its own row; the election of the other model has another path.
        self.role.tell(
            RecordDecision(id=election, verdict=verdict, correct=None, state=question.state, reply=question.reply, choices=question.choices)
        )
        again = put_to(question, (on_undecided,))
        if isinstance(again.rule, UntilImprobable):
            again = structs.replace(again, rule=again.rule.rule)
        second = again.id_at(election.path + ESCALATED)
        verdict = await self.recall_or_hold(second, again)
        source = "person" if verdict.outcome == "person" else on_undecided
        return Resolution(id=second, verdict=verdict, settled=source, choices=question.choices)

    def commit(
        self,
        resolution: Resolution,
        reply: type[A],
        correct: Callable[[A], bool | None] | None = None,
        *,
        done: int | None = None,
        state: bytes = b"",
    ) -> Decision[A]:
        """Record a resolution; returns its decision. It enters the journal, the digests and the account of errors.

        Args:
            resolution: the result of `settle`.
            reply: the class of replies.
            correct: judges the decision for the account of errors.
            done: steps of the input that are done with it, in work that can resume after a step.
            state: the state before the step, as JSON.
        """
        decision = _decision(resolution.id.path, resolution.verdict, reply)
        right = correct(decision.value) if correct is not None and decision.decided and decision.value is not None else None
        if right is not None and not isinstance(right, bool):
            raise TaskFailed(f"correct() of {type(self.task).__name__}", f"must give True, False or None, not {shown(right)}")
        self.role.tell(
            RecordDecision(
                id=resolution.id,
                verdict=resolution.verdict,
                correct=right,
                done=done,
                state=state,
                settled=resolution.settled,
                rung=resolution.rung,
                reply=address_of(reply),
                choices=resolution.choices,
            )
        )
        return decision

    def leave(self, election: ElectionId, verdict: Verdict) -> None:
        """Record that an election was left to the next rung of a ladder."""
        self.role.tell(RecordDecision(id=election, verdict=structs.replace(verdict, outcome="contested"), correct=None))

    async def recalled(self, place: ElectionId) -> Recalled | None:
        """The record at a place; None if there is none.

        Raises:
            JournalMismatch: another question was recorded there.
        """
        recalled = await self.role.ask(Recall(path=place.path)) if await self.recalls() else None
        # After --accept-change, recorded decisions hold although their questions have changed.
        if recalled is None or recalled.question_digest == place.question_digest or (recalled.changed and recalled.value is not None):
            return recalled
        if recalled.value is None:  # an undecided election of another question: the new question may be asked there
            return None
        raise JournalMismatch("question", f"the recorded one at {place.path}", "another one")


def put_to(question: Question, pool: tuple[str, ...]) -> Question:
    """The same question to other models, with the rule by which they decide: they vote, or they weigh options.

    Raises:
        InvalidUsage: the models weigh options, and the reply has none.
    """
    options = options_of(resolve(question.reply, Reply), question.choices)
    rule, max_draws = rule_for(question.rule, question.max_draws, pool, options)
    return structs.replace(question, models=pool, rule=rule, max_draws=max_draws)


def no_verdict(election: ElectionId) -> InvalidDefinition:
    """The error of a user's voter that ends an election's stream without a verdict."""
    return InvalidDefinition(f"the election at {election.path} ended without a verdict: the handler of Follow must yield one")


encode_state = msgspec.json.Encoder(order="deterministic").encode
"""Encode a state for the digest of a question and for the journal."""


def _decoded(verdict: Verdict, reply: type[A]) -> list[A]:
    return [decoder_of(reply).decode(value) for value in _valid_replies(verdict)]


def _valid_replies(verdict: Verdict) -> list[bytes]:
    """The valid replies in launch order, or the one that a person gave instead."""
    drawn = [ballot.value for ballot in verdict.ballots if isinstance(ballot, Ballot)]
    return drawn or [value for value, _ in verdict.tally]


def _decision(path: str, verdict: Verdict, reply: type[A]) -> Decision[A]:
    decode = decoder_of(reply).decode
    tally = tuple((decode(value), votes) for value, votes in verdict.tally)
    value = None if verdict.leader is None or verdict.outcome == "undecided" else tally[verdict.leader][0]
    flagged = len(verdict.ballots) - sum(votes for _, votes in tally)
    return Decision(path=path, value=value, outcome=verdict.outcome, tally=tally, flagged=flagged, probability=verdict.probability)
