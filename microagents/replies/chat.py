"""Prompts to models, and the replies to them.

One `Reply` class gives the format instructions at the end of a prompt, the parser of the answer (`microagents.replies.parsing`), the
JSON schema for providers that accept one, and the vote.
"""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from decimal import Decimal
from functools import cached_property, lru_cache, partial
from hashlib import blake2b
from operator import attrgetter, is_, itemgetter
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct, StructMeta, structs
from msgspec import inspect as types
from pydantic import BaseModel

from microagents.base.errors import InvalidDefinition
from microagents.base.foreign_text import fenced, told_apart
from microagents.base.messages import register
from microagents.base.plain_values import in_python, number_in, values_of
from microagents.base.user_code import called, mistyped
from microagents.replies import pydantic_types
from microagents.replies.json_forms import form_of
from microagents.replies.masses import Mass
from microagents.replies.media import Media, checked_files
from microagents.replies.turns import Turn, files_of, flat_text, flaw_of, flaw_of_tools, without_feedback

A = TypeVar("A", bound="Reply")
Format = Literal["lines", "json"]
Reading = Literal["strict", "last"]

Unvoted = Meta(extra={"voted": False})
"""Marks a field without a vote, as in ``Annotated[str, Unvoted]``. Replies that differ only there cast the same vote."""
Prose = Annotated[str, Unvoted]
"""Text whose wording casts no vote: a field of a reply, an argument of a tool, a field of an agent's result."""
ProseByTool = Mapping[str, Collection[str]]
"""By the name of a tool, its arguments that are declared as `Prose`."""
NO_PROSE: ProseByTool = MappingProxyType({})
MAX_SHOWN, MAX_SHOWN_CHARS = 4, 60
"""Number of fields, and of values of each, that a message lists, and the length of a value in it."""


class Prompt(Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """One question to a model, perhaps with the turns of a conversation behind it, and tools to call."""

    user: str
    """The part that changes from question to question."""
    system: str = ""
    """The constant part, which providers cache."""
    static_chars: int = 0
    """Number of characters at the start of ``user`` that are constant, too, such as a document that all questions are about."""
    files: tuple[Media, ...] = ()
    """Pictures and files, between the constant and the changing part of ``user``: ``files=[Image("scan.png")]``."""
    turns: tuple[Turn, ...] = ()
    """Turns that follow ``user``."""
    tools: str = ""
    """Tools that the model may call: a JSON list of objects with ``name``, ``description`` and ``parameters``; empty for none."""
    calls_as_text: str = ""
    """The part behind ``system`` that a model without native calls reads: its tools, and how to call them in a text."""

    def __post_init__(self) -> None:
        if self.files:
            structs.force_setattr(self, "files", checked_files(self.files))
        if self.turns and (flaw := flaw_of(self.turns)) is not None:
            raise TypeError(f"the turns of a Prompt cannot be sent: {flaw}")
        if self.tools and (flaw := flaw_of_tools(self.tools)) is not None:
            raise TypeError(
                f"the tools of a Prompt must be a JSON list of objects with name, description and parameters; {flaw}"
            )
        for name, value in (("user", self.user), ("system", self.system)):
            if not isinstance(value, str):
                raise TypeError(f"the {name} part of a Prompt must be a text, not {value!r:.100}")
            structs.force_setattr(self, name, in_python(value))
        given: object = self.static_chars
        if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= len(self.user):
            raise TypeError(
                f"static_chars of a Prompt must be a number of characters of its user part, from 0 to {len(self.user)}, not {given!r:.100}"
            )

    @property
    def user_parts(self) -> tuple[str, str]:
        """Constant and the changing part of the user's text; one of them may be empty."""
        return self.user[: self.static_chars], self.user[self.static_chars :]

    @property
    def is_conversation(self) -> bool:
        """Whether it has turns or tools."""
        return bool(self.turns or self.tools)

    @property
    def flat(self) -> Prompt:
        """The same question as one text of the user, for a model that takes no turns."""
        if not self.is_conversation:
            return self  # kept, it would be a reference to itself, and never freed
        return self._flat

    @cached_property
    def _flat(self) -> Prompt:
        system, user = "\n\n".join(filter(None, (self.system, self.calls_as_text))), self.user + flat_text(self.turns)
        return Prompt(system=system, user=user, static_chars=self.static_chars, files=self.all_files)

    @cached_property
    def all_files(self) -> tuple[Media, ...]:
        """Its files, and then the files of its turns."""
        return (*self.files, *files_of(self.turns))

    @cached_property
    def size(self) -> int:
        """Most bytes that the texts of the question have as UTF-8, in either form."""
        texts = (self.system, self.user, self.tools, self.calls_as_text)
        encoded = [text.encode("utf-8", "replace") for text in texts]
        return sum(map(len, encoded)) + sum(turn.size for turn in self.turns)

    @property
    def conversation(self) -> tuple[object, ...]:
        """All that it has beyond its texts, for digests; empty for a question of texts only."""
        if not self.is_conversation:
            return self.files
        return (b"".join([turn.digest for turn in self.turns]), self.tools, self.calls_as_text, *self.files)

    def without_feedback(self, answers: int) -> Prompt:
        """Return the question without its last answers that were found wrong, and without the feedback on them."""
        if not answers:
            return self
        return structs.replace(self, turns=without_feedback(self.turns, answers))


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
        """Return the temperature of the seq-th sample, counted from 0."""
        if seq == 0:
            return self.first_temperature
        return self.temperature


class Cached(Struct, frozen=True, kw_only=True):
    """Input tokens in a provider's cache."""

    read: int
    """Number of tokens that were read from it."""
    written: int
    """Number of tokens that were written into it for a higher price."""


class Usage(Struct, frozen=True, kw_only=True):
    """Tokens and cost of one reply by the provider's count; None if the provider gives none."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    reasoning_tokens: int | None = 0
    """Number of the output tokens that are not in the reply's text; None if there are some, in unknown number."""
    cached_tokens: int = 0
    """Number of the input tokens that the provider read from its cache; 0 if it does not say."""
    cache_write_tokens: int = 0
    """Number of the input tokens that it wrote into its cache for a higher price; 0 if it does not say."""
    flaw: str = ""
    """A number that cannot be right, and is left out. The call then counts at the most that it can have used."""

    @property
    def cached(self) -> Cached | None:
        """Its input tokens in the provider's cache; None if there are none."""
        if not self.cached_tokens and not self.cache_write_tokens:
            return None
        return Cached(read=self.cached_tokens, written=self.cache_write_tokens)

    @property
    def visible_tokens(self) -> int | None:
        """Output tokens of the reply's text; None if their number is unknown."""
        if self.output_tokens is None or self.reasoning_tokens is None:
            return None
        return self.output_tokens - self.reasoning_tokens


class Sample(Struct, frozen=True, kw_only=True):
    """One reply of a model, not yet parsed."""

    text: str
    finish: str = "stop"
    """``stop`` for a complete reply, else the reason why it ended."""
    usage: Usage = Usage()
    model: str = ""
    fallback: str = ""
    """Spec of the fallback that gave it; empty for the model that was asked."""
    shares: dict[str, float] = {}
    """Probability of each option, of a model that weighs the options of a reply; the text is then the likeliest one as JSON."""
    mass: Mass | None = None
    """Probability of the whole text, if the call asked for it and the provider gives it."""
    turn: Turn | None = None
    """The native calls of a reply, with all that their wire gives; None for a reply in text."""
    took_s: float = 0.0
    """Seconds from the sending of its call to its reply, in a run that is traced; else 0."""


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


def wordings(tally: Sequence[tuple[Reply, int]], prose: ProseByTool) -> str:
    """Say in which text most votes of an undecided election differ from each other, and in nothing else but declared prose.

    Empty if there is none.
    """
    leader, most = max(tally, key=itemgetter(1), default=(None, 0))
    if not isinstance(leader, CheckedReply):
        return ""
    voted, others = leader.without_prose(prose), Counter[str]()
    for reply, votes in tally:
        if reply is not leader and isinstance(reply, CheckedReply):
            others[voted.text_that_differs(reply.without_prose(prose))] += votes
    total, named = most + others.total(), [(text, most + votes) for text, votes in others.most_common() if text]
    if not named or 2 * named[0][1] <= total:
        return ""
    text, alike = named[0]
    return (
        f"{alike} of {total} votes differ only in the text {text}; if it is prose, whose wording does not matter, "
        f"declare it (`{text.partition(' ')[0]}: Prose`, or McpServer(prose=...)), and it casts no vote; with -s votes=semantic a declared "
        "text votes by its meaning"
    )


def disagreement(replies: Sequence[Reply]) -> str:
    """Describe in which fields replies with different votes agree and differ; empty if they differ in all fields."""
    names = voted_fields(type(replies[0]))
    differing = []
    for name in names:
        texts = {str(getattr(reply, name)) for reply in replies}
        if len(texts) > 1:
            differing.append(name)
    agreed = [name for name in names if name not in differing]
    if not agreed or not differing:
        return ""
    return (
        f"no two replies agree, though all agree in {', '.join(agreed)}: they differ in {', '.join(differing)}; "
        "mark a field that need not agree as Annotated[..., Unvoted]"
    )


def open_votes(tally: Sequence[tuple[Reply, int]], fields: Sequence[tuple[str, ...]]) -> str:
    """Count the values of fields without a decision, most frequent first; of many fields or values the first few."""
    counted = []
    for names in fields[:MAX_SHOWN]:
        votes = Counter[str]()
        for reply, number in tally:
            shown = [encode_reply(getattr(reply, name)).decode()[:MAX_SHOWN_CHARS] for name in names]
            votes[", ".join(shown)] += number
        common = votes.most_common(MAX_SHOWN)
        texts = told_apart([text for text, _ in common])
        values = [f"{number} x {text}" for text, (_, number) in zip(texts, common, strict=True)]
        counted.append(f"{' and '.join(names)} ({', '.join(values)})")
    more = f" and {len(fields) - MAX_SHOWN} more" if len(fields) > MAX_SHOWN else ""
    return f"open: {', '.join(counted)}{more}"


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


def composed(value: Hashable) -> Hashable:
    """Return a value with its texts in Unicode's composed form (NFC): texts that differ only in it look alike."""
    match value:
        case str():
            if value.isascii():
                return value
            return unicodedata.normalize("NFC", value)
        case tuple() | frozenset():
            parts = [composed(each) for each in value]
            if all(map(is_, parts, value)):
                return value
            return type(value)(parts)
        case Struct():
            changed = {name: composed(getattr(value, name)) for name in value.__struct_fields__}
            is_same = all(changed[name] is getattr(value, name) for name in changed)
            if is_same:
                return value
            return structs.replace(value, **changed)
    return value


def hashable(value: object, *, typed: bool = False) -> Hashable:
    """Return the value itself if it has a hash, else its contents as tuples and frozen sets.

    Args:
        value: the value.
        typed: return the contents in any case, each number with its type: ``1``, ``True`` and ``1.0`` are equal.
    """
    if not typed:
        with suppress(TypeError):
            hash(value)
            return value
    parts = partial(hashable, typed=typed)
    match value:
        case bool() | int() | float() | Decimal():
            return type(value), value
        case dict():
            return frozenset((key, parts(item)) for key, item in value.items())
        case set() | frozenset():
            return frozenset(map(parts, value))
        case list() | tuple():
            return tuple(map(parts, value))
        case BaseModel() | Struct():
            return type(value), parts(values_of(value))
    if is_dataclass(value):
        return type(value), parts(values_of(value))
    if typed:
        return hashable(value)
    raise InvalidDefinition(f"{type(value).__name__} {value!r} cannot be compared in a vote; override vote()")


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


def voted_fields(reply: type[Reply]) -> list[str]:
    """List the fields that are not marked `Unvoted`, in their order."""
    return [field.name for field in fields_of(reply) if _is_voted(field.type)]


@lru_cache(maxsize=256)
def prose_fields(reply: type[Reply]) -> frozenset[str]:
    """Name the voted fields that may contain text of a model's own: two values may then mean the same without being equal."""
    voted = [field for field in fields_of(reply) if _is_voted(field.type)]
    found = [each.name for each in voted if any(isinstance(of, _WITH_TEXT) for of in _types_in(each.type))]
    return frozenset(found)


def has_prose(reply: type[Reply]) -> bool:
    """Return whether a vote may contain text of a model's own."""
    return bool(prose_fields(reply))


_WITH_TEXT = types.StrType | types.DictType | types.AnyType | types.CustomType


def _types_in(*infos: types.Type) -> list[types.Type]:
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


@lru_cache(maxsize=256)
def _voted(reply: type[Reply]) -> Callable[[Reply], object]:
    names = voted_fields(reply)
    if not names:
        raise InvalidDefinition(
            f"add a field that is not Unvoted to {reply.__qualname__}, or override vote(): it has no field to vote on"
        )
    mixed = [each.name for each in fields_of(reply) if each.name in names and _mixes_numbers(each.type)]
    if not mixed:
        return attrgetter(*names)
    return lambda voter: tuple([hashable(getattr(voter, name), typed=name in mixed) for name in names])


def _mixes_numbers(info: types.Type) -> bool:
    """Return whether values of a type may be equal although they are different JSON: ``1``, ``true`` and ``1.0``."""
    kinds = set(map(type, _types_in(info)))
    return len(kinds & _NUMBERS) > 1 or not kinds.isdisjoint((types.AnyType, types.CustomType))


_NUMBERS = {types.BoolType, types.IntType, types.FloatType, types.DecimalType, types.EnumType, types.LiteralType}
"""Types that may hold numbers."""


def _is_voted(info: types.Type) -> bool:
    match info:
        case types.Metadata():
            return (info.extra or {}).get("voted", True) and _is_voted(info.type)
        case types.UnionType():  # `Prose | None`
            return all(map(_is_voted, info.types))
    return True


def unvoted_in(kind: type[Struct]) -> tuple[str, ...]:
    """List the fields of a struct that are marked `Unvoted`, as JSON names them."""
    info = types.type_info(kind)
    assert isinstance(info, types.StructType)
    return tuple(field.encode_name for field in info.fields if not _is_voted(field.type))


def is_unvoted(annotation: object) -> bool:
    """Return whether an annotation is marked `Unvoted`, or a union with a member that is."""
    if get_origin(annotation) in (Union, UnionType):
        return any(map(is_unvoted, get_args(annotation)))
    return any(isinstance(each, Meta) and each == Unvoted for each in getattr(annotation, "__metadata__", ()))


def fields_of(reply: type[Reply]) -> tuple[types.Field, ...]:
    """List the fields of a reply class, as msgspec describes them."""
    return _info_of(reply).fields


@lru_cache(maxsize=256)
def _info_of(reply: type[Reply]) -> types.StructType:
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
    for part in _types_in(info):
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


# -- asking ------------------------------------------------------------------------------------------------------------------------


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


def with_turns(asked: Prompt, turns: Sequence[Turn]) -> Prompt:
    """Put turns behind a question."""
    if not turns:
        return asked
    return structs.replace(asked, turns=(*asked.turns, *turns))


def feedback_turn(feedback: str) -> Turn:
    """Return the user's turn behind an answer that was found wrong."""
    text = f"It was checked, and it is wrong:\n{fenced('feedback', feedback)}\n\nAnswer again, in the same form."
    return Turn(role="user", text=text)


@lru_cache(maxsize=256)
def fingerprint(reply: type[Reply]) -> bytes:
    """Digest a reply class: its JSON schema and the names of its voted fields. It is part of a question's digest."""
    voted = [field.encode_name for field in fields_of(reply) if _is_voted(field.type)]
    form = msgspec.json.encode((schema(reply), voted), order="deterministic")
    return blake2b(form, digest_size=16).digest()


def schema(reply: type[Reply]) -> dict[str, Any]:
    """Build the JSON schema of a reply class, for providers that constrain their output by one."""
    info_of_reply = _info_of(reply)
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
    for info in _types_in(info_of_reply):
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


_WRITER = msgspec.json.Encoder(decimal_format="number", enc_hook=pydantic_types.write)  # a prompt asks for a number


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
    return msgspec.json.Decoder(reply, dec_hook=pydantic_types.read, float_hook=_exact_number)


def _exact_number(text: str) -> float | Decimal:
    """Read a fraction that has no type of its own, such as one in the arguments of a tool."""
    found = number_in(text)
    if isinstance(found, str):
        return Decimal(found)
    return found


encode_reply = msgspec.json.Encoder(enc_hook=pydantic_types.write).encode
"""Encode a reply as the JSON of a ballot."""
