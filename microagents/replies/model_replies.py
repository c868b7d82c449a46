"""Models of pydantic in the place of reply classes: ``RowTask[Cleaned]``, whose methods take and give instances of the model."""

from __future__ import annotations

from functools import lru_cache
from types import new_class
from typing import Annotated, Any, ClassVar, get_type_hints

from msgspec import UNSET, Meta, structs
from pydantic import BaseModel

from microagents.base.errors import InvalidDefinition
from microagents.base.messages import make_on_demand
from microagents.base.plain_values import field_names, values_of, write_value
from microagents.replies import pydantic_types
from microagents.replies.reply import Reply
from microagents.replies.reply_fields import Unvoted


class ModelReply(Reply, frozen=True):
    """The fields of a model, which reads and checks them."""

    __stands_for__: ClassVar[type[BaseModel]]

    def __post_init__(self) -> None:
        """Let the model read the fields.

        Raises:
            ValueError: it refuses them.
        """
        read = self.users_value()
        for name, field in zip(self.__struct_fields__, type(read).model_fields, strict=True):
            structs.force_setattr(self, name, getattr(read, field))

    def users_value(self) -> BaseModel:
        """Return the instance of the model."""
        given = values_of(self).items()
        found = {name: value for name, value in given if value is not UNSET}
        value: BaseModel = pydantic_types.read(self.__stands_for__, write_value(found))
        return value

    @classmethod
    def standing_for(cls, value: Any) -> ModelReply:
        """Return the reply of an instance of the model."""
        fields = cls.__stands_for__.model_fields
        return cls(**{name: getattr(value, field) for name, field in zip(cls.__struct_fields__, fields, strict=True)})


@lru_cache(maxsize=256)
def reply_of(model: type[BaseModel], _number: int = 0) -> type[ModelReply]:
    """Make the reply class of a model.

    Raises:
        InvalidDefinition: the model has no fields by name, or one of a type that JSON lacks, such as bytes.
    """
    try:
        schema = pydantic_types.json_schema(model)
    except NotImplementedError:
        raise InvalidDefinition(
            f"a field of {model.__qualname__} has a type that JSON lacks; give it another"
        ) from None
    defs = schema["$defs"]
    whole = defs.get(schema.get("$ref", "").rpartition("/")[2], schema)
    if "properties" not in whole:
        raise InvalidDefinition(f"a reply has fields, but {model.__qualname__} has none; make it a field of a model")
    annotations, body, renamed = dict[str, Any](), dict[str, Any](), dict[str, str]()
    for (field, info), (written, part) in zip(model.model_fields.items(), whole["properties"].items(), strict=True):
        if "binary" in [each.get("format") for each in (part, *part.get("anyOf", ()), part.get("items", {}))]:
            raise InvalidDefinition(f"{model.__qualname__}.{field} holds bytes, which JSON lacks; make it a text")
        name = f"{field}_" if hasattr(Reply, field) else field
        extra = {"voted": Unvoted not in info.metadata}
        annotations[name] = Annotated[Any, Meta(extra_json_schema={**part, "$defs": defs}, extra=extra)]
        renamed[name] = written
        if not info.is_required():
            body[name] = UNSET
    body |= {"__annotations__": annotations, "__stands_for__": model, "__doc__": model.__doc__}
    body |= {"__module__": model.__module__, "__qualname__": f"{model.__qualname__}.reply_{_number}"}
    options = {"frozen": True, "kw_only": True, "rename": renamed}
    options["forbid_unknown_fields"] = model.model_config.get("extra") == "forbid"
    return new_class(model.__name__, (ModelReply,), options, lambda made: made.update(body))


make_on_demand("reply", lambda model, number: reply_of(model, int(number)))


@lru_cache(maxsize=256)
def hints_of(reply: type[Reply]) -> dict[str, Any]:
    """Return the types of the fields of a reply class, as its model declares them if it stands for one."""
    declaring = getattr(reply, "__stands_for__", reply)
    hints = get_type_hints(declaring, include_extras=True)
    names = zip(reply.__struct_fields__, field_names(declaring), strict=True)
    return {name: hints[field] for name, field in names}


def as_reply(value: Reply | BaseModel) -> Reply:
    """Return a reply as it is, or make one of an instance of a model."""
    if isinstance(value, Reply):
        return value
    return reply_of(type(value)).standing_for(value)
