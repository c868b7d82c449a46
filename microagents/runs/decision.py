"""One recorded decision in full: the prompt, the replies with their flags and votes, and the price, as far as the journal has them.

The journal keeps no prompts. The prompt of a chain's step is built again by the task, in the state that the recorded decisions lead to;
that of any other question by a replay of the work. It counts only if the digest of its question is the recorded one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any, NoReturn

import msgspec
from msgspec import Struct, structs

from microagents.chat import Reply
from microagents.durable import Work
from microagents.elections.count import Count
from microagents.elections.election import ESCALATED, Ballot, Flagged, Question, input_of, total_usd
from microagents.elections.red_flags import MALFORMED
from microagents.errors import InvalidUsage, MicroagentsError
from microagents.journal.reading import KeptText, Reader
from microagents.messages import resolve
from microagents.runs.plan import Plan, plan_of, settings_of
from microagents.runs.preview import malformed_reason
from microagents.runs.replay import replayed_question
from microagents.strategies.chain import Chain, ChainConductor, Step
from microagents.task import ChainTask, Task

NOTHING_ASKED = "no model was asked here: this is the result of other decisions, or the answer to a message"


class RecordedReply(Struct, frozen=True, kw_only=True):
    """One sample of a recorded election."""

    seq: int
    flag: str | None
    """Name of the red flag that discarded it; None for a valid reply."""
    why: str | None
    """The parser's reason for a malformed reply, where the prompt could be rebuilt."""
    vote: Any
    """The parsed reply, as JSON-like values; None for a flagged one."""
    agrees: bool | None
    """Whether it is a vote for the decided value; None for a flagged reply, and without a decision."""
    text: str | None
    """The text of the model; None where the journal does not keep it: it keeps replies that lost or were flagged."""
    text_is_cut: bool
    """Whether the journal keeps only the beginning of the text."""
    cost_usd: float | None
    """Cost of this sample, while the election is open. Of a decided one the journal keeps the sum."""


class RecordedDecision(Struct, frozen=True, kw_only=True):
    """One decision of a run, or one election that is not decided yet."""

    run_id: str
    path: str
    outcome: str
    """`once` for the recorded answer to a message, `open` for an election without a verdict, else the outcome of the election."""
    value: Any
    """The decided value, as JSON-like values; None while there is none."""
    settled_by: str | None
    """How an undecided election was settled: `leader`, the name of a person, or the spec of another model; None where the vote decided."""
    system: str | None
    """The system prompt with the format instructions; None where the prompt cannot be rebuilt."""
    user: str | None
    """The user prompt; of several through which samples cycle the first."""
    prompts: int
    """Number of prompts through which samples cycle."""
    note: str | None
    """Why the prompt cannot be rebuilt; None where it was."""
    models: tuple[str, ...]
    """The pool of models that the samples were drawn from."""
    replies: list[RecordedReply]
    """All counted samples, and those of an open election so far, in launch order."""
    other_replies: int
    """Number of kept replies to other questions at this path: those of wrong guesses, and of questions before an accepted change."""
    tally: list[tuple[Any, int]]
    """For each distinct vote its first-launched reply and its count. Where the prompt cannot be rebuilt, replies that differ only in
    fields without a vote are told apart."""
    correct: bool | None
    """Whether the task's oracle accepts the value; None without a value, an oracle or the state of the step."""
    cost_usd: float | None
    began_at: str
    """Time at which the run began. The journal has no time of a single decision."""
    ended_at: str | None
    """Time at which the input ended; None if it has not."""
    settled_at: str | None
    """Time of a person's decision; None if no person decided."""


class _Unasked:
    """The messenger of a conductor that only builds questions."""

    def ask(self, request: object, timeout_s: float | None) -> NoReturn:  # noqa: ARG002 - nothing is asked
        """Refuse: nothing is asked while a question is built."""
        raise InvalidUsage(f"the strategy asks for {type(request).__name__} to build a step")

    stream = ask

    def tell(self, request: object) -> None:
        """Refuse, as above."""
        self.ask(request, None)


def recorded_decision(reader: Reader, path: str) -> RecordedDecision:
    """The decision, or the open election, that a journal has at a path. It imports the task's module, which has the prompts.

    Raises:
        InvalidUsage: nothing is recorded there, or the journal is damaged.
    """
    run_id, row, open_elections = reader.experiment.run_id, reader.decision_at(path), reader.open_elections_at(path)
    if row is None and not open_elections:
        first = next((there for there, _ in reader.decisions()), None)
        there = "it has none" if first is None else f"the first is at {first!r}, and `microagents export {run_id}` lists all"
        raise InvalidUsage(f"run {run_id} has no decision at {path!r}; {there}")
    digest = open_elections[0].id.question_digest if row is None else row.question_digest
    more = [ballot for each in open_elections if each.id.question_digest == digest for ballot in each.ballots]
    ballots = [*(() if row is None else row.ballots), *more]
    asked, note = _asked(reader, path, digest) if ballots else (None, NOTHING_ASKED)
    question = None if asked is None else asked.question
    value = None if row is None else row.value
    texts = reader.texts_at(path)
    settled_by, settled_at = _settled(reader, path)
    return RecordedDecision(
        run_id=run_id,
        path=path,
        outcome="open" if row is None else row.outcome,
        value=None if value is None else msgspec.json.decode(value),
        settled_by=settled_by,
        system=None if question is None else question.prompts[0].system,
        user=None if question is None else question.prompts[0].user,
        prompts=0 if question is None else len(question.prompts),
        note=note,
        models=_pool(reader) if question is None else question.models,
        replies=_replies(
            ballots,
            value,
            [each for each in texts if each.question_digest == digest],
            asked,
            is_vote=row is not None and row.outcome != "sampled",
        ),
        other_replies=sum(each.question_digest != digest for each in texts),
        tally=[(msgspec.json.decode(each), votes) for each, votes in _tally(ballots, question)],
        correct=None if asked is None or value is None else _judged(asked, value),
        cost_usd=total_usd([*([] if row is None else [row.cost_usd]), *(each.cost_usd for each in more)]),
        began_at=reader.created_at,
        ended_at=reader.ended_at(input_of(path)),
        settled_at=settled_at,
    )


def _settled(reader: Reader, path: str) -> tuple[str | None, str | None]:
    """How an undecided election was settled, and the time of a person's decision."""
    settled = reader.account().settled_at.get(path)
    person = reader.persons().get(path)
    if settled != "person" or person is None:
        return settled, None
    return person.who, person.at


def _pool(reader: Reader) -> tuple[str, ...]:
    pools = settings_of(reader.experiment).models
    return pools.get("solver") or pools[""]


def _replies(
    ballots: Sequence[Ballot | Flagged], value: bytes | None, texts: Sequence[KeptText], asked: _Asked | None, *, is_vote: bool
) -> list[RecordedReply]:
    kept = {each.seq: each for each in texts}
    count = None if asked is None else Count(asked.question)
    replies = []
    for ballot in ballots:
        text, flag, agrees, why = kept.get(ballot.seq), None, None, None
        if isinstance(ballot, Flagged):
            flag = ballot.flag
            if flag == MALFORMED and text is not None and asked is not None:
                why = malformed_reason(text.text, asked.question.reply, asked.task)
        elif value is not None and is_vote:
            agrees = ballot.value == value if count is None else count.vote_of(ballot.value) == count.vote_of(value)
        replies.append(
            RecordedReply(
                seq=ballot.seq,
                flag=flag,
                why=why,
                vote=msgspec.json.decode(ballot.value) if isinstance(ballot, Ballot) else None,
                agrees=agrees,
                text=None if text is None else text.text,
                text_is_cut=text is not None and text.is_cut,
                cost_usd=ballot.cost_usd,
            )
        )
    return replies


def _tally(ballots: Sequence[Ballot | Flagged], question: Question | None) -> list[tuple[bytes, int]]:
    if question is None:
        return list(Counter(ballot.value for ballot in ballots if isinstance(ballot, Ballot)).items())
    count = Count(question)
    for ballot in ballots:
        count.add(ballot)
    return list(count.verdict().tally)


# -- the question --------------------------------------------------------------------------------------------------------------------


class _Asked(Struct, frozen=True, kw_only=True):
    """A question that was built again as it was asked."""

    task: Task
    question: Question
    step: Step | None
    """The step of a chain; None for other work."""


def _asked(reader: Reader, path: str, digest: bytes) -> tuple[_Asked | None, str | None]:
    """The question at a path, if it can be built again and has the recorded digest; else the reason."""
    unknown = "the prompt is not in the journal, and cannot be rebuilt"
    try:
        asked = _rebuilt(reader, path)
    except MicroagentsError as error:
        return None, f"{unknown}: {error}"
    except Exception as error:  # noqa: BLE001 - a user's code may raise anything
        return None, f"{unknown}: the task raised {type(error).__name__}: {error}"
    if path.endswith(ESCALATED):
        other_model = reader.account().settled_at.get(path, settings_of(reader.experiment).on_undecided)
        asked = structs.replace(asked, question=structs.replace(asked.question, models=(other_model,)))
    if asked.question.id_at(path).question_digest != digest:
        return None, (
            f"{unknown}: the task as it is now asks another question here; its code, its options or this microagents differ from those "
            "of the run"
        )
    return asked, None


def _rebuilt(reader: Reader, path: str) -> _Asked:
    """Build the question at a path again: a step of a chain in its state, and all else by a replay of the work."""
    plan, of_input, place = plan_of(reader), input_of(path), path.removesuffix(ESCALATED)
    task, kind = plan.tasks[of_input], plan.strategy.conductor
    match place.split("/"):
        case [_, "step", number] if number.isdecimal() and isinstance(task, ChainTask) and issubclass(kind, ChainConductor):
            chain = _chain(plan, kind, of_input)
            step = chain.step(int(number), _state_at(reader, plan, chain, int(number)))
            return _Asked(task=task, question=step.question, step=step)
    return _Asked(task=task, question=replayed_question(reader, plan, of_input, place), step=None)


def _chain(plan: Plan, kind: type[ChainConductor[Any]], of_input: int) -> Chain:
    conductor = kind(plan.context(), _Unasked())
    return conductor.chain(Work(conductor, of_input, recalls=False))


def _state_at(reader: Reader, plan: Plan, chain: Chain, number: int) -> Any:
    """The state in which a step was asked: that of the oracle with known inputs, else that which the decisions before it lead to."""
    task, state = chain.task, chain.task.start()
    if getattr(plan.strategy, "known_inputs", False):
        for _ in range(number):
            state = task.advance(state, task.oracle(state))
        return state
    decided = (row.value for path, row in reader.decisions_of(chain.work.input) if row.value is not None and path.split("/")[1] == "step")
    done = 0
    for value in islice(decided, number):
        state, done = task.advance(state, msgspec.json.decode(value, type=chain.reply_type)), done + 1
    if done < number:
        raise InvalidUsage(f"step {done} before it is not decided, so its state is unknown")
    return state


def _judged(asked: _Asked, value: bytes) -> bool | None:
    """Whether the oracle of a chain accepts a value."""
    if asked.step is None or not isinstance(asked.task, ChainTask):
        return None
    reply: Reply = msgspec.json.decode(value, type=resolve(asked.question.reply, Reply))
    try:
        right: object = asked.task.correct(asked.step.state, reply)
    except Exception:  # noqa: BLE001 - a user's code may raise anything; the decision was judged when it was taken
        return None
    return right if isinstance(right, bool) else None
