"""Red flags: signs that a reply is unreliable (MAKER, section 3.3). A flagged reply is discarded, never repaired."""

from __future__ import annotations

from microagents.chat import Sample

TOO_LONG = "too_long"
CUT_OFF = "cut_off"
EMPTY = "empty"
MALFORMED = "malformed"
NO_SUCH_CHOICE = "no_such_choice"


def flag_unread(sample: Sample, above_tokens: int | None) -> str | None:
    """The red flag of a reply that is not yet parsed; None without one.

    Args:
        sample: the reply.
        above_tokens: replies with more output tokens, by the provider's count, are too long; None disables this flag.

    Returns:
        ``cut_off`` if the provider ended the reply at a limit, the provider's reason if it ended it for another one (``refusal``,
        ``content_filter``, …), ``too_long``, or ``empty`` for blank text.
    """
    if sample.finish == "length":
        return CUT_OFF
    if sample.finish != "stop":
        return sample.finish
    tokens = sample.usage.output_tokens
    if above_tokens is not None and tokens is not None and tokens > above_tokens:
        return TOO_LONG
    if not sample.text or sample.text.isspace():
        return EMPTY
    return None
