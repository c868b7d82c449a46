"""Digests of decisions. Equal decisions give equal digests, in any order: independent of timing, runtime and number of replicas."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import msgspec

_pack = msgspec.msgpack.Encoder().encode
_DIGITS = 64
_MODULUS = 16**_DIGITS


def with_entry(digest: str, *entry: object) -> str:
    """Return a digest with one more entry: their sum modulo 2^256, as hexadecimal digits. That of no entry is empty.

    Args:
        digest: digest of the entries so far.
        entry: values that msgpack can encode.
    """
    added = sha256(_pack(entry))
    total = int(digest or "0", 16) + int.from_bytes(added.digest(), "big")
    return f"{total % _MODULUS:0{_DIGITS}x}"


def sum_of_digests(digests: Sequence[str]) -> str:
    """Return the digest of the entries of several digests, which is empty without an entry."""
    if not any(digests):
        return ""
    total = sum(int(each, 16) for each in digests if each)
    return f"{total % _MODULUS:0{_DIGITS}x}"


def in_order(path: str) -> list[tuple[int, int, str]]:
    """Sort key of a path: component by component, numbers by value."""
    return [_sort_key(component) for component in path.split("/")]


def _sort_key(component: str) -> tuple[int, int, str]:
    """Sort key of a component: numbers by value, then everything else as text."""
    number = component.isascii() and component.isdigit()
    if number:
        return (0, int(component), component)
    return (1, 0, component)
