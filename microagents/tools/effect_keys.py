"""Keys of effects: digests of run, place, name and values. They survive crashes, and a model has no part in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec

from microagents.base.errors import InvalidUsage
from microagents.base.text_digests import digest_of
from microagents.tools.tool import EffectKey

MAKING = "/making/"
"""Between the path of a call and the number of its making."""

_at: ContextVar[tuple[str, str, object] | None] = ContextVar("_at", default=None)
"""The run, the place and the reply that user code is called for."""


def effect_key(run_id: str, path: str, what: str, value: object) -> EffectKey:
    """Return the key of an effect with these values at a place of a run."""
    asked = msgspec.json.encode([run_id, path, what, value], order="deterministic")
    return EffectKey(digest_of(asked).hex())


def current_effect_key(what: str = "") -> EffectKey:
    """Return the key for an effect of the code that calls this, so that it happens once.

    It is the same whenever the code is called again for the same reply at the same place of the same run, also in another process, after a
    crash and a resume; and in ``verify``, ``advance`` and ``on_decision`` alike. A provider of your own has a key for each sample. Check it
    where the effect is made: hand it on as an idempotency key, or make it the unique key of a row.

    Args:
        what: name of the effect, if one call has several.

    Raises:
        InvalidUsage: it is called elsewhere, or in a thread of your own.
    """
    at = _at.get()
    if at is None:
        raise InvalidUsage(
            "current_effect_key() gives the key of the decision at hand: call it in verify(), advance(), on_decision() or complete() of a "
            "provider; a tool takes a parameter of the type EffectKey"
        )
    run_id, path, value = at
    return effect_key(
        run_id, path, what, msgspec.json.decode(value if isinstance(value, bytes) else msgspec.json.encode(value))
    )


@contextmanager
def keyed_by(run_id: str | None, path: str, value: object) -> Iterator[None]:
    """Mark a block in which user code is called for one reply at one place, by default of the run of the block around it."""
    around = _at.get()
    _at.set((run_id or (around[0] if around else ""), path, value))
    try:
        yield
    finally:
        _at.set(around)  # not by a token: a coroutine that began with its first step continues in another context
