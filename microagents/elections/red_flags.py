"""Red flags: signs that a reply is unreliable (MAKER, section 3.3). Pure. A flagged reply is discarded, never repaired."""

from __future__ import annotations

from microagents.chat import Sample

TOO_LONG = "too_long"
CUT_OFF = "cut_off"
EMPTY = "empty"
MALFORMED = "malformed"
NO_SUCH_CHOICE = "no_such_choice"


def flag_unread(sample: Sample, above_tokens: int | None) -> str | None:
    """The flag that a reply has before it is read; None without one.

    ``cut_off`` when the provider ended it at a limit, the provider's own reason when it ended it for another (``refusal``,
    ``content_filter``, …), ``too_long`` above so many output tokens as the provider counts them, ``empty`` for blank text.
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
