"""Classes that msgspec learns at their first use: two threads that do so at once would end the process, so one at a time does."""

from __future__ import annotations

from collections.abc import Iterator
from threading import RLock
from weakref import WeakSet

from msgspec import Struct, json

LEARNING = RLock()
"""Held while a decoder is built of classes that another thread may use."""
_learned: WeakSet[type[Struct]] = WeakSet()


def learn_all() -> None:
    """Let msgspec learn all classes that there are so far, before a thread works with them."""
    with LEARNING:
        for kind in _below(Struct):
            if kind not in _learned:
                try:
                    json.Decoder(kind)
                except NameError:  # its annotations name what is not there yet
                    continue
                except Exception:  # noqa: BLE001, S110 - it is not read from JSON, whatever its annotations say
                    pass
                _learned.add(kind)


def _below(kind: type[Struct]) -> Iterator[type[Struct]]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)
