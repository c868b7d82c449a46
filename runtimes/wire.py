"""Envelopes between dispatchers, and their encoding.

A message travels as msgpack with the address of its class, an error as the address of its class with its ``args``.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw, Struct

from microagents.base.errors import MicroagentsError, RoleFailed
from microagents.base.messages import address_of, resolve

CODEC_ERRORS = (TypeError, OverflowError, ValueError, RecursionError, msgspec.MsgspecError)
"""Errors of `pack` and `unpack` for a value that does not fit its type, or that msgpack cannot hold."""
MAX_ITEMS = 256
"""Items of a stream that may be sent before the reader asks for `More`, so that a slow reader fills no memory."""


class Sent(Struct, frozen=True, tag="s"):
    """A message to a replica of a role."""

    call: int | None
    """The caller's number for the call; None for a one-way message."""
    replica: str
    message: str
    """Address of the message's class."""
    body: Raw


class Replied(Struct, frozen=True, tag="r"):
    """Reply to a request."""

    call: int
    body: Raw


class Item(Struct, frozen=True, tag="i"):
    """One item of a stream."""

    call: int
    body: Raw


class Finished(Struct, frozen=True, tag="e"):
    """End of a stream, or of a cancelled call."""

    call: int


class Failed(Struct, frozen=True, tag="f"):
    """Error of a handler."""

    call: int
    error: str
    """Address of the error's class."""
    args: list[Any]


class Cancelled(Struct, frozen=True, tag="c"):
    """Caller's request to cancel a call."""

    call: int


class More(Struct, frozen=True, tag="m"):
    """Reader's permission to send more items of a stream."""

    call: int
    items: int
    """Number of additional items."""


Envelope = Sent | Replied | Item | Finished | Failed | Cancelled | More

_encoder = msgspec.msgpack.Encoder(decimal_format="string")
_batches: msgspec.msgpack.Decoder[list[Envelope]] = msgspec.msgpack.Decoder(list[Envelope])
_decoders: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


def pack(value: object, *, as_json: bool = False) -> Raw:
    """Encode one value, with ``as_json`` as JSON in a string of bytes. msgpack may not support its type or its size."""
    packed = msgspec.json.encode(value) if as_json else value
    return Raw(_encoder.encode(packed))


def unpack(body: Raw, of: Any, *, as_json: bool = False) -> Any:
    """Decode one value that was packed in the same way, and check it against a type.

    Raises:
        msgspec.ValidationError: the value has another type.
    """
    if as_json:
        return msgspec.json.decode(unpack(body, bytes), type=of)
    decoder = _decoders.get(of)
    if decoder is None:
        decoder = _decoders[of] = msgspec.msgpack.Decoder(of)
    return decoder.decode(body)


def encode(batch: list[Envelope]) -> bytes:
    """Encode a batch of envelopes for a link."""
    return _encoder.encode(batch)


def decode(batch: bytes) -> list[Envelope]:
    """Decode a batch of envelopes from a link."""
    return _batches.decode(batch)


def pack_error(call: int, error: MicroagentsError) -> Failed:
    """Build the envelope that carries an error to the caller."""
    return Failed(call, address_of(type(error)), [_sendable(arg) for arg in error.args])


def _sendable(arg: object) -> object:
    """Return an argument of an error itself if msgpack can carry it, else its text."""
    if isinstance(arg, str | int | float | None):
        with suppress(OverflowError, UnicodeEncodeError):
            pack(arg)
            return arg
    try:
        return repr(arg).encode("ascii", "backslashreplace").decode()
    except Exception:  # noqa: BLE001 - a user's __repr__ may raise anything
        return f"<{type(arg).__name__}>"


def unpack_error(envelope: Failed) -> MicroagentsError:
    """Build the error that an envelope carries; a `RoleFailed` if its class cannot be found or built here."""
    try:
        error: MicroagentsError = resolve(envelope.error, MicroagentsError)(*envelope.args)
    except Exception as unknown:  # noqa: BLE001 - the constructor of a user's error class may raise anything
        return RoleFailed(envelope.error, "its caller", f"{envelope.args!r:.200} ({type(unknown).__name__})")
    return error
