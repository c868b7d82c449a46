"""The probability of a whole reply, from the log-probabilities of its tokens; a list that leaves a doubt gives none."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from microagents.replies.masses import LawOfMass, Mass, digest_of_text

ALTERNATIVES = 2
"""Number of most likely tokens to ask for at each place: the best one that was not written is among them. llama.cpp takes no 0."""
_LEAST = -1e9
"""Smallest log-probability of a token that was drawn; the sum of very many is a number, too."""
_SLACK = 1e-6
"""What rounding may add to a probability, in one number."""
_END = re.compile(rb"<[^<>\s]{1,64}>")
"""The end token by its name, as vLLM and SGLang list it; llama.cpp lists it without a text."""


class Token(Struct, frozen=True, kw_only=True):
    """A token, as servers with OpenAI's APIs list it. A missing one has no log-probability, such as probabilities after sampling."""

    token: str = ""
    logprob: float | None = None
    raw: list[Annotated[int, Meta(ge=0, le=255)]] | None = field(name="bytes", default=None)
    """Its text; a token may be a part of a character. None if the server lists only ``token``."""
    top_logprobs: list[Token] | None = None
    """The most likely tokens at its place, perhaps with itself."""

    @property
    def text(self) -> bytes:
        """Bytes that it adds to the reply."""
        if self.raw is None:
            return self.token.encode("utf-8", "surrogatepass")
        return bytes(self.raw)


def tokens_in(found: Any) -> list[Token]:
    """Read the tokens of a choice (chat) or of a part of the output (responses); a list that cannot be read is empty."""
    listed = found.get("content") if isinstance(found, dict) else found
    try:
        return msgspec.convert(listed or [], list[Token])
    except msgspec.MsgspecError:
        return []


def mass_of(tokens: Sequence[Token], text: str, *, law: LawOfMass, is_closed: bool = False) -> Mass | None:
    """Multiply the probabilities of the tokens of a reply that ended by itself; with ``is_closed`` nothing but the end can follow it.

    None if the tokens are not those of the text, if the probability of the end is missing, or if the numbers cannot be true: positive,
    missing, all the same, or more than 1 together. Space around the text may be left out by the server: it belongs to the draw.
    """
    logs = [token.logprob for token in tokens]
    found = [log for log in logs if log is not None and _LEAST < log <= _SLACK]
    if not found or len(found) < len(logs) or not _are_plausible(tokens):
        return None
    pieces = [token.text for token in tokens]
    has_end = not pieces[-1] or _END.fullmatch(pieces[-1]) is not None
    drawn = pieces[:-1] if has_end else pieces
    whole = b"".join(drawn)
    if not ((has_end or is_closed) and all(drawn) and whole.strip() == text.encode("utf-8", "surrogatepass").strip()):
        return None
    before = accumulate(found, initial=0.0)
    others = [_best_other(token) for token in tokens]
    branches = [log + other for log, other in zip(before, others, strict=False) if other is not None]
    text = whole.decode("utf-8", "surrogatepass")
    return Mass(
        log=min(0.0, math.fsum(found)),
        text=digest_of_text(text),
        law=law,
        branch=min(0.0, max(branches)) if len(branches) == len(tokens) else None,
    )


def _are_plausible(tokens: Sequence[Token]) -> bool:
    """Whether the numbers differ from place to place, and add up to no more than 1 at each."""
    told = {token.logprob for token in tokens}
    for token in tokens:
        top = [each.logprob for each in token.top_logprobs or () if each.logprob is not None]
        if not all(log <= _SLACK for log in top) or math.fsum(map(math.exp, top)) > 1 + 1e-3:  # also NaN
            return False
        told.update(top)
    return len(tokens) == 1 or len(told) > 1


def _best_other(token: Token) -> float | None:
    """Log-probability of the likeliest token that was not written at a place; None if the server does not list it."""
    top, log = list(token.top_logprobs or ()), token.logprob or 0.0
    # Parts of characters may have one text: the one with the nearest number is the written one.
    same = [each for each in top if (each.token, each.raw) == (token.token, token.raw)]
    if same:
        nearest = min(same, key=lambda each: abs((each.logprob or 0.0) - log))
        top.remove(nearest)
    return max((each.logprob for each in top if each.logprob is not None), default=None)
