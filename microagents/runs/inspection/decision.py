"""One recorded decision in full: the prompt, the replies with their flags and votes, and the price, as far as the journal has them.

The journal keeps no prompts: `microagents.runs.inspection.rebuilding` builds them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import msgspec
from msgspec import Struct, structs

from microagents.base.errors import InvalidUsage, TaskFailed
from microagents.base.messages import resolve
from microagents.base.user_code import called
from microagents.elections.count import Count
from microagents.elections.election import (
    OPEN_OUTCOMES,
    AnyBallot,
    Ballot,
    ElectionId,
    Flagged,
    Question,
    Verdict,
    input_of,
    total_usd,
)
from microagents.elections.red_flags import MALFORMED
from microagents.elections.rules import ByField
from microagents.journal.messages import Recalled
from microagents.journal.reading import KeptText, Reader
from microagents.journal.requests import PersonDecision, settlement
from microagents.replies.chat import Cached
from microagents.replies.parsing import malformed_reason
from microagents.replies.persons import PERSON_REPLIES
from microagents.replies.reply import Reply
from microagents.replies.reply_forms import decoder_of
from microagents.replies.typed import fields_of
from microagents.runs.accuracy import Confusion, confusions, wrong_pairs
from microagents.runs.cells import cells_in
from microagents.runs.inspection.climbs import step_of
from microagents.runs.inspection.rebuilding import RebuiltQuestion, asked_at, asked_at_step
from microagents.runs.inspection.runs import solution_of
from microagents.runs.plan import settings_of
from microagents.runs.settings import solver_pool
from microagents.runs.words.money import prices_of, specs_in
from microagents.systems.agents.notes import ActionRecord, AgentRecord
from microagents.systems.chains.lookahead import lookahead_in

NOTHING_ASKED = "no model was asked here: this is the result of other decisions, or the answer to a message"


class RecordedReply(Struct, frozen=True, kw_only=True):
    """One sample of a recorded election."""

    seq: int
    flag: str | None
    """Name of the red flag that discarded it; None for a valid reply."""
    why: str | None
    """The parser's reason for a malformed reply, if the prompt could be rebuilt."""
    vote: Any
    """The parsed reply, as JSON-like values; None for a flagged one."""
    agrees: bool | None
    """Whether it is a vote for the decided value; None for a flagged reply, and without a decision."""
    text: str | None
    """The text of the model; None if the journal does not keep it: see ``keep_texts``."""
    text_is_cut: bool
    """Whether the journal keeps only the beginning of the text."""
    cost_usd: float | None
    """Cost of this sample, while the election is open. Of a decided one the journal keeps the sum."""
    cached: Cached | None = None
    """Tokens of its last request in the provider's cache; None if there are none."""
    model: str | None = None
    """Spec of the model that gave it, of a pool or a fallback; None for the only model of the question, and if that is unknown."""
    shares: dict[str, float] = {}
    """Probability of each option, if a model weighed them; empty for a vote."""
    rollout: str | None = None
    """Path of the rollout whose prediction this is; None for a reply to the question itself."""


class InspectedDecision(Struct, frozen=True, kw_only=True):
    """One decision of a run, or one election that is not decided yet."""

    run_id: str
    path: str
    outcome: str
    """`once` for the recorded answer to a message, `open` for an election without a verdict, else the outcome of the election."""
    value: Any
    """The decided value, as JSON-like values; None while there is none."""
    settled_by: str | None
    """How an undecided election was settled: `leader`, the name of a person, or the spec of another model; None if the vote decided."""
    system: str | None
    """The system prompt with the format instructions; None if the prompt cannot be rebuilt."""
    user: str | None
    """The user prompt; of several through which samples cycle the first."""
    prompts: int
    """Number of prompts through which samples cycle."""
    note: str | None
    """Why the prompt cannot be rebuilt; None if it was."""
    models: tuple[str, ...]
    """The pool of models that the samples were drawn from."""
    replies: list[RecordedReply]
    """All counted samples, also of an open election so far, in launch order."""
    tally: list[tuple[Any, int]]
    """For each distinct vote its first-launched reply and its count. If the prompt cannot be rebuilt, replies that differ only in
    fields without a vote stand apart. Candidates without a vote are there, too."""
    correct: bool | None = None
    """Whether the task's oracle accepts the value; None without a value, an oracle or the state of the step."""
    right: Any = None
    """The right reply to the step, as JSON-like values, if the value is wrong; None if code does not know it."""
    wrong: tuple[Confusion, ...] = ()
    """The wrong fields of a row that is voted on by field."""
    cost_usd: float | None
    cached: Cached | None
    """Tokens of its replies in the provider's cache; None if there are none."""
    price: str
    """``simulated`` if the models are, or ``partly simulated``; else empty."""
    decided_at: str | None
    """Time at which the decision was recorded; None while there is none."""
    person: PersonDecision | None
    """A person's decision that the next sitting takes up; None if there is none."""
    settled_at: str | None
    """Time of a person's decision; None if no person decided."""
    probability: float | None = None
    """Mean probability of the leading value, if a model weighed the options and the prompt could be rebuilt; None after a vote."""
    decided_by: str | None = None
    """Path of the rung that decided the step, for a vote that climbed a ladder; None for any other, and if no rung decided."""
    k: int | None = None
    """The strategy's k; None for a strategy without one."""
    asked: tuple[str, ...] = ()
    """The question to a person here, and the answers in words; empty if nothing waits, or only a reply can be given."""
    cells: dict[str, list[tuple[Any, int]]] = {}
    """Votes on each field, the most frequent value first, if each is voted on by itself; else empty."""
    open_fields: list[str] = []
    """Fields without a decision, of such a vote that is undecided or open."""
    fields: tuple[str, ...] = ()
    """Fields of a reply that a person may give here; empty if the prompt cannot be rebuilt."""
    candidates: dict[str, Any] = {}
    """The replies behind the labels that its votes name, as JSON-like values; empty of other votes."""
    action: ActionRecord | None = None
    """Outcomes of the calls, if it is an action of an agent; None for any other decision."""

    def behind(self, vote: Any) -> Any:
        """Return the reply that a vote names by its label; of other votes the vote itself."""
        return self.candidates.get(_label_in(vote), vote)


def inspect_decision(reader: Reader, path: str) -> InspectedDecision:
    """Return the decision, or the open election, that a journal has at a path. It imports the task's module, which has the prompts."""
    row, open_elections = reader.decision_at(path), reader.open_elections(path)
    if row is None and not open_elections:
        return inspect_decision(reader, _path_with_end(reader, path))
    is_decided = row is not None
    if row is None:
        row = Recalled(question_digest=open_elections[0].id.question_digest, outcome="undecided", value=None)
    digest, value = row.question_digest, row.value
    more = [ballot for each in open_elections if each.id.question_digest == digest for ballot in each.ballots]
    ballots = [*row.ballots, *more]
    inferred = None
    if is_decided:
        inferred = _inference(reader, path, row)
    asked, note = asked_at(reader, path, digest) if ballots and inferred is None else (None, inferred or NOTHING_ASKED)
    system = user = None
    prompts, models = 0, solver_pool(settings_of(reader.experiment))
    election = ElectionId(path=path, question_digest=digest)
    if asked is not None:
        shown = asked.question.prompts[0].flat
        system, user, prompts = shown.system, shown.user, len(asked.question.prompts)
        models = asked.question.models
    if inferred is not None:  # its votes are read, and its value is judged, as replies to the question of the step
        asked = asked_at_step(reader, path)
    voted, candidates, judged = None, dict[str, Any](), dict[str, Any]()
    if asked is not None:
        voted, candidates = _counted(election, ballots, asked.question), _behind_labels(asked.question)
        judged = _judged(asked, value)
    texts = reader.holding(path).texts_at(path, digest)
    settled_by, settled_at = settlement(path, reader.settled_at(), reader.persons())
    replies = _replies(election, ballots, value, texts, asked, is_vote=row.outcome != "sampled")
    if inferred is not None:
        replies = [structs.replace(each, model=None, rollout=_rollout(reader, path, each.seq)) for each in replies]
    costs = [each.cost_usd for each in more]
    if is_decided:
        costs.append(row.cost_usd)
    values = Counter(each.value for each in ballots if isinstance(each, Ballot))
    counts = tuple(values.items())
    if voted is not None:
        counts = voted.tally
    tally = [(msgspec.json.decode(each), votes) for each, votes in counts]
    named = [_label_in(vote) for vote, _ in tally]
    tally += [({"choice": label}, 0) for label in candidates if label not in named]
    return InspectedDecision(
        run_id=reader.experiment.run_id,
        path=path,
        outcome=row.outcome if is_decided else "open",
        value=msgspec.json.decode(value or b"null"),
        settled_by=settled_by,
        system=system,
        user=user,
        prompts=prompts,
        note=note,
        models=models,
        replies=replies,
        tally=tally,
        probability=None if voted is None else voted.probability,
        cost_usd=total_usd(costs),
        cached=_cached_of(ballots),
        price=prices_of(specs_in(settings_of(reader.experiment)["models"])).mark,
        decided_at=reader.holding(path).moment(row.after_ms) if is_decided else None,
        person=reader.persons().get(path) if path in reader.undecided() else None,
        settled_at=settled_at,
        decided_by=_decided_by(reader, path) if row.outcome == "climbed" else None,
        k=reader.experiment.recipe.deciding_votes,
        asked=_asked_of_person(reader, path),
        cells=cells_in(ballots) if voted is not None and voted.by_field else {},
        open_fields=[] if voted is None or value is not None else [*chain.from_iterable(voted.open_fields)],
        fields=() if asked is None else fields_of(resolve(asked.question.reply, Reply)),
        candidates=candidates,
        action=_action(reader, path),
        **judged,
    )


def _path_with_end(reader: Reader, end: str) -> str:
    """Return the path of the only decision whose path ends so.

    Raises:
        InvalidUsage: there is none, or more than one.
    """
    run_id, paths = reader.experiment.run_id, [path for path, _ in reader.decisions()]
    found = [path for path in paths if path.endswith(f"/{end}")]
    if len(found) == 1:
        return found[0]
    there = "it has none"
    if paths:
        near = next((path for path in (f"0/{end}", f"{end}/step/0", f"0/step/{end}") if path in paths), paths[0])
        there = f"there is one at {near!r}, and `microagents export {run_id}` lists all"
    raise InvalidUsage(f"run {run_id} has no decision at {end!r}; {there}")


def _label_in(vote: Any) -> str:
    """Read the label that a vote on candidates names; empty of another vote."""
    if not isinstance(vote, dict):
        return ""
    return str(vote.get("choice", "")).strip().upper()


class _Labelled(Struct):
    """Part of a prompt."""

    label: str
    reply: Any


class _Candidates(Struct):
    """Part of the prompt of a vote on candidates."""

    candidates: list[_Labelled]


def _behind_labels(question: Question) -> dict[str, Any]:
    """Read the candidates of a vote on labels from its prompt."""
    if not question.choices:
        return {}
    try:
        found = msgspec.json.decode(question.prompts[0].user_parts[1], type=_Candidates)
    except msgspec.MsgspecError:  # the labels of other votes, such as rankings
        return {}
    return {each.label: each.reply for each in found.candidates}


def _asked_of_person(reader: Reader, path: str) -> tuple[str, ...]:
    undecided = reader.undecided().get(path) if "/call/" in path else None
    kind = None if undecided is None else PERSON_REPLIES.get(undecided.reply)
    if kind is None:
        return ()
    return (kind.question, *kind.words)


def _action(reader: Reader, path: str) -> ActionRecord | None:
    if not any(f"{path}/call/" in at for at, _ in reader.decisions_below(path)):
        return None
    try:
        solution = solution_of(reader, input_of(path))
    except InvalidUsage:  # the task cannot be found any more; the note on the prompt says so
        return None
    if not isinstance(solution, AgentRecord):
        return None
    return next((each for each in solution.actions if each.path == path), None)


def _inference(reader: Reader, path: str, row: Recalled) -> str | None:
    """Source of an inferred row of a rung; None for a row with samples of its own."""
    match path.split("/"):
        case [_, "step", _, "lookahead"] if row.outcome in (*OPEN_OUTCOMES, "climbed", "inferred"):
            if row.ballots:
                why = ""
            else:
                why = "; none led by the margin, and the journal keeps only the rollouts"
            return f"its votes are predictions of rollouts, the first of which is at {_rollout(reader, path, 0)}{why}"
        case [_, "step", _, name] if not row.ballots and (row.outcome in ("climbed", "inferred") or name == "judge"):
            return f"it was chosen from the replies so far; the vote is at {path}/vote"
    return None


def _rollout(reader: Reader, path: str, seq: int) -> str:
    of_input, _, number, _ = path.split("/")
    return f"{of_input}/{lookahead_in(reader.experiment.recipe.strategy_options).place(int(number), seq)}"


def _decided_by(reader: Reader, path: str) -> str | None:
    step = step_of(path)
    for at, row in reader.decisions_below(step):
        if row.is_decision and at.count("/") == step.count("/") + 1:
            return at
    return None


def _replies(
    election: ElectionId,
    ballots: Sequence[AnyBallot],
    value: bytes | None,
    texts: Mapping[int, KeptText],
    asked: RebuiltQuestion | None,
    *,
    is_vote: bool,
) -> list[RecordedReply]:
    count = None if asked is None else Count(election, asked.question)
    replies = []
    for ballot in ballots:
        (text, is_cut), flag, agrees, why = texts.get(ballot.seq, (None, False)), None, None, None
        if isinstance(ballot, Flagged):
            flag = ballot.flag
            if flag == MALFORMED and text is not None and asked is not None:
                reply = resolve(asked.question.reply, Reply)
                why = malformed_reason(text, reply, asked.task.format, asked.question.reading)
        elif value is not None and is_vote:
            if count is None:
                agrees = ballot.value == value
            else:
                agrees = count.vote_of(ballot.value) == count.vote_of(value)
        replies.append(
            RecordedReply(
                seq=ballot.seq,
                flag=flag,
                why=why,
                vote=msgspec.json.decode(ballot.value) if isinstance(ballot, Ballot) else None,
                model=_model_of(election, ballot, None if asked is None else asked.question),
                shares=ballot.shares if isinstance(ballot, Ballot) else {},
                agrees=agrees,
                text=text,
                text_is_cut=is_cut,
                cost_usd=ballot.cost_usd,
                cached=ballot.facts.cached,
            )
        )
    return replies


def _cached_of(ballots: Sequence[AnyBallot]) -> Cached | None:
    found = [each.facts.cached for each in ballots if each.facts.cached is not None]
    if not found:
        return None
    return Cached(read=sum(each.read for each in found), written=sum(each.written for each in found))


def _model_of(election: ElectionId, ballot: AnyBallot, question: Question | None) -> str | None:
    if ballot.facts.fallback:
        return ballot.facts.fallback
    if question is None or len(question.models) == 1:
        return None
    return question.model_of(election, ballot.seq)


def _counted(election: ElectionId, ballots: Sequence[AnyBallot], question: Question) -> Verdict:
    count = Count(election, question)
    for ballot in ballots:
        count.add(ballot)
    return count.verdict()


def _judged(asked: RebuiltQuestion, value: bytes | None) -> dict[str, Any]:
    """Return the fields of `InspectedDecision` that the task's own code tells of a value; none if nothing judges it."""
    step, chain, question = asked.step, asked.chain, asked.question
    found = dict[str, Any]()
    if step is None or chain is None or value is None:
        return found
    reply = decoder_of(resolve(question.reply, Reply)).decode(value)
    with suppress(TaskFailed):  # a user's code raised; the decision was judged when it was taken
        found["correct"] = chain.correct(step.state, reply, step.number)
        if found["correct"] is False:
            found["right"] = chain.right(step.state, step.number)
            if isinstance(question.rule, ByField):
                known = called(chain.task.right_fields, step.state, gives=dict)
                found["wrong"] = confusions(wrong_pairs(reply, known))
    return found
