"""Durable calls: `Work.once`, `Work.sample` and `Work.elect` answer recorded questions from the journal, and ask only new ones.

A role that uses them is replayed after its process died, and in a resumed run. Apart from these calls its work must be deterministic: it
must not depend on a clock, on randomness or on the order of completion.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from copy import copy
from typing import Any, ClassVar, Generic, Self, Unpack, cast

import msgspec
from msgspec import Raw, Struct, structs

from microagents.actors.role import Context, G, Messenger, Role, T
from microagents.base.errors import InvalidDefinition, InvalidUsage, TaskFailed
from microagents.base.messages import Message, R, Request, address_of, reply_type, resolve
from microagents.base.named_values import stated
from microagents.base.round_trips import NotGivenBack, RoundTrip
from microagents.base.text_digests import digest_of
from microagents.base.user_code import shown
from microagents.elections.election import (
    ESCALATED,
    OPEN_OUTCOMES,
    Ballot,
    Decision,
    Elect,
    ElectionId,
    ElectionOutcome,
    Flagged,
    Follow,
    Question,
    Verdict,
    Votes,
)
from microagents.elections.rules import FirstValid, Rule, by_field, certain, portable, without_doubt
from microagents.journal.messages import (
    Checkpoint,
    Entry,
    Recall,
    Recalled,
    Record,
    RecordDecision,
    RecordFile,
    RecordProgress,
    answered,
)
from microagents.models.weighing import at_least
from microagents.replies.chat import Prompt, Sampling
from microagents.replies.media import Media
from microagents.replies.reply import A, Reply
from microagents.replies.reply_fields import has_prose
from microagents.replies.reply_forms import decoder_of, fingerprint, system_with_instructions
from microagents.replies.tool_calls import Calls, ToolCall, tools_as_text
from microagents.replies.turns import described
from microagents.work.elections import (
    ElectionOptions,
    answer_to,
    decision_of,
    encode_state,
    put_to,
    verdict_of,
    was_not_paid,
)
from microagents.work.notes import Note

_SAMPLING_LIMITS = ("max_output_tokens", "flag_above_tokens")
"""The run's own limits of replies (``--max-output-tokens``, ``--flag-above-tokens``), which are fields of `Sampling`."""
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
    """Whether the journal may have answers for this request, see `Work.may_be_recorded`. `Work.ask` fills it in."""
    handed: bytes = b""
    """Calls of the hand-offs that lead to its agent, as JSON. `Work.ask` fills it in."""


class DurableRole(Role):
    """A role with durable calls, which puts questions to models, and knows which inputs have records in the journal.

    Its handlers take a `DurableRequest` and begin with ``work = self.work_on(request)``.
    """

    asks: ClassVar[tuple[type[Message], ...]] = (Elect, Follow, Recall, Record)
    handles_no_message: ClassVar[tuple[str, ...]] = ("has_records",)
    draws_as: ClassVar[str] = "solver"
    """Name of this role in ``--model ROLE=SPEC``, which sets the pool for its questions."""

    def __init__(self, context: Context, messenger: Messenger) -> None:
        super().__init__(context, messenger)
        self._has_records: dict[int, bool] = {}
        """For each input, whether the journal had records of it when this process first asked."""
        self.questions: dict[tuple[str, str], bytes] = {}
        """The digest of the question at each of the latest places, beside the place of the request in whose work it is asked."""
        self.kept_files: set[str] = set()
        """Digests of the pictures and files that it has recorded."""
        self._began_with_nothing = False
        """Whether the journal had no records at all when this process started."""

    async def start(self) -> None:
        """Ask whether this process begins a run, or takes part in one that has records."""
        # A role that is first asked in the middle of a run finds records of it. Without this, it would look up each of its calls in vain: a
        # round trip to the keeper, and a commit (measured on Ray: 18 of 20 ms of a turn).
        self._began_with_nothing = not (await self.ask(Recall())).has_records

    async def has_records(self, of_input: int) -> bool:
        """Whether the journal had records of an input when this process first asked."""
        if self._began_with_nothing:
            return False
        if of_input not in self._has_records:
            found = await self.ask(Recall(path=str(of_input)))
            self._has_records[of_input] = found.has_records
        return self._has_records[of_input]

    def work_on(self, request: DurableRequest[Any]) -> Work:
        """Return the work on a request. Its places are the request's own and those below it."""
        return Work(self, request.input, recalls=request.recalls, handed=request.handed, within=request.at)


class Work(Generic[T, G]):
    """Durable calls on behalf of one input.

    A place (``at``) is a path that is unique within the input, such as ``line/17/rate``. A call at a recorded place is answered from the
    journal. If the question there has changed, the call is refused; so is a second question at one place in the same sitting, unless ten
    thousand other places of its role lie between the two.
    """

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
        self.role = role
        self.input = of_input
        self.checkpoint = checkpoint
        self._progress: tuple[int, int | None] = (0, None)
        self._progress_sent_s = 0.0
        self.handed = handed
        """Calls of the hand-offs that lead to its agent, as JSON; empty for the input's own task."""
        self._below = below
        """The place of the hand-off, before each place of its agent."""
        self.within = within
        """The place of the request that this is the work on, at or below which its own places lie; empty for the whole input."""
        self.pool = role.context.pool(role.draws_as)
        """The models that its questions are put to."""
        self._recalls: bool | None = recalls or None
        """Whether the journal may have answers for this work; None before it is known."""
        self._form: tuple[Question, tuple[object, ...], Callable[[Prompt], Prompt]] | None = None
        """The last question without its prompts and its state, what it was made of, and how prompts are completed: most questions of
        a work are alike."""

    # -- calls ------------------------------------------------------------------------------------------------------------------------

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

    # -- parts of an election ---------------------------------------------------------------------------------------------------------

    def with_pool(self, *names: str) -> Self:
        """Return the same work with other models: those of the first ``--model NAME=SPEC`` of the run, else the common pool."""
        work = copy(self)
        work.pool = self.role.context.pool(*names)
        return work

    @property
    def task(self) -> T:
        """Task of this input, or of the agent that it was handed off to."""
        return cast("T", self.role.context.task_of(self.input, self.handed))

    @property
    def strategy(self) -> G:
        """Run's strategy."""
        return cast("G", self.role.context.strategy)

    @property
    def weighs(self) -> bool:
        """Whether the models of this role weigh options, and write nothing."""
        return at_least(self.pool) is not None

    def place(self, at: str) -> str:
        """Return a place of this work as a place within the input: the same, unless work was handed off."""
        return self._below + at

    def path_of(self, at: str) -> str:
        """Return the path of a place: ``input/at``.

        Raises:
            InvalidUsage: the place is empty, or contains control characters.
            InvalidDefinition: it is neither that of the request nor below it, so another request's work may have the same.
        """
        if not at or not at.isprintable():
            raise InvalidUsage(f"{at!r} is not a path: name the place in the work, such as 'line/17'")
        if self.within and not f"{at}/".startswith(f"{self.within}/"):
            raise InvalidDefinition(
                f"the path {at!r} does not lie below that of its request, {self.within!r}; name it {self.within}/{at}"
            )
        return f"{self.input}/{self.place(at)}"

    def election_id(self, at: str, question: Question) -> ElectionId:
        """Return the id of a question's election at a place."""
        return question.id_at(self.path_of(at))

    def question(
        self,
        prompt: Prompt | Sequence[Prompt],
        reply: type[A],
        *,
        state: Struct | Raw | None = None,
        model: str | None = None,
        rule: Rule | None = None,
        sampling: Sampling | None = None,
        max_draws: int = 100,
        choices: Sequence[str] = (),
    ) -> Question:
        """Return the question of an election, with the format instructions in its prompts. For its options see `ElectionOptions`.

        Raises:
            InvalidUsage: there is no prompt, or no draw is allowed.
            TaskFailed: the task returned something else than a prompt.
            InvalidDefinition: another class has the same address as the reply class.
        """
        prompts = [prompt] if isinstance(prompt, Prompt) else prompt
        if not prompts or max_draws < 1:
            raise InvalidUsage(
                f"an election needs a prompt and at least one draw, not {len(prompts)} prompts and max_draws={max_draws}"
            )
        for each in prompts:
            if not isinstance(each, Prompt):
                raise TaskFailed(
                    f"the prompt of an election of {type(self.task).__name__}", f"must be a Prompt, not {shown(each)}"
                )
            self.keep(each.all_files)
        models = self.pool if model is None else (model,)
        given: dict[str, Any] = {"models": models, "rule": rule, "sampling": sampling, "max_draws": max_draws}
        given["choices"] = tuple(choices)
        if self._form is None or self._form[1] != (reply, given):
            self._form = self._form_of(reply, **given), (reply, given), self._completed_by(reply)
        completed = self._form[2]
        asked = structs.replace(
            self._form[0],
            prompts=tuple([completed(each) for each in prompts]),
            state=b"" if state is None else encode_state(state),
        )
        if at_least(asked.models) is None:
            return asked
        return put_to(asked, asked.models)

    def _completed_by(self, reply: type[Reply]) -> Callable[[Prompt], Prompt]:
        """How a prompt is completed: by the form of the reply, and by the tools for looking things up."""
        task, weighs = self.task, self.weighs  # `self` in the function would be a cycle of references

        def with_form(prompt: Prompt) -> Prompt:
            if issubclass(reply, Calls) and prompt.tools and not weighs:
                form = system_with_instructions(prompt.calls_as_text, reply, task.format, task.reasoning)
                return structs.replace(prompt, calls_as_text=form)
            system = system_with_instructions(prompt.system, reply, task.format, task.reasoning)
            return structs.replace(prompt, system=system)

        if not task.looks_up or weighs:
            return with_form
        specs = task.toolbox.specs.values()
        tools, lines = described(
            [{"tool": each.name, "description": each.description, "parameters": each.parameters} for each in specs]
        )
        text = tools_as_text(lines, task.tool_rounds, task.format)
        return lambda prompt: structs.replace(with_form(prompt), tools=tools, calls_as_text=text)

    def _form_of(
        self,
        reply: type[Reply],
        *,
        models: tuple[str, ...],
        rule: Rule | None,
        sampling: Sampling | None,
        max_draws: int,
        choices: tuple[str, ...],
    ) -> Question:
        address = address_of(reply)
        if resolve(address, Reply) is not reply:
            raise InvalidDefinition(
                f"rename one of the two reply classes at {address}; an election names its reply by this address"
            )
        context, task = self.role.context, self.task
        decides = portable(rule or context.strategy.default_rule)
        if choices or not has_prose(reply):
            votes: Votes = "exact"
        else:
            votes = context.strategy.votes
        fields = task.fields_of_vote(reply)
        if context.strategy.certain != "off":
            decides = certain(decides, branches=context.strategy.certain == "branches" and not fields)
        limits = stated({name: context.settings.get(name) for name in _SAMPLING_LIMITS})
        return Question(
            prompts=(),
            reply=address,
            form=fingerprint(reply),
            rule=by_field(decides, fields),
            sampling=structs.replace(sampling or task.sampling, **limits),
            models=models,
            max_draws=max_draws,
            choices=choices,
            reading=context.reading,
            prose={name: tuple(each) for name, each in task.prose_in(reply).items()},
            votes=votes,
            handed=self.handed,
        )

    async def may_be_recorded(self) -> bool:
        """Whether the journal may have answers for this work, because an earlier sitting or a process that died began it.

        The flag travels with every `DurableRequest`. A role that began with an empty journal would otherwise not look there when the
        replacement of a dead conductor repeats a request, and would pay for its samples again.
        """
        if self._recalls is None:
            self._recalls = await self.role.has_records(self.input)
        return self._recalls

    async def recorded(self, place: ElectionId | str) -> Recalled | None:
        """Return the record at a place, or of one question there; None if there is none, or if this process began the input.

        Raises:
            JournalMismatch: another question was recorded there.
        """
        if not await self.may_be_recorded():
            return None
        if isinstance(place, str):
            found = await self.role.ask(Recall(path=self.path_of(place)))
            return found.decision
        return answer_to(place, (await self.role.ask(Recall(path=place.path))).decision)

    async def recall(self, election: ElectionId, question: Question) -> Verdict | None:
        """Return the recorded verdict of an election; None if the election must be held."""
        recalled = await self.recorded(election)
        if recalled is None or was_not_paid(recalled):
            return None
        return verdict_of(election, question, recalled)

    async def hold(self, election: ElectionId, question: Question, *, recalls: bool = True) -> Verdict:
        """Return the verdict of an election, recorded or held now. Only `commit` records it.

        Without ``recalls`` it is held in any case: the caller knows that the journal has no verdict.
        """
        if recalls and (recalled := await self.recall(election, question)) is not None:
            return recalled
        return await self.role.ask(Elect(id=election, question=question))

    def follow(self, election: ElectionId, question: Question, *, hedge: int = 0) -> AsyncGenerator[Ballot | Verdict]:
        """Hold an election and follow it: valid ballots as they arrive, then the verdict. Close it (``aclosing``) to leave the election.

        ``hedge`` is the number of draws beyond those needed, so that the first ballot arrives sooner.
        """
        # The stream itself: a generator around it would cost 2 us a ballot.
        return self.role.stream(Follow(id=election, question=question, hedge=hedge))

    async def settle(self, election: ElectionId, question: Question, verdict: Verdict) -> RecordDecision:
        """Apply ``--on-undecided`` to a verdict. A decided one stays as it is."""
        on_undecided: str = self.role.context.settings.get("on_undecided", "stop")
        if verdict.outcome in ("leader", "person"):  # recalled from the journal, settled before
            return RecordDecision(id=election, verdict=verdict, settled=verdict.outcome)
        resolution = RecordDecision(id=election, verdict=verdict, choices=question.choices)
        if verdict.outcome not in OPEN_OUTCOMES or on_undecided == "stop":
            return resolution
        if on_undecided == "leader":
            if verdict.leader is None:
                return resolution
            return RecordDecision(id=election, verdict=structs.replace(verdict, outcome="leader"), settled="leader")
        # The election without a decision keeps its own row; the election of the other model has another path.
        self.record(structs.replace(resolution, state=question.state, reply=question.reply))
        again = put_to(question, (on_undecided,))
        again = structs.replace(again, rule=without_doubt(again.rule))
        second = again.id_at(election.path + ESCALATED)
        verdict = await self.hold(second, again)
        source = "person" if verdict.outcome == "person" else on_undecided
        return RecordDecision(id=second, verdict=verdict, settled=source, choices=question.choices)

    def commit(
        self,
        resolution: RecordDecision,
        reply: type[A],
        correct: Callable[[A], bool | None] | None = None,
        *,
        done: int | None = None,
        state: bytes = b"",
    ) -> Decision[A]:
        """Record a resolution; returns its decision. It enters the journal, the digests and the account of errors (``correct``).

        In work that can resume after a step, ``done`` steps of the input are done with it, and ``state`` is that before the step, as JSON.
        """
        decision = decision_of(resolution.id.path, resolution.verdict, reply)
        if not decision.decided:
            decision = structs.replace(decision, prose=self.task.prose_in(reply))
        if correct is not None and decision.decided and decision.value is not None:
            right = correct(decision.value)
        else:
            right = None
        if right is not None and not isinstance(right, bool):
            raise TaskFailed(
                f"correct() of {type(self.task).__name__}", f"must give True, False or None, not {shown(right)}"
            )
        done = None if self.handed else done  # the steps of an input are those of its own agent
        self.record(structs.replace(resolution, correct=right, done=done, state=state, reply=address_of(reply)))
        return decision

    def record(self, entry: Entry) -> None:
        """Record a fact."""
        self.role.tell(Record.of(entry))

    def keep(self, files: Sequence[Media]) -> None:
        """Record pictures and files that were made in this process, each once.

        Raises:
            InvalidUsage: one cannot be read, or has changed since it was first read.
        """
        for file in files:
            if file.is_made_here and file.digest not in self.role.kept_files:
                self.record(RecordFile(file=file, data=file.data()))
                self.role.kept_files.add(file.digest)

    def leave(self, election: ElectionId, verdict: Verdict, *, rung: str | None = None) -> None:
        """Record that an election was left to the next rung of a ladder; with ``rung``, that this rung failed.

        A failed rung is undecided, so a resumed run with a higher cap holds it again.
        """
        failed: ElectionOutcome = verdict.outcome if verdict.outcome in OPEN_OUTCOMES else "undecided"
        left = structs.replace(verdict, outcome="climbed" if rung is None else failed)
        self.record(RecordDecision(id=election, verdict=left, rung=rung))


def _decoded(verdict: Verdict, reply: type[A]) -> list[A]:
    """Return the valid replies in launch order, or the one that a person gave instead."""
    drawn = [ballot.value for ballot in verdict.ballots if isinstance(ballot, Ballot)]
    return [decoder_of(reply).decode(value) for value in drawn or [value for value, _ in verdict.tally]]


def _digest(asked: bytes) -> bytes:
    return digest_of(asked)
