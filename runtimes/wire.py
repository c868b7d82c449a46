"""Envelopes <-> bytes. A message travels as msgpack under the address of its class; an error as its class and its ``args``."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw, Struct

from microagents.errors import MicroagentsError, RoleFailed
from microagents.messages import address_of, resolve


class Sent(Struct, frozen=True, tag="s"):
    """A message to a replica of a role. ``call`` is the asker's number for it; None when nobody awaits a reply."""

    call: int | None
    seat: str
    message: str
    body: Raw


class Replied(Struct, frozen=True, tag="r"):
    """The reply to a request."""

    call: int
    body: Raw


class Item(Struct, frozen=True, tag="i"):
    """One item of a stream."""

    call: int
    body: Raw


class Finished(Struct, frozen=True, tag="e"):
    """The end of a stream."""

    call: int


class Failed(Struct, frozen=True, tag="f"):
    """A handler raised."""

    call: int
    error: str
    args: list[Any]


class Cancelled(Struct, frozen=True, tag="c"):
    """Nobody awaits this call any more."""

    call: int


class More(Struct, frozen=True, tag="m"):
    """So many more items of a stream may be sent."""

    call: int
    items: int


Envelope = Sent | Replied | Item | Finished | Failed | Cancelled | More
CallKey = tuple[str, str, bytes]
"""What was asked, whoever asks: seat, message, body."""

_encoder = msgspec.msgpack.Encoder(decimal_format="string")
_batches: msgspec.msgpack.Decoder[list[Envelope]] = msgspec.msgpack.Decoder(list[Envelope])
_decoders: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


def pack(value: object) -> Raw:
    """A value as it travels.

    Raises:
        TypeError, OverflowError, ValueError: when it is of a type, or of a size, that msgpack does not know.
    """
    return Raw(_encoder.encode(value))


def unpack(body: Raw, of: Any) -> Any:
    """A value that travelled, checked against its type.

    Raises:
        msgspec.ValidationError: when it is not of that type.
    """
    decoder = _decoders.get(of)
    if decoder is None:
        decoder = _decoders[of] = msgspec.msgpack.Decoder(of)
    return decoder.decode(body)


def encode(batch: list[Envelope]) -> bytes:
    """A batch of envelopes for a link."""
    return _encoder.encode(batch)


def decode(batch: bytes) -> list[Envelope]:
    """The envelopes of a batch."""
    return _batches.decode(batch)


def failed(call: int, error: MicroagentsError) -> Failed:
    """An error for the asker of a call."""
    return Failed(call, address_of(type(error)), [_fit(arg) for arg in error.args])


def _fit(arg: object) -> object:
    """What an error carries, as it is where it can travel, else as text."""
    if isinstance(arg, str | int | float | None):
        with suppress(OverflowError, UnicodeEncodeError):
            pack(arg)
            return arg
    try:
        return repr(arg).encode("ascii", "backslashreplace").decode()
    except Exception:  # noqa: BLE001 - a user's __repr__ may raise anything
        return f"<{type(arg).__name__}>"


def error_of(envelope: Failed) -> MicroagentsError:
    """The error that a handler raised."""
    try:
        error: MicroagentsError = resolve(envelope.error, MicroagentsError)(*envelope.args)
    except Exception as unknown:  # noqa: BLE001 - a user's own error class may raise anything when it is made
        return RoleFailed(envelope.error, "its asker", f"{envelope.args!r:.200} ({type(unknown).__name__})")
    return error
