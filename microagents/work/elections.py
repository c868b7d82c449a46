"""The parts of an election on behalf of one input: its question, its record, its vote, and the messages to the keeper."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from copy import copy
from typing import Any, ClassVar, Generic, Self, TypedDict, cast

import msgspec
from msgspec import Raw, Struct, structs

from microagents.actors.role import Context, G, Messenger, Role, T
from microagents.base.errors import InvalidDefinition, InvalidUsage, JournalMismatch, TaskFailed
from microagents.base.messages import Message, address_of, resolve
from microagents.base.plain_values import write_value
from microagents.base.user_code import shown
from microagents.elections.count import Count
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
from microagents.elections.red_flags import REFUSED
from microagents.elections.rules import Rule, by_field, certain, portable, without_doubt
from microagents.journal.messages import Entry, Recall, Recalled, Record, RecordDecision, RecordFile
from microagents.models.weighing import at_least, options_of, rule_for
from microagents.replies.chat import Prompt, Sampling
from microagents.replies.media import Media
from microagents.replies.reply import A, Reply
from microagents.replies.reply_fields import has_prose
from microagents.replies.reply_forms import decoder_of, fingerprint, system_with_instructions
from microagents.replies.tool_calls import Calls, tools_as_text
from microagents.replies.turns import described


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


_SAMPLING_LIMITS = ("max_output_tokens", "flag_above_tokens")
"""The run's own limits of replies (``--max-output-tokens``, ``--flag-above-tokens``), which are fields of `Sampling`."""


class Resolution(Struct, frozen=True, kw_only=True):
    """Result of an election after the ladder was climbed, and ``--on-undecided`` was applied to it."""

    id: ElectionId
    verdict: Verdict
    settled: str | None = None
    """How an undecided election was settled: ``leader``, ``person`` or the spec of another model; None if it was not."""
    rung: str | None = None
    """Name of the rung of a ladder that decided it; None if none was climbed."""
    choices: tuple[str, ...] = ()
    """The votes that a reply may cast; empty for any vote."""


class Elector(Role):
    """A role that puts questions to models, and knows which inputs have records in the journal."""

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


class Elections(Generic[T, G]):
    """Parts of elections on behalf of one input, for strategies that combine them in another way than `Work` does."""

    def __init__(
        self, role: Elector, of_input: int, *, recalls: bool, handed: bytes = b"", below: str = "", within: str = ""
    ) -> None:
        self.role = role
        self.input = of_input
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
        limits = {name: limit for name in _SAMPLING_LIMITS if (limit := context.settings.get(name)) is not None}
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
        if recalled is None or _was_not_paid(recalled):
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

    async def settle(self, election: ElectionId, question: Question, verdict: Verdict) -> Resolution:
        """Apply ``--on-undecided`` to a verdict. A decided one stays as it is."""
        on_undecided: str = self.role.context.settings.get("on_undecided", "stop")
        if verdict.outcome in ("leader", "person"):  # recalled from the journal, settled before
            return Resolution(id=election, verdict=verdict, settled=verdict.outcome)
        resolution = Resolution(id=election, verdict=verdict, choices=question.choices)
        if verdict.outcome not in OPEN_OUTCOMES or on_undecided == "stop":
            return resolution
        if on_undecided == "leader":
            if verdict.leader is None:
                return resolution
            return Resolution(id=election, verdict=structs.replace(verdict, outcome="leader"), settled="leader")
        # The election without a decision keeps its own row; the election of the other model has another path.
        self.record(
            RecordDecision(
                id=election,
                verdict=verdict,
                correct=None,
                state=question.state,
                reply=question.reply,
                choices=question.choices,
            )
        )
        again = put_to(question, (on_undecided,))
        again = structs.replace(again, rule=without_doubt(again.rule))
        second = again.id_at(election.path + ESCALATED)
        verdict = await self.hold(second, again)
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
        self.record(
            RecordDecision(
                id=resolution.id,
                verdict=resolution.verdict,
                correct=right,
                done=None if self.handed else done,  # the steps of an input are those of its own agent
                state=state,
                settled=resolution.settled,
                rung=resolution.rung,
                reply=address_of(reply),
                choices=resolution.choices,
            )
        )
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
        self.record(RecordDecision(id=election, verdict=left, correct=None, rung=rung))


def answer_to(place: ElectionId, recalled: Recalled | None) -> Recalled | None:
    """Return the record at a place if it answers the question there; None if the question may be asked.

    Raises:
        JournalMismatch: another question was decided there.
    """
    # An undecided election of another question leaves its place to the new one.
    if recalled is None or recalled.question_digest == place.question_digest:
        return recalled
    if recalled.value is None:
        return None
    if recalled.changed:  # after --accept-change, recorded decisions hold although their questions have changed
        return recalled
    raise JournalMismatch("question", f"the recorded one at {place.path}", "another one")


def _was_not_paid(recalled: Recalled) -> bool:
    """Whether an election ended since no request was accepted: that cost nothing, and the server may be another by now."""
    last = recalled.ballots[-1] if recalled.outcome == "refused" and recalled.ballots else None
    return isinstance(last, Flagged) and last.flag == REFUSED


def verdict_of(election: ElectionId, question: Question, recalled: Recalled) -> Verdict:
    """Return the verdict in the record of an election."""
    count = Count(election, question, lambda _: recalled.value is not None)
    for ballot in recalled.ballots:
        count.add(ballot)
    verdict = structs.replace(count.verdict(), cost_usd=recalled.cost_usd)
    # Its value is only its leading reply; and its row stays, whatever another rule makes of it.
    if recalled.outcome == "climbed":
        return structs.replace(verdict, outcome="undecided")
    if recalled.value is None:
        return verdict
    outcome = structs.replace(verdict, outcome=cast("Any", recalled.outcome))
    if verdict.winner != recalled.value:
        return outcome.won_by(recalled.value)
    return outcome


def put_to(question: Question, pool: tuple[str, ...]) -> Question:
    """Return the same question to other models, with the rule by which they decide: they vote, or they weigh options."""
    options = options_of(resolve(question.reply, Reply), question.choices)
    rule, max_draws = rule_for(question.rule, question.max_draws, pool, options)
    return structs.replace(question, models=pool, rule=rule, max_draws=max_draws)


def no_verdict(election: ElectionId) -> InvalidDefinition:
    """Return the error of a user's voter that ends an election's stream without a verdict."""
    return InvalidDefinition(
        f"the election at {election.path} ended without a verdict: the handler of Follow must yield one"
    )


encode_state = msgspec.json.Encoder(order="deterministic", enc_hook=write_value).encode
"""Encode a state for the digest of a question and for the journal."""


def decision_of(path: str, verdict: Verdict, reply: type[A]) -> Decision[A]:
    """Return the decision of a verdict, with decoded replies."""
    decode = decoder_of(reply).decode
    tally = tuple((decode(value), votes) for value, votes in verdict.tally)
    if verdict.leader is None or verdict.outcome in OPEN_OUTCOMES:
        value = None
    else:
        value = tally[verdict.leader][0]
    flagged = len(verdict.ballots) - sum(votes for _, votes in tally)
    return Decision(
        path=path,
        value=value,
        outcome=verdict.outcome,
        tally=tally,
        flagged=flagged,
        probability=verdict.probability,
        refusal=verdict.refusal,
        flagged_as=verdict.flagged_as,
        open_fields=verdict.open_fields,
    )
