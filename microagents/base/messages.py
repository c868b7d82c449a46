"""Typed messages between roles. Every message class names the type of its reply."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, ClassVar, Generic, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Struct

from microagents.base.errors import InvalidDefinition
from microagents.base.trust import check_import

R = TypeVar("R")
C = TypeVar("C")

_named: dict[str, type] = {}
"""Classes by their address in envelopes. A later definition at the same address replaces an earlier one, as in a module."""
_resolved: dict[tuple[str, type], Any] = {}
_makers: dict[str, Callable[[Any, str], type]] = {}
"""See `make_on_demand`."""


def address_of(named: type) -> str:
    """Return the address of a class, ``module:qualname``."""
    return f"{named.__module__}:{named.__qualname__}"


def register(named: type) -> None:
    """Register a class under its address in this process."""
    _named[address_of(named)] = named
    _resolved.clear()


def _imported(address: str) -> object:
    module, _, qualname = address.partition(":")
    check_import(module, address)
    found: object = import_module(module)
    for name in qualname.split("."):
        kind, _, rest = name.partition("_")
        if kind in _makers and not hasattr(found, name):
            found = _makers[kind](found, rest)
        else:
            found = getattr(found, name)
    return found


def make_on_demand(kind: str, maker: Callable[[Any, str], type]) -> None:
    """Let classes be made from others when their address is resolved: ``Step.rollout_8`` by the maker of ``rollout``."""
    _makers[kind] = maker


def resolve(address: str, base: type[C]) -> type[C]:
    """Find the class at an address.

    Raises:
        InvalidDefinition: this process cannot import the class, or it is not a subclass of ``base``.
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
            raise InvalidDefinition(
                f"{address!r} cannot be imported here ({error}); define it in a module that every process can import"
            ) from None
    if not (isinstance(found, type) and issubclass(found, base)):
        raise InvalidDefinition(f"{address!r} must be a {base.__name__}, not {found!r:.100}")
    return found


class Message(Struct, frozen=True, kw_only=True):
    """Base class of `Request` and `Stream`."""

    route_by: ClassVar[str | None] = None
    """Field by which replicas are chosen: equal values reach the same replica. None: any replica."""
    as_json: ClassVar[bool] = False
    """Whether it travels as JSON, and its reply too: for integers of any size, and for JSON that is not read on the way (`Raw`)."""
    replies_after_tells: ClassVar[bool] = False
    """Whether a reply to another process waits until the one-way messages that were sent before it have arrived. If the process of the
    handler dies, its caller, who does not ask again, may then rely on them."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        register(cls)


class Request(Message, Generic[R], frozen=True, kw_only=True):
    """A message with one reply of type R. Its class decides which role handles it."""


class Batched(Request[None], frozen=True, kw_only=True):
    """A one-way message that waits for others to the same replica when it has to leave its process: they travel as one."""

    @classmethod
    def together(cls, waiting: Sequence[Batched]) -> Request[None]:
        """Make one message of several, in the order in which they were sent."""
        raise NotImplementedError


class Stream(Message, Generic[R], frozen=True, kw_only=True):
    """A message that is answered by any number of items of type R."""


@lru_cache(maxsize=4096)
def reply_type(message: type[Message]) -> Any:
    """Read the type R that ``class M(Request[R])`` or ``class M(Stream[R])`` names; it must be one that can be resolved."""
    reply = _named_reply(message, {})
    if reply is None or isinstance(reply, TypeVar):
        raise InvalidDefinition(
            f"{message.__qualname__} does not name its reply; write class {message.__name__}(Request[ReplyType])"
        )
    # `get_type_hints` resolves forward references ("Entry") in annotations only, so an annotation is made of the reply.
    holder = type("_", (), {"__annotations__": {"reply": reply}, "__module__": message.__module__})
    try:
        return get_type_hints(holder)["reply"]
    except (NameError, AttributeError) as error:
        raise InvalidDefinition(
            f"the reply of {message.__qualname__} cannot be resolved: {error}; define messages and replies at module level"
        ) from None


def _named_reply(kind: type, bound: Mapping[Any, Any]) -> Any:
    """Return the type that a class gives `Request` or `Stream`, also through generic classes of one's own; None for none."""
    for base in kind.__dict__.get("__orig_bases__", kind.__bases__):
        origin: Any = get_origin(base) or base
        if isinstance(origin, type) and issubclass(origin, Request | Stream):
            given = [_substituted(one, bound) for one in get_args(base)]
            if origin in (Request, Stream):
                if not given:
                    return None
                return given[0]
            parameters = getattr(origin, "__parameters__", ())
            return _named_reply(origin, dict(zip(parameters, given, strict=False)))
    return None


def _substituted(hint: Any, bound: Mapping[Any, Any]) -> Any:
    if isinstance(hint, TypeVar):
        return bound.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    if parameters:
        return hint[tuple([bound.get(each, each) for each in parameters])]
    return hint
