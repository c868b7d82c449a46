"""The fields of a reply class: their types, and which of them cast the vote."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Union, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct, structs
from msgspec import inspect as types

from microagents.base.errors import InvalidDefinition

if TYPE_CHECKING:
    from microagents.replies.reply import Reply


Unvoted = Meta(extra={"voted": False})
"""Marks a field without a vote, as in ``Annotated[str, Unvoted]``. Replies that differ only there cast the same vote."""


Prose = Annotated[str, Unvoted]
"""Text whose wording casts no vote: a field of a reply, an argument of a tool, a field of an agent's result."""


def voted_fields(reply: type[Reply]) -> list[str]:
    """List the fields that are not marked `Unvoted`, in their order."""
    return [field.name for field in fields_of(reply) if is_voted(field.type)]


@lru_cache(maxsize=256)
def prose_fields(reply: type[Reply]) -> frozenset[str]:
    """Name the voted fields that may contain text of a model's own: two values may then mean the same without being equal."""
    voted = [field for field in fields_of(reply) if is_voted(field.type)]
    found = [each.name for each in voted if any(isinstance(of, _WITH_TEXT) for of in types_in(each.type))]
    return frozenset(found)


def has_prose(reply: type[Reply]) -> bool:
    """Return whether a vote may contain text of a model's own."""
    return bool(prose_fields(reply))


_WITH_TEXT = types.StrType | types.DictType | types.AnyType | types.CustomType


def types_in(*infos: types.Type) -> list[types.Type]:
    """List types, and all that they are made of: each once, since a type may contain itself."""
    found = [*infos]
    for info in found:  # which grows
        found += [part for part in _parts(info) if not any(part is each for each in found)]
    return found


def _parts(info: types.Type) -> Iterable[types.Type]:
    """List the types that a type is made of."""
    for value in structs.astuple(info):
        for part in value if isinstance(value, tuple) else (value,):
            inner = getattr(part, "type", part)
            if isinstance(inner, types.Type):
                yield inner


def mixes_numbers(info: types.Type) -> bool:
    """Return whether values of a type may be equal although they are different JSON: ``1``, ``true`` and ``1.0``."""
    kinds = set(map(type, types_in(info)))
    return len(kinds & _NUMBERS) > 1 or not kinds.isdisjoint((types.AnyType, types.CustomType))


_NUMBERS = {types.BoolType, types.IntType, types.FloatType, types.DecimalType, types.EnumType, types.LiteralType}
"""Types that may hold numbers."""


def is_voted(info: types.Type) -> bool:
    """Return whether values of a type cast a vote: it is not marked `Unvoted`, and no union of types that all are."""
    match info:
        case types.Metadata():
            return (info.extra or {}).get("voted", True) and is_voted(info.type)
        case types.UnionType():  # `Prose | None`
            return all(map(is_voted, info.types))
    return True


def unvoted_in(kind: type[Struct]) -> tuple[str, ...]:
    """List the fields of a struct that are marked `Unvoted`, as JSON names them."""
    info = types.type_info(kind)
    assert isinstance(info, types.StructType)
    return tuple(field.encode_name for field in info.fields if not is_voted(field.type))


def is_unvoted(annotation: object) -> bool:
    """Return whether an annotation is marked `Unvoted`, or a union with a member that is."""
    if get_origin(annotation) in (Union, UnionType):
        return any(map(is_unvoted, get_args(annotation)))
    return any(isinstance(each, Meta) and each == Unvoted for each in getattr(annotation, "__metadata__", ()))


def fields_of(reply: type[Reply]) -> tuple[types.Field, ...]:
    """List the fields of a reply class, as msgspec describes them."""
    return struct_info(reply).fields


@lru_cache(maxsize=256)
def struct_info(reply: type[Reply]) -> types.StructType:
    """Describe a reply class as msgspec sees it.

    Raises:
        InvalidDefinition: msgspec cannot read its fields, its replies can be changed, or it has checks that msgspec leaves out.
    """
    try:
        info = types.type_info(reply)
    except (TypeError, NameError) as error:
        raise InvalidDefinition(
            f"the fields of {reply.__qualname__} cannot be read from JSON: {error}; a model of pydantic may have them"
        ) from None
    assert isinstance(info, types.StructType)
    if not reply.__struct_config__.frozen:
        raise InvalidDefinition(
            f"write class {reply.__name__}(Reply, frozen=True): {reply.__qualname__} can be changed after its vote"
        )
    _refuse_unread(reply, info)
    return info


def _refuse_unread(reply: type[Reply], info: types.StructType) -> None:
    """Refuse checks of pydantic outside of its models: msgspec would leave them out without a word."""
    for part in types_in(info):
        kind = getattr(part, "cls", Struct)
        if isinstance(part, types.CustomType | types.EnumType) or kind is Struct:
            continue
        checks = [hasattr(kind, "__pydantic_validator__")]
        for hint in get_type_hints(kind, include_extras=True).values():
            checks += [type(each).__module__.startswith(_CHECKING) for each in getattr(hint, "__metadata__", ())]
        if any(checks):
            raise InvalidDefinition(
                f"make {kind.__qualname__} a BaseModel: {reply.__qualname__} would leave its checks of pydantic out; or write them as "
                "Annotated[..., msgspec.Meta(ge=0)] or the like"
            )


_CHECKING = ("pydantic", "annotated_types")
"""Modules of the checks that only models of pydantic make."""
