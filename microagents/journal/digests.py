"""Digests of decisions. Equal decisions give equal digests, independent of timing, runtime and number of replicas."""

from __future__ import annotations

from hashlib import sha256

import msgspec

_pack = msgspec.msgpack.Encoder().encode


class ChainDigest:
    """Digest of decisions that have one order: d_i = SHA-256(d_(i-1), path, decision)."""

    __slots__ = ("_last",)  # a run may have 100,000 inputs with two digests each

    def __init__(self, last: bytes = b"") -> None:
        self._last = last

    def add(self, path: str, *decided: object) -> None:
        """Add the next decision; ``decided`` consists of values that msgpack can encode."""
        self._last = sha256(_pack((self._last, path, decided))).digest()

    def digest(self) -> bytes:
        """The digest of all decisions added so far."""
        return self._last


class TreeDigest:
    """Digest of decisions that arrive in any order: a tree over the components of their paths.

    Each node hashes its own decision and the digests of its children, sorted by component.
    """

    def __init__(self) -> None:
        self._decided: dict[str, tuple[object, ...]] = {}

    def add(self, path: str, *decided: object) -> None:
        """Add a decision, or replace the one at the same path."""
        self._decided[path] = decided

    def digest(self) -> bytes:
        """The digest of all decisions added so far."""
        root = _Node()
        for path, decided in self._decided.items():
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
        return sha256(_pack((self.content, [self.children[component].digest() for component in ordered]))).digest()


def in_order(path: str) -> list[tuple[int, int, str]]:
    """Sort key of a path: component by component, numbers by value."""
    return [_sort_key(component) for component in path.split("/")]


def _sort_key(component: str) -> tuple[int, int, str]:
    """Sort key of a component: numbers by value, then everything else as text."""
    number = component.isascii() and component.isdigit()
    return (0, int(component), component) if number else (1, 0, component)
