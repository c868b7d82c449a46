"""Elections of an input: their options, their results, and the answers that their records give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict, cast

import msgspec
from msgspec import structs

from microagents.base.errors import InvalidDefinition, JournalMismatch
from microagents.base.messages import resolve
from microagents.base.plain_values import write_value
from microagents.elections.count import Count
from microagents.elections.election import (
    OPEN_OUTCOMES,
    Decision,
    ElectionId,
    Flagged,
    Question,
    Verdict,
)
from microagents.elections.red_flags import REFUSED
from microagents.elections.rules import Rule
from microagents.journal.messages import Recalled
from microagents.models.weighing import options_of, rule_for
from microagents.replies.chat import Sampling
from microagents.replies.reply import A, Reply
from microagents.replies.reply_forms import decoder_of


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


def was_not_paid(recalled: Recalled) -> bool:
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
