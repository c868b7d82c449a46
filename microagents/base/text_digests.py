"""Digests of bytes and of texts, also of texts with half a character."""

from __future__ import annotations

from hashlib import blake2b


def digest_of(data: str | bytes, size: int = 16) -> bytes:
    """Return the BLAKE2b digest of a text or of bytes, with a size in bytes."""
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    return blake2b(data, digest_size=size).digest()
