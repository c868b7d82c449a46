"""Replies in prose that several systems ask for, and their red flags."""

from __future__ import annotations

import re

from microagents.elections.red_flags import EMPTY, REFUSAL, TOO_LONG
from microagents.replies.reply import CheckedReply

MAX_RESULT_CHARS = 3000
"""A longer result of a step, or a longer summary, is flagged as `too_long`."""
_REFUSAL = re.compile(
    r"\W*(?:I(?:'|\u2019)?m (?:very )?sorry|I (?:can(?:no|'|\u2019)?t|am (?:not able|unable) to|won(?:'|\u2019)t|must decline)|As an AI)\b",
    re.IGNORECASE,
)


class Summary(CheckedReply, frozen=True):
    """A summary of finished steps."""

    summary: str

    def flaw(self) -> str | None:
        """``empty``, ``too_long`` (over 3,000 characters) or ``refusal``."""
        return flaw_of(self.summary)


def flaw_of(text: str) -> str | None:
    """Return the red flag of a text in prose; None for none."""
    if not text.strip():
        return EMPTY
    if len(text) > MAX_RESULT_CHARS:
        return TOO_LONG
    if not _REFUSAL.match(text):
        return None
    return REFUSAL
