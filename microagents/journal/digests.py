"""Digests of decisions. Equal decisions give equal digests, independent of timing, runtime and number of replicas."""

from __future__ import annotations

from collections import defaultdict
from hashlib import sha256

import msgspec

_pack = msgspec.msgpack.Encoder().encode


_BYTES = sha256().digest_size
_NONE = bytes(_BYTES)


class ChainDigests:
    """A digest for each input, of decisions that have one order: d_i = SHA-256(d_(i-1), path, decision).

    They stand in one array, since a run may have a million inputs.
    """

    def __init__(self, inputs: int) -> None:
        self._last = bytearray(inputs * _BYTES)

    def add(self, of_input: int, path: str, *decided: object) -> None:
        """Add the next decision of an input; ``decided`` consists of values that msgpack can encode."""
        # As `digest` and `set` do, without calls of them, since it runs twice for every decision: some 5 us of a step.
        at, last = of_input * _BYTES, self._last
        before = bytes(last[at : at + _BYTES])
        last[at : at + _BYTES] = sha256(_pack((b"" if before == _NONE else before, path, decided))).digest()

    def set(self, of_input: int, digest: bytes) -> None:
        """Continue the chain of an input from a recorded digest.

        Raises:
            ValueError: it is not a digest.
        """
        if len(digest) not in (0, _BYTES):
            raise ValueError(f"a digest of input {of_input} has {len(digest)} bytes")
        self._last[of_input * _BYTES : (of_input + 1) * _BYTES] = digest or _NONE

    def digest(self, of_input: int) -> bytes:
        """Return the digest of all decisions of an input so far; empty before the first."""
        found = bytes(self._last[of_input * _BYTES : (of_input + 1) * _BYTES])
        if found == _NONE:
            return b""
        return found


class TreeDigests:
    """A digest for each input, of decisions that arrive in any order: a tree over the components of their paths.

    Each node hashes its own decision and the digests of its children, sorted by component.
    """

    def __init__(self) -> None:
        self._decided: defaultdict[int, dict[str, tuple[object, ...]]] = defaultdict(dict)
        """What is decided, by input and path."""

    def add(self, of_input: int, path: str, *decided: object) -> None:
        """Add a decision of an input, or replace the one at the same path."""
        self._decided[of_input][path] = decided

    def digest(self, of_input: int) -> bytes:
        """Return the digest of all decisions of an input so far."""
        root = _Node()
        for path, decided in self._decided[of_input].items():
            node = root
            for component in path.split("/"):
                node = node.children.setdefault(component, _Node())
            node.content = (path, decided)
        return root.digest()


class _Node:
    def __init__(self) -> None:
        self.content: object = None
        self.children: dict[str, _Node] = {}

    def digest(self) -> bytes:
        ordered = sorted(self.children, key=_sort_key)
        below = [self.children[component].digest() for component in ordered]
        return sha256(_pack((self.content, below))).digest()


def in_order(path: str) -> list[tuple[int, int, str]]:
    """Sort key of a path: component by component, numbers by value."""
    return [_sort_key(component) for component in path.split("/")]


def _sort_key(component: str) -> tuple[int, int, str]:
    """Sort key of a component: numbers by value, then everything else as text."""
    number = component.isascii() and component.isdigit()
    if number:
        return (0, int(component), component)
    return (1, 0, component)
