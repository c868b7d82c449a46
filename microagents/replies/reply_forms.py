"""The form of a reply: the instructions in a prompt, its JSON schema, and its JSON, written and read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal, get_type_hints

import msgspec
from msgspec import inspect as types

from microagents.base.errors import InvalidDefinition
from microagents.base.plain_values import number_in, write_value
from microagents.base.struct_types import LEARNING
from microagents.base.text_digests import digest_of
from microagents.replies import pydantic_types
from microagents.replies.json_forms import form_of
from microagents.replies.reply import A, Reply
from microagents.replies.reply_fields import fields_of, is_voted, struct_info, types_in

Format = Literal["lines", "json"]


Reading = Literal["strict", "last"]


HEADS: Mapping[Format, str] = {
    "lines": "Reason first, briefly, if that helps. Then close with the lines below and write nothing after them.",
    "json": "Answer with one JSON object of the form below and write nothing after it.",
}
"""First lines of the format instructions."""


BARE_HEADS: Mapping[Format, str] = {
    "lines": "Write no reasoning. Answer with the lines below and nothing else.",
    "json": "Write no reasoning. Answer with one JSON object of the form below and nothing else.",
}
"""The same for replies without reasoning."""


@lru_cache(maxsize=256)
def instructions(reply: type[Reply], form: Format = "lines", reasoning: bool = True) -> str:  # noqa: FBT001, FBT002 - cached by place
    """Write the format instructions at the end of a prompt: exactly the form that `replies.parsing.parse` accepts."""
    whole = schema(reply)
    root = whole["$defs"][whole["$ref"].rpartition("/")[2]]
    fields, required = root["properties"], root.get("required", ())
    notes = []
    for name, each in fields.items():
        said = [each.get("description")]
        if name not in required:
            said.append("may be left out")
        if any(said):
            notes.append(f"- {name}: {'; '.join(filter(None, said))}")
    if form == "lines":
        rule = (
            "Every value is plain JSON, in the form shown, directly behind its name; no bold, no quotes around a line."
        )
    else:
        rule = "Every value is plain JSON in the form shown."
    return "\n".join([(HEADS if reasoning else BARE_HEADS)[form], "", template_of(reply, form), "", rule, *notes])


def template_of(reply: type[Reply], form: Format) -> str:
    """Write the form of a reply, for a model to fill in."""
    if form == "lines":
        lines = [f"{name} = {wanted}" for name, wanted in forms_of(reply).items()]
        return "\n".join(lines)
    return json_form(reply)


def json_form(reply: type[Reply]) -> str:
    """Write the form of a reply as one JSON object, such as ``{"value": <integer>}``."""
    whole = schema(reply)
    return form_of(whole, whole["$defs"])


def forms_of(reply: type[Reply]) -> dict[str, str]:
    """Write the form of each field of a reply."""
    whole = schema(reply)
    name = whole["$ref"].rpartition("/")[2]
    defs = whole["$defs"]
    return {field: form_of(each, defs, (name,)) for field, each in defs[name]["properties"].items()}


@lru_cache(maxsize=256)
def system_with_instructions(system: str, reply: type[Reply], form: Format, reasoning: bool = True) -> str:  # noqa: FBT001, FBT002
    """Put the format instructions behind a system prompt."""
    return f"{system}\n\n{instructions(reply, form, reasoning)}".lstrip("\n")


@lru_cache(maxsize=256)
def fingerprint(reply: type[Reply]) -> bytes:
    """Digest a reply class: its JSON schema and the names of its voted fields. It is part of a question's digest."""
    voted = [field.encode_name for field in fields_of(reply) if is_voted(field.type)]
    form = msgspec.json.encode((schema(reply), voted), order="deterministic")
    return digest_of(form)


def schema(reply: type[Reply]) -> dict[str, Any]:
    """Build the JSON schema of a reply class, for providers that constrain their output by one."""
    info_of_reply = struct_info(reply)
    try:
        whole = msgspec.json.schema(reply, schema_hook=pydantic_types.json_schema)
    except TypeError as error:
        for name, hint in get_type_hints(reply, include_extras=True).items():
            try:
                msgspec.json.schema(hint, schema_hook=pydantic_types.json_schema)
            except TypeError:
                kind = getattr(hint, "__name__", hint) if isinstance(hint, type) else hint
                raise InvalidDefinition(
                    f"the field {reply.__qualname__}.{name} has the type {kind}, which has no JSON schema; use JSON's own types"
                ) from None
        why = " ".join(str(error).split())
        raise InvalidDefinition(f"{reply.__qualname__} has no JSON schema: {why}") from None
    declared = dict[frozenset[Any], list[Any]]()
    for info in types_in(info_of_reply):
        match info:
            case types.LiteralType(values=members) | types.EnumType(cls=members):
                values = msgspec.to_builtins(list(members))
                declared[frozenset(values)] = values
    definitions = dict[str, Any]()

    def tidied(part: dict[str, Any]) -> dict[str, Any]:
        """Move its definitions, as pydantic gives them, to one place, and values that msgspec sorts to theirs."""
        definitions.update(part.pop("$defs", {}))
        if isinstance(part.get("enum"), list):
            part["enum"] = declared.get(frozenset(part["enum"]), part["enum"])
        return part

    found: dict[str, Any] = json.loads(json.dumps(whole, default=float), object_hook=tidied)
    return {**found, "$defs": definitions}


_WRITER = msgspec.json.Encoder(decimal_format="number", enc_hook=write_value)  # a prompt asks for a number


def write(reply: Reply, form: Format = "lines") -> str:
    """Write a reply in the form that `instructions` ask for."""
    if form == "json":
        return _WRITER.encode(reply).decode()
    lines = []
    for field in fields_of(type(reply)):
        value = _WRITER.encode(getattr(reply, field.name))
        lines.append(f"{field.encode_name} = {value.decode()}")
    return "\n".join(lines)


@lru_cache(maxsize=256)
def decoder_of(reply: type[A]) -> msgspec.json.Decoder[A]:
    """Build the decoder from JSON to a reply, or to the type of one of its fields. No digit of a number is lost."""
    with LEARNING:
        return msgspec.json.Decoder(reply, dec_hook=pydantic_types.read, float_hook=_exact_number)


def _exact_number(text: str) -> float | Decimal:
    """Read a fraction that has no type of its own, such as one in the arguments of a tool."""
    found = number_in(text)
    if isinstance(found, str):
        return Decimal(found)
    return found


encode_reply = msgspec.json.Encoder(enc_hook=write_value).encode
"""Encode a reply as the JSON of a ballot."""
