"""What roles say to each other: typed messages, each of which names the type of its reply."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from typing import Any, ClassVar, Generic, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Struct

from microagents.errors import InvalidDefinition

R = TypeVar("R")
C = TypeVar("C")

_named: dict[str, type] = {}
"""Every class that may be named in an envelope, by its address; the last definition wins, as with names of a module."""
_resolved: dict[tuple[str, type], Any] = {}


_KEPT_ADDRESSES = {
    "microagents.problems.questions:Choice": "microagents.decomposition:Choice",
    "microagents.problems.questions:Decomposition": "microagents.decomposition:Decomposition",
}
"""Classes that moved, and their addresses before. A question's digest contains the address of its reply class, so journals, digests and
simulated draws depend on it."""
_MOVED_TO = {before: now for now, before in _KEPT_ADDRESSES.items()}


def address_of(named: type) -> str:
    """Address of a class in envelopes and journals: ``module:qualname``, or the one it had before it moved."""
    address = f"{named.__module__}:{named.__qualname__}"
    return _KEPT_ADDRESSES.get(address, address)


def register(named: type) -> None:
    """Make a class known under its address in this process."""
    _named[address_of(named)] = named
    _resolved.clear()


def _imported(address: str) -> object:
    module, _, qualname = _MOVED_TO.get(address, address).partition(":")
    found: object = import_module(module)
    for name in qualname.split("."):
        found = getattr(found, name)
    return found


def resolve(address: str, base: type[C]) -> type[C]:
    """The class that an address names, which must be a subclass of ``base``.

    Raises:
        InvalidDefinition: when this process cannot import it, or when it is something else.
    """
    found: type[C] | None = _resolved.get((address, base))
    if found is None:
        found = _resolved[address, base] = _checked(address, base)
    return found


def _checked(address: str, base: type[C]) -> type[C]:
    found: object = _named.get(address)
    if found is None:
        try:
            found = _imported(address)
        except (ImportError, AttributeError, ValueError) as error:
            raise InvalidDefinition(f"{address!r} cannot be imported here ({error}); put the class into a module of its own") from None
    if not (isinstance(found, type) and issubclass(found, base)):
        raise InvalidDefinition(f"{address!r} is not a {base.__name__}")
    return found


class Message(Struct, frozen=True, kw_only=True):
    """What `Request` and `Stream` share."""

    route_by: ClassVar[str | None] = None
    """Field whose equal values reach the same replica of a role; None: any replica."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        register(cls)


class Request(Message, Generic[R], frozen=True, kw_only=True):
    """A message with one reply of type R; the message's class is its address."""


class Stream(Message, Generic[R], frozen=True, kw_only=True):
    """A message answered by any number of items of type R, then an end."""


@lru_cache(maxsize=4096)
def reply_type(message: type[Message]) -> Any:
    """The type R that ``class M(Request[R])`` or ``class M(Stream[R])`` names.

    Raises:
        InvalidDefinition: when it names none.
    """
    for base in _original_bases(message):
        if get_origin(base) in (Request, Stream):
            (reply,) = get_args(base)
            if not isinstance(reply, TypeVar):
                # The way to a forward reference ("Entry") is the one that typing takes for every other annotation.
                holder = type("_", (), {"__annotations__": {"reply": reply}, "__module__": message.__module__})
                try:
                    return get_type_hints(holder)["reply"]
                except (NameError, AttributeError) as error:
                    raise InvalidDefinition(
                        f"the reply of {message.__qualname__} is not there: {error}; define messages and replies at the top of a module"
                    ) from None
    raise InvalidDefinition(f"{message.__qualname__} does not name its reply; write class {message.__name__}(Request[ReplyType])")


def _original_bases(message: type) -> Iterator[object]:
    for parent in message.__mro__:
        yield from parent.__dict__.get("__orig_bases__", ())
