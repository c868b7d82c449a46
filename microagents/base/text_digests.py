"""Digests of texts, also of texts with half a character."""

from __future__ import annotations

from hashlib import blake2b


def digest_of(text: str, size: int = 16) -> bytes:
    """Return the BLAKE2b digest of a text, with a size in bytes."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest()
