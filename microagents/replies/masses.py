"""The probability of a whole reply, by the model that drew it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from microagents.base.text_digests import digest_of

LawOfMass = Literal["draw", "model"]
"""What a mass is measured by: `draw`, the law of this very draw, with its temperature and samplers; `model`, the model's own law at
temperature 1, before all samplers."""


class Mass(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Probability of the whole text of a reply, with the end behind it."""

    log: float
    """Natural logarithm of the probability, 0 at most."""
    text: bytes
    """64-bit digest of the text: equal texts have one mass."""
    law: LawOfMass = "draw"
    branch: float | None = None
    """Logarithm of the greatest probability of any text that leaves this one at some token; None if the provider gives no alternatives."""


def digest_of_text(text: str) -> bytes:
    """Digest a text for its mass."""
    return digest_of(text, 8)
