"""Replies of models as typed values, and their votes.

One `Reply` class gives the format instructions of a prompt and the JSON schema (`microagents.replies.reply_forms`), the parser of the
answer (`microagents.replies.parsing`), and the vote.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec import Struct, StructMeta, structs

from microagents.base.errors import InvalidDefinition
from microagents.base.messages import register
from microagents.base.user_code import called, mistyped
from microagents.replies.reply_fields import fields_of, has_prose, mixes_numbers, voted_fields
from microagents.replies.vote_values import composed, hashable

A = TypeVar("A", bound="Reply")


ProseByTool = Mapping[str, Collection[str]]
"""By the name of a tool, its arguments that are declared as `Prose`."""


NO_PROSE: ProseByTool = MappingProxyType({})


class _ReplyClass(StructMeta):
    """Class of reply classes. msgspec knows the options of a class only after ``__init_subclass__``."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> _ReplyClass:
        made = super().__new__(cls, name, bases, namespace, **options)
        if made.__struct_config__.array_like:
            raise InvalidDefinition(
                f"{name} is array_like, so its JSON would name no field; leave array_like out, or put it on a field's type"
            )
        if "vote" in made.__struct_fields__:
            raise InvalidDefinition(
                f"{name} has a field called vote, but replies are compared by their method vote(); give the field another name, and "
                'its name in JSON beside it: vote_: str = msgspec.field(name="vote")'
            )
        return made


class Reply(Struct, frozen=True, kw_only=True, metaclass=_ReplyClass):
    """Base class of replies; subclasses declare typed fields for the model to fill in.

    The JSON schema of a subclass, docstring included, is part of the digest of its questions. After a change, even of the docstring, a
    journal takes the same question for another one.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        register(cls)

    def vote(self) -> Hashable:
        """Return the value by which replies are compared with ``==``.

        By default all fields that are not marked `Unvoted`.

        Numbers of different types (``1``, ``True``, ``1.0``) are different votes if a field accepts more than one of these types.
        """
        return hashable(_voted(type(self))(self))


def derived(base: type[A], reply: type[Reply], kind: str, annotations: dict[str, Any], **body: Any) -> type[A]:
    """Make a class of replies from another one, at the address ``REPLY.kind``; see `base.messages.make_on_demand`."""
    body |= {"__module__": reply.__module__, "__qualname__": f"{reply.__qualname__}.{kind}", "__doc__": base.__doc__}
    body["__annotations__"] = annotations
    made: Any = _ReplyClass(f"{reply.__name__}{base.__name__}", (base,), body, frozen=True, kw_only=True)
    found: type[A] = made
    return found


class CheckedReply(Reply, frozen=True):
    """A reply whose parts must fit together. One whose parts do not gets a red flag."""

    def flaw(self) -> str | None:
        """Name the red flag of a reply whose parts do not fit together; None for none."""
        return None

    def without_prose(self, prose: ProseByTool) -> CheckedReply:  # noqa: ARG002 - for replies with calls of tools
        """Return the reply without the arguments of its calls that are declared as prose; by default itself."""
        return self

    def text_that_differs(self, other: CheckedReply) -> str:  # noqa: ARG002 - as above
        """Name the only argument in which another reply differs, if it is a text in both; else, and by default, nothing."""
        return ""


def vote_of(reply: Reply, prose: ProseByTool = NO_PROSE) -> Hashable:
    """Return the vote of a reply, checked. Arguments of its calls that are declared as prose are left out."""
    if prose and isinstance(reply, CheckedReply):
        reply = reply.without_prose(prose)
    kind = type(reply)
    if kind.vote is Reply.vote:  # no code of a user's: this runs for every vote
        vote = hashable(_voted(kind)(reply))
        if has_prose(kind):
            return composed(vote)
        return vote
    own: Hashable = called(reply.vote)
    try:
        hash(own)
    except Exception:  # noqa: BLE001 - a user's __hash__ may raise anything
        raise mistyped(reply.vote, own, "a value that has a hash") from None
    return composed(own)


def differs(reply: Reply, name: str, right: object) -> bool:
    """Return whether a field of a reply has another value than the right one, which the reply's own checks may change first."""
    if hashable(getattr(reply, name)) == hashable(right):
        return False
    try:
        put = structs.replace(reply, **{name: right})
    except (ValueError, TypeError):  # it does not go with the other fields
        return True
    if type(reply).vote is not Reply.vote:
        return put.vote() != reply.vote()
    return hashable(getattr(put, name)) != hashable(getattr(reply, name))


@lru_cache(maxsize=256)
def _voted(reply: type[Reply]) -> Callable[[Reply], object]:
    names = voted_fields(reply)
    if not names:
        raise InvalidDefinition(
            f"add a field that is not Unvoted to {reply.__qualname__}, or override vote(): it has no field to vote on"
        )
    mixed = [each.name for each in fields_of(reply) if each.name in names and mixes_numbers(each.type)]
    if not mixed:
        return attrgetter(*names)
    return lambda voter: tuple([hashable(getattr(voter, name), typed=name in mixed) for name in names])
