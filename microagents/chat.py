"""Prompts to models, and the replies to them.

One `Reply` class gives the format instructions at the end of a prompt, the strict parser of the answer, the JSON schema for providers
that accept one, and the vote. The text of a model is never evaluated, repaired or guessed: it has the requested form, or it is malformed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from operator import attrgetter
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec import inspect as types

from microagents.errors import InvalidDefinition, MicroagentsError
from microagents.messages import register

A = TypeVar("A", bound="Reply")
Format = Literal["lines", "json"]

Unvoted = Meta(extra={"voted": False})
"""Marks a field without a vote, as in ``Annotated[str, Unvoted]``. Replies that differ only there cast the same vote."""

MAX_REPLY_CHARS = 200_000
"""A longer answer is malformed without being parsed, which bounds the time of parsing."""
MAX_EXPONENT = 1000
"""Decimals beyond 10 to the power of plus or minus this are malformed: arithmetic with them could take forever."""
MAX_DEPTH = 100
"""A deeper nested value is malformed. The stack bounds comparisons, and its free space varies from call to call."""


class Prompt(Struct, frozen=True, kw_only=True):
    """One question to a model."""

    user: str
    """The part that changes from question to question."""
    system: str = ""
    """The constant part, which providers cache."""


class Sampling(Struct, frozen=True, kw_only=True):
    """Sampling settings of a question (MAKER, section 4.4)."""

    first_temperature: float | None = 0.0
    """Temperature of seq 0 only; None leaves it to the provider."""
    temperature: float | None = 0.1
    """Temperature of every other seq; None leaves it to the provider."""
    max_output_tokens: int = 2048
    """The limit that is sent to the provider, which cuts a longer reply off."""
    flag_above_tokens: int | None = 750
    """Longer replies get the red flag ``too_long``; None disables the flag. Separate from the provider's limit on purpose."""

    def temperature_of(self, seq: int) -> float | None:
        """The temperature of the seq-th sample, counted from 0."""
        return self.first_temperature if seq == 0 else self.temperature


class Usage(Struct, frozen=True, kw_only=True):
    """Tokens and cost of one reply by the provider's count; None where the provider gives none."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    reasoning_tokens: int | None = 0
    """Those of the output tokens that are not in the reply's text; None where there are some, and their number is unknown."""

    @property
    def visible_tokens(self) -> int | None:
        """Output tokens of the reply's text; None where their number is unknown."""
        return None if self.output_tokens is None or self.reasoning_tokens is None else self.output_tokens - self.reasoning_tokens


class Sample(Struct, frozen=True, kw_only=True):
    """One reply of a model, not yet parsed."""

    text: str
    finish: str = "stop"
    """``stop`` for a complete reply, else the reason why it ended."""
    usage: Usage = Usage()
    model: str = ""


class Malformed(MicroagentsError):
    """A reply does not have the form that its prompt asks for."""


class Reply(Struct, frozen=True, kw_only=True):
    """Base class of replies; subclasses declare typed fields for the model to fill in.

    The JSON schema of a subclass, docstring included, is part of the digest of its questions. After a change, even of the docstring, a
    journal takes the same question for another one.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        register(cls)

    def vote(self) -> Hashable:
        """The value by which replies are compared with ``==``: by default all fields that are not marked `Unvoted`."""
        return hashable(_voted(type(self))(self))


def hashable(value: object) -> Hashable:
    """The value itself if it has a hash, else its contents as tuples and frozen sets.

    Raises:
        InvalidDefinition: a part of the value is neither hashable nor a list, set, dict or struct.
    """
    try:
        hash(value)
    except TypeError:
        if isinstance(value, dict):
            return frozenset((key, hashable(item)) for key, item in value.items())
        if isinstance(value, set | frozenset):
            return frozenset(hashable(item) for item in value)
        if isinstance(value, Struct):
            return (type(value), *(hashable(getattr(value, name)) for name in value.__struct_fields__))
        if isinstance(value, list | tuple):
            return tuple(hashable(item) for item in value)
        raise InvalidDefinition(f"{type(value).__name__} {value!r} cannot be compared in a vote; override vote()") from None
    return value


@lru_cache(maxsize=256)
def _voted(reply: type[Reply]) -> Callable[[Reply], object]:
    names = [field.name for field in fields_of(reply) if _is_voted(field.type)]
    if not names:
        raise InvalidDefinition(f"{reply.__qualname__} has no field to vote on; add one that is not Unvoted, or override vote()")
    return attrgetter(*names)


def _is_voted(info: types.Type) -> bool:
    if not isinstance(info, types.Metadata):
        return True
    return (info.extra or {}).get("voted", True) and _is_voted(info.type)


@lru_cache(maxsize=256)
def fields_of(reply: type[Reply]) -> tuple[types.Field, ...]:
    """The fields of a reply class, as msgspec describes them.

    Raises:
        InvalidDefinition: msgspec does not support an annotation.
    """
    try:
        info = types.type_info(reply)
    except (TypeError, NameError) as error:
        raise InvalidDefinition(f"the fields of {reply.__qualname__} cannot be read from JSON: {error}") from None
    assert isinstance(info, types.StructType)
    return info.fields


# -- asking ------------------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def instructions(reply: type[Reply], form: Format = "lines") -> str:
    """The format instructions at the end of a prompt. They ask for exactly the form that `parse` accepts."""
    notes = [f"- {field.encode_name}: {note}" for field in fields_of(reply) if (note := _note(field))]
    if form == "lines":
        head = "Reason first, briefly, if that helps. Then close with the lines below and write nothing after them."
        body = "\n".join(f"{name} = {wanted}" for name, wanted in _forms(reply).items())
        rule = "Every value is plain JSON, in the form shown, directly behind its name; no bold, no quotes around a line."
    else:
        head = "Answer with one JSON object of the form below and write nothing after it."
        body = json_form(reply)
        rule = "Every value is plain JSON in the form shown."
    return "\n".join([head, "", body, "", rule, *notes])


def json_form(reply: type[Reply]) -> str:
    """The form of a reply as one JSON object, such as ``{"value": <integer>}``."""
    return "{" + ", ".join(f"{json.dumps(name)}: {wanted}" for name, wanted in _forms(reply).items()) + "}"


def _forms(reply: type[Reply]) -> dict[str, str]:
    try:
        return {field.encode_name: template(field.type) for field in fields_of(reply)}
    except RecursionError:
        raise InvalidDefinition(f"{reply.__qualname__} contains itself, which no prompt can show; give it a flat form") from None
    except InvalidDefinition as error:
        raise InvalidDefinition(f"{reply.__qualname__} cannot be asked for: {error}") from None


@lru_cache(maxsize=256)
def system_with_instructions(system: str, reply: type[Reply], form: Format) -> str:
    """A system prompt, followed by the format instructions."""
    return f"{system}\n\n{instructions(reply, form)}".lstrip("\n")


def _note(field: types.Field) -> str:
    info, notes = field.type, []
    while isinstance(info, types.Metadata):
        notes += [str((info.extra_json_schema or {}).get("description", ""))]
        info = info.type
    if not field.required:
        notes.append("may be left out")
    return "; ".join(note for note in notes if note)


_JSON_FORMS: dict[type[types.Type], str] = {
    types.IntType: "<integer>",
    types.FloatType: "<number>",
    types.DecimalType: "<decimal number>",
    types.StrType: '"<text>"',
    types.BoolType: "true or false",
    types.NoneType: "null",
    types.DateType: '"<YYYY-MM-DD>"',
    types.DateTimeType: '"<date and time as in ISO 8601>"',
    types.TimeType: '"<hh:mm:ss>"',
    types.TimeDeltaType: '"<duration as in ISO 8601>"',
    types.UUIDType: '"<UUID>"',
    types.BytesType: '"<base64>"',
    types.AnyType: "<any JSON value>",
}


def template(info: types.Type) -> str:
    """The form of a JSON value of this type for a model to fill in, such as ``[<integer>, <integer>]``.

    Raises:
        InvalidDefinition: the type has no such form.
    """
    match info:
        case types.Metadata():
            return template(info.type)
        case types.TupleType():
            return "[" + ", ".join(template(item) for item in info.item_types) + "]"
        case types.CollectionType():
            return f"[{template(info.item_type)}, ...]"
        case types.DictType():
            return f'{{"<key>": {template(info.value_type)}, ...}}'
        case types.LiteralType():
            return " or ".join(json.dumps(value) for value in info.values)
        case types.EnumType():
            return " or ".join(json.dumps(member.value) for member in info.cls)
        case types.UnionType():
            return " or ".join(template(item) for item in info.types)
        case types.StructType():
            return _struct_form(info)
    if type(info) not in _JSON_FORMS:
        raise InvalidDefinition(f"{info} has no form to ask for; use JSON's own types or a msgspec Struct")
    return _JSON_FORMS[type(info)]


def _struct_form(info: types.StructType) -> str:
    """The form of a struct: its tag first, if it has one; a list if it is array-like."""
    tag = [] if info.tag is None else [(info.tag_field, json.dumps(info.tag))]
    forms = [*tag, *((field.encode_name, template(field.type)) for field in info.fields)]
    if info.array_like:
        return "[" + ", ".join(form for _, form in forms) + "]"
    return "{" + ", ".join(f'"{name}": {form}' for name, form in forms) + "}"


@lru_cache(maxsize=256)
def fingerprint(reply: type[Reply]) -> bytes:
    """Digest of a reply class: its JSON schema and the names of its voted fields. It is part of a question's digest."""
    voted = [field.encode_name for field in fields_of(reply) if _is_voted(field.type)]
    return blake2b(msgspec.json.encode((schema(reply), voted), order="deterministic"), digest_size=16).digest()


def schema(reply: type[Reply]) -> dict[str, Any]:
    """The JSON schema of a reply class, for providers that constrain their output by one."""
    return msgspec.json.schema(reply)


def write(reply: Reply, form: Format = "lines") -> str:
    """Write a reply in the form that `instructions` ask for and `parse` accepts."""
    if form == "json":
        return msgspec.json.encode(reply).decode()
    return "\n".join(
        f"{field.encode_name} = {msgspec.json.encode(getattr(reply, field.name)).decode()}" for field in fields_of(type(reply))
    )


@lru_cache(maxsize=256)
def decoder_of(reply: type[A]) -> msgspec.json.Decoder[A]:
    """The decoder from the JSON of a ballot to its reply."""
    return msgspec.json.Decoder(reply)


# -- reading -----------------------------------------------------------------------------------------------------------------------

_SCANNER = json.JSONDecoder(parse_int=str, parse_float=str)
"""Finds the end of a value. It keeps numbers as text, so that no digit is lost; msgspec then decodes the value strictly."""


def parse(text: str, reply: type[A], form: Format = "lines") -> A:
    """Parse a model's answer strictly.

    ``lines``: the last line ``name = <JSON>`` of every field, after any amount of free text. ``json``: one JSON object at the end, after
    free text or inside a code fence.

    Raises:
        Malformed: a field is missing or is not JSON of its type, or other text follows.
    """
    if len(text) > MAX_REPLY_CHARS:
        raise Malformed(f"longer than {MAX_REPLY_CHARS} characters")
    read = _parse_lines(text, reply) if form == "lines" else _parse_json(text, reply)
    if _accepts_more(reply):
        _refuse_unwanted(read)
    return read


@lru_cache(maxsize=256)
def _accepts_more(reply: type[Reply]) -> bool:
    """Whether msgspec accepts more values for a reply class than its instructions ask for."""
    return any(_JSON_FORMS[kind] in instructions(reply) for kind in (types.DecimalType, types.AnyType))


def _refuse_unwanted(value: object, depth: int = 0) -> None:
    """Refuse values that msgspec accepts but no prompt asks for: decimals that are no numbers, and too deep nesting.

    Raises:
        Malformed: the value contains one.
    """
    if depth > MAX_DEPTH:
        raise Malformed(f"nested more than {MAX_DEPTH} deep")
    match value:
        case Decimal():
            exponent = value.as_tuple().exponent
            if not isinstance(exponent, int) or exponent > MAX_EXPONENT or value.adjusted() < -MAX_EXPONENT:
                raise Malformed("a decimal that is out of range or no number")
        case Struct():
            for name in value.__struct_fields__:
                _refuse_unwanted(getattr(value, name), depth + 1)
        case dict():
            for key, item in value.items():
                _refuse_unwanted(key, depth + 1)
                _refuse_unwanted(item, depth + 1)
        case list() | tuple() | set() | frozenset():
            for item in value:
                _refuse_unwanted(item, depth + 1)


@lru_cache(maxsize=256)
def _decoders(reply: type[Reply]) -> list[tuple[str, str, bool, msgspec.json.Decoder[Any]]]:
    hints = msgspec.structs.fields(reply)
    return [(field.name, field.encode_name, field.required, msgspec.json.Decoder(field.type)) for field in hints]


def _parse_lines(text: str, reply: type[A]) -> A:
    values: dict[str, Any] = {}
    spans: list[tuple[int, int]] = []
    for name, written, required, decoder in _decoders(reply):
        line, start = _last_line_of(text, written)
        if start < 0:
            if required:
                raise Malformed(f"no line `{written} = ...`")
            continue
        try:
            _, end = _SCANNER.raw_decode(text, start)
            values[name] = decoder.decode(text[start:end])
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            raise Malformed(f"{written}: {error}") from None
        spans.append((line, end))
    _refuse_other_text(text, spans)
    try:
        return reply(**values)
    except (ValueError, TypeError) as error:  # raised by the __post_init__ of the reply class
        raise Malformed(str(error)) from None


def _refuse_other_text(text: str, spans: list[tuple[int, int]]) -> None:
    """Refuse any other text from the first value line on: it might revoke a value, in a form that no parser can know.

    Raises:
        Malformed: there is other text.
    """
    spans.sort()
    for (_, end), (line, _) in pairwise([*spans, (len(text), len(text))]):
        rest_of_line, *lines = text[end:line].split("\n")
        if rest_of_line.strip() or any(other.strip() not in ("", "```") for other in lines):
            raise Malformed("something stands behind a value")


def _last_line_of(text: str, name: str) -> tuple[int, int]:
    """Positions of the last line ``name = value`` and of its value; -1 if there is no such line."""
    at = len(text)
    # From the end, since the last line counts. A match must have `=` behind it and only blanks before it in its line.
    while (at := text.rfind(name, 0, at)) >= 0:
        start = _value_after(text, at, name)
        if start >= 0:
            line = at
            while line and text[line - 1] in " \t":
                line -= 1
            if not line or text[line - 1] == "\n":
                return line, start
    return -1, -1


def _value_after(text: str, at: int, name: str) -> int:
    """Position of the value behind ``name =``; -1 if no value is assigned here."""
    equals = _skip_blanks(text, at + len(name))
    return _skip_blanks(text, equals + 1) if text.startswith("=", equals) and not text.startswith("==", equals) else -1


def _skip_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t":
        at += 1
    return at


def _parse_json(text: str, reply: type[A]) -> A:
    body = text.strip()
    if body.endswith("```"):
        body = body[:-3].rstrip()
    # The last line that begins with a brace: an indented JSON object has no other at the start of a line.
    start = 0 if body.startswith("{") else body.rfind("\n{") + 1
    if not body.startswith("{", start):
        raise Malformed("no JSON object that starts on a line of its own")
    try:
        return msgspec.json.decode(body[start:], type=reply)
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise Malformed(str(error)) from None
