"""Digests of what was decided: equal for equal decisions, whatever the timing, the runtime or the number of replicas."""

from __future__ import annotations

from hashlib import sha256

import msgspec

_pack = msgspec.msgpack.Encoder().encode


class ChainDigest:
    """Decisions taken in one order: d_i = SHA-256(d_(i-1), path, what was decided)."""

    __slots__ = ("_last",)  # a run may have a hundred thousand of them

    def __init__(self, last: bytes = b"") -> None:
        self._last = last

    def add(self, path: str, *decided: object) -> None:
        """Add the next decision; ``decided`` is made of values that msgpack knows."""
        self._last = sha256(_pack((self._last, path, decided))).digest()

    def digest(self) -> bytes:
        """The digest of all that was added."""
        return self._last


class TreeDigest:
    """Decisions taken in any order: a tree over the components of their paths, each node hashing itself and its children in order."""

    def __init__(self) -> None:
        self._decided: dict[str, tuple[object, ...]] = {}

    def add(self, path: str, *decided: object) -> None:
        """Add a decision; a path that was added before is replaced."""
        self._decided[path] = decided

    def digest(self) -> bytes:
        """The digest of all that was added."""
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
        ordered = sorted(self.children, key=_place_in_order)
        return sha256(_pack((self.content, [self.children[component].digest() for component in ordered]))).digest()


def in_order(path: str) -> list[tuple[int, int, str]]:
    """What paths are sorted by: component by component, numbers by value."""
    return [_place_in_order(component) for component in path.split("/")]


def _place_in_order(component: str) -> tuple[int, int, str]:
    """Numbers by value, before all else."""
    number = component.isascii() and component.isdigit()
    return (0, int(component), component) if number else (1, 0, component)
