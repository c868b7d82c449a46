"""Red flags: signs that a reply is unreliable (MAKER, section 3.3). A flagged reply is discarded, never repaired."""

from __future__ import annotations

from microagents.base.foreign_text import printable_line
from microagents.replies.chat import Sample
from microagents.tools.toolbox import BAD_ARGUMENTS, FORBIDDEN, UNKNOWN_TOOL

TOO_LONG = "too_long"
"""The reply has more tokens than the limit of its length."""
CUT_OFF = "cut_off"
"""The provider ended the reply at its greatest length."""
EMPTY = "empty"
"""The reply has no text."""
MALFORMED = "malformed"
"""The reply is not in the form that was asked for."""
NO_SUCH_CHOICE = "no_such_choice"
"""The reply picks an option that was not given."""
UNVERIFIED = "unverified"
"""The task's `verify` rejected the reply, and every reply to its feedback."""
UNWEIGHED = "unweighed"
"""A model that weighs options gave no probabilities that can be used."""
UNSURE = "unsure"
"""The reply says of itself that it is likely wrong."""
REFUSAL = "refusal"
"""The model does not answer: the provider says so, or the reply begins so."""
CONTENT_FILTER = "content_filter"
"""The provider refuses the reply for its content, or for the prompt's."""
REFUSED = "refused"
"""The provider does not accept the request for its content or its length."""
ONLY_REASONING = "only_reasoning"
"""The reply has no text, since the server gives all that the model wrote as reasoning."""
OTHER = "other"
"""The provider ended the reply for a reason that is not known here."""
OUT_OF_RANGE = "out_of_range"
"""A subquestion needs one that is not there."""
SELF_DEPENDENCY = "self_dependency"
"""A subquestion needs itself."""
CYCLE = "cycle"
"""Subquestions need each other in a circle."""
EMPTY_QUESTION = "empty_question"
"""A subquestion, or a contracted question, has no text."""
SAID_NOT_DONE = "said_not_done"
"""An agent's reply is a text without a call, where its result is no text and no customer is there."""
EFFECTS_TOGETHER = "effects_together"
"""An action has several calls that neither all only read nor all commute."""
TOO_MANY_ROUNDS = "too_many_rounds"
"""A sample wants to look things up more often than it may."""
UNREAD = (TOO_LONG, CUT_OFF, EMPTY, ONLY_REASONING, OTHER, MALFORMED)
"""Flags of replies without an answer that could be read: the question or the server may well be the reason, not chance."""
MAX_SAID_CHARS = 300
_NAMES = (
    *(TOO_LONG, CUT_OFF, EMPTY, MALFORMED, NO_SUCH_CHOICE, UNVERIFIED, UNSURE, REFUSED, OTHER),
    *(OUT_OF_RANGE, SELF_DEPENDENCY, CYCLE, EMPTY_QUESTION, SAID_NOT_DONE),
    *(EFFECTS_TOGETHER, TOO_MANY_ROUNDS, UNKNOWN_TOOL, FORBIDDEN),
)
_FINISHES = frozenset(
    {
        "stop",
        "length",
        CONTENT_FILTER,
        REFUSAL,
        "tool_calls",
        "function_call",
        "tool_use",
        "pause_turn",
        "error",
        "abort",
    }
    | {UNWEIGHED, ONLY_REASONING, BAD_ARGUMENTS}
)


def is_shipped(flag: str) -> bool:
    """Return whether a flag is one of this package's; all others are a task's own."""
    return flag in _NAMES or flag in _FINISHES


def known_finish(reason: str) -> str:
    """Read why a reply ended; ``other`` for an unknown reason: it becomes a name in accounts and on screens."""
    if reason in _FINISHES:
        return reason
    return OTHER


def refusal_in(sample: Sample) -> str:
    """Return the words of a provider that refuses a question for its content; empty for any other reply."""
    if sample.finish not in (REFUSAL, CONTENT_FILTER):
        return ""
    text = printable_line(sample.text)
    if text:
        return f"{sample.finish}: {text[:MAX_SAID_CHARS]}"
    return sample.finish


def flag_unread(sample: Sample, above_tokens: int | None) -> str | None:
    """Flag a reply that is not yet parsed; None without a red flag.

    Args:
        sample: the reply.
        above_tokens: replies whose text has more tokens, by the provider's count, are too long; None or 0 disables this flag. Tokens of
            reasoning do not count. It does not apply if the provider does not report the number.

    Returns:
        ``cut_off`` if the provider ended the reply at a limit, the provider's reason if it ended it for another one (``refusal``,
        ``content_filter``, …) or ``other``, ``too_long``, or ``empty`` for blank text.
    """
    if sample.finish == "length":
        return CUT_OFF
    if sample.finish != "stop":
        return known_finish(sample.finish)
    tokens = sample.usage.visible_tokens
    if above_tokens and tokens is not None and tokens > above_tokens:
        return TOO_LONG
    if not sample.text or sample.text.isspace():
        return EMPTY
    return None
