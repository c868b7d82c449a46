"""Round trips: a value that a journal keeps as JSON is read back at once, and refused by name if it is not equal then."""

from __future__ import annotations

import marshal
import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Generic, Literal, TypeVar

import msgspec

from microagents.base.errors import InvalidDefinition
from microagents.base.plain_values import field_names, in_python, read_by_pydantic, write_value
from microagents.base.struct_types import LEARNING
from microagents.base.user_code import shown

T = TypeVar("T")
_WITHOUT_REFERENCES = 2
"""The last version of `marshal` in which the bytes of an object do not depend on who else refers to it."""
_UNWRITABLE = (TypeError, ValueError, OverflowError, RecursionError)
"""Errors of msgspec at values that JSON lacks; a text with half of a surrogate pair is a ValueError."""


class NotGivenBack(ValueError):
    """A journal cannot give a value back; the message names the place in the value, and the part there."""


class RoundTrip(Generic[T]):
    """Writes values of a type as JSON, and reads each back.

    Args:
        kind: the type, as declared.
        name: the name of a value, such as ``state``, with which places in it begin.

    Raises:
        InvalidDefinition: msgspec cannot read the type.
    """

    def __init__(self, kind: Any, name: str) -> None:
        self._name = name
        order: Literal["deterministic"] | None = "deterministic" if _has_sets(kind) else None
        self.encode = msgspec.json.Encoder(order=order, enc_hook=write_value).encode
        """Write a value: dicts in their order, since code may depend on it. Beside sets, which have none, all is sorted."""
        self._decode: Callable[[bytes], T] = _decoder(kind)

    def decode(self, written: bytes) -> T:
        """Read a value.

        Raises:
            NotGivenBack: it is not of the type.
        """
        try:
            return self._decode(written)
        except (msgspec.MsgspecError, *_UNWRITABLE) as error:
            raise NotGivenBack(f"{self._name} cannot be read back: {error}".replace("`$", f"`{self._name}")) from None

    def __call__(self, value: T) -> tuple[bytes, T]:
        """Write a value and read it back. Work that goes on with the second is the same before and after a journal.

        It shares no part with another value, for example.

        Raises:
            NotGivenBack: the two are not equal.
        """
        try:
            written = self.encode(value)
        except _UNWRITABLE as error:
            raise NotGivenBack(
                lost_part(value, self._name, self.encode) or f"{self._name} cannot be written: {error}"
            ) from None
        try:
            read = self.decode(written)
        except NotGivenBack as error:
            raise NotGivenBack(lost_part(value, self._name, self.encode) or str(error)) from None
        if _are_identical(value, read):
            return written, read
        if (found := difference(value, read, self._name)) is not None:
            raise NotGivenBack(found)
        return self.encode(read), read


def lost_part(value: object, at: str, encode: Callable[[Any], bytes] = msgspec.json.encode) -> str | None:
    """Name the first part of a value that JSON lacks, such as infinity, or a text with half of a surrogate pair; None for none."""
    for place, part in _parts(value, at):
        if (found := lost_part(part, place, encode)) is not None:
            return found
    if isinstance(value, float) and not math.isfinite(value):
        return f"{at} is {value!r}, which JSON lacks"
    try:
        encode(value)
    except _UNWRITABLE as error:
        return f"{at} is {shown(value)}, which JSON lacks ({error})"
    return None


def difference(value: Any, read: Any, at: str) -> str | None:
    """Describe the first difference between a value and the same read back. Types count, since code may depend on them.

    A number or an array of numpy counts as the value of Python that stands for it.
    """
    value = in_python(value)
    kind, other = type(value), type(read)
    # A whole number is also a number: where a float is declared it comes back as one, and equal.
    if kind is not other and not (kind is int and other is float and value == read):
        return _differing(value, read, at)
    parts, others = dict(_parts(value, at)), dict(_parts(read, at))
    if parts.keys() != others.keys():
        return _differing(value, read, at)
    for place, part in parts.items():
        if (found := difference(part, others[place], place)) is not None:
            return found
    if parts or value == read:
        return None
    return _differing(value, read, at)


def _are_identical(value: Any, read: Any) -> bool:
    """Compare values and types in C, a hundredth of the time of `difference`, which names the place and forgives an order of sets."""
    try:
        return marshal.dumps(value, _WITHOUT_REFERENCES) == marshal.dumps(read, _WITHOUT_REFERENCES)
    except ValueError:  # a class of one's own
        return repr(value) == repr(read) and value == read


def _differing(value: object, read: object, at: str) -> str:
    return f"{at} is {shown(value)}, and would come back as {shown(read)}"


def _parts(value: Any, at: str) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a value with their places; none of a scalar or a set."""
    if isinstance(value, dict):
        yield from [(f"{at}[{key!r}]", item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        yield from [(f"{at}[{number}]", item) for number, item in enumerate(value)]
    else:
        yield from [(f"{at}.{name}", getattr(value, name)) for name in field_names(type(value))]


@lru_cache(maxsize=256)
def _has_sets(kind: Any) -> bool:
    try:
        return b'"uniqueItems":true' in msgspec.json.encode(msgspec.json.schema(kind))
    except TypeError:  # a type of its own, which has no schema and no sets that can be read
        return False


def _decoder(kind: Any) -> Callable[[bytes], Any]:
    try:
        with LEARNING:
            return msgspec.json.Decoder(kind, dec_hook=read_by_pydantic).decode
    except TypeError as error:
        name = getattr(kind, "__qualname__", repr(kind))
        raise InvalidDefinition(
            f"a {name} cannot be read back from the journal: {error}; use field types that JSON can hold"
        ) from None
