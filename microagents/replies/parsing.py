"""The parser of replies: reads one from the text of a model, in one of two readings.

`strict` refuses a reply that does not end as it was asked to. `last` takes the last value of each field, whatever stands around it. In both
the text is never evaluated or repaired: a value is JSON of its type, or the reply is malformed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from microagents.base.errors import MicroagentsError
from microagents.base.plain_values import values_of
from microagents.replies.json_forms import AGAIN, ANYTHING
from microagents.replies.reply import A, Reply
from microagents.replies.reply_forms import Format, Reading, decoder_of, instructions

MAX_REPLY_CHARS = 200_000
"""A longer answer is malformed without being parsed, which bounds the time of parsing."""
MAX_EXPONENT = 1000
"""Decimals beyond 10 to the power of plus or minus this are malformed: arithmetic with them could take forever."""
MAX_DEPTH = 100
"""A deeper nested value is malformed. The stack bounds comparisons, and its free space varies from call to call."""


class Malformed(MicroagentsError):
    """A reply does not have the form that its prompt asks for."""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Malformed("a JSON object names a key twice")
    return found


_SCANNER = json.JSONDecoder(parse_int=str, parse_float=str, object_pairs_hook=_object)
"""Finds the end of a value, and refuses duplicate keys. It keeps numbers as text, so that no digit is lost; msgspec decodes the value."""

_MARKUP = re.compile(r"\A\s*<(think|thinking|reasoning)>.*?</\1>|(?:</s>|<\|\w{1,40}\|>|<end_of_turn>)\s*\Z", re.DOTALL)
"""Marks of chat templates around a reply: thoughts in front of it, and the token at its end."""
_FENCES = ("```", "~~~")
"""Ends of blocks of code in Markdown."""
_FLAT = re.compile(r"[][0-9., -]+(?=\n|\Z)")
"""The rest of a line without keys and texts: it is one value if msgspec accepts it, in a sixth of the scanner's time."""


def parse(text: str, reply: type[A], form: Format = "lines", reading: Reading = "strict") -> A:
    """Parse a model's answer.

    ``lines``: the last line ``name = <JSON>`` of every field, after any amount of free text. ``json``: one JSON object at the end, after
    free text or inside a code fence: the outermost one that decodes. With the reading ``last``, the last ``name = <JSON>`` of every field,
    or the last JSON object, anywhere in the text. Thoughts in tags at the beginning, and the token of a template at the end, are no text.

    Raises:
        Malformed: a field is missing or is not JSON of its type, or, in the strict reading, other text follows.
    """
    if len(text) > MAX_REPLY_CHARS:
        raise Malformed(f"longer than {MAX_REPLY_CHARS} characters")
    text = _MARKUP.sub("", text)
    if form == "json":
        read = _parse_json(text, reply, reading)
    else:
        read = _parse_fields(text, reply, reading)
    if _accepts_more(reply):
        _refuse_unwanted(read)
    return read


@lru_cache(maxsize=256)
def _accepts_more(reply: type[Reply]) -> bool:
    """Return whether more values may be accepted for a reply class than its instructions ask for."""
    return any(form in instructions(reply) for form in ("number", ANYTHING, AGAIN))


def _refuse_unwanted(value: object, depth: int = 0) -> None:
    """Refuse values that are accepted but that no prompt asks for: decimals that are no numbers, and too deep nesting."""
    if depth > MAX_DEPTH:
        raise Malformed(f"nested more than {MAX_DEPTH} deep")
    match value:
        case Decimal():
            exponent = value.as_tuple().exponent
            if not isinstance(exponent, int) or exponent > MAX_EXPONENT or value.adjusted() < -MAX_EXPONENT:
                raise Malformed("a decimal that is out of range or no number")
            parts: Iterable[object] = ()
        case dict():
            parts = (*value, *value.values())
        case list() | tuple() | set() | frozenset():
            parts = value
        case _:
            parts = values_of(value).values()
    for part in parts:
        _refuse_unwanted(part, depth + 1)


class _Field(NamedTuple):
    """A field of a reply class."""

    name: str
    written: str
    """Its name in replies."""
    required: bool
    decoder: msgspec.json.Decoder[Any]
    assignment: re.Pattern[str]
    """``name =`` and the blanks around the sign; in the reading ``last`` before a text that may be JSON and not prose, such as "move = the
    one above". There capitals do not matter, unless two names differ only by them."""


_VALUE = r"""(?=[\[{"\d-]|(?:true|false|null)\b)"""


@lru_cache(maxsize=256)
def _fields(reply: type[Reply], reading: Reading) -> list[_Field]:
    names, found = reply.__struct_encode_fields__, []
    case = re.IGNORECASE if len({name.casefold() for name in names}) == len(names) else re.NOFLAG
    for field in msgspec.structs.fields(reply):
        name = re.escape(field.encode_name)
        if reading == "last":
            assignment = re.compile(rf"(?<!\w){name}(?!\w)\s*=(?!=)\s*{_VALUE}", case)
        else:
            assignment = re.compile(rf"{name}[ \t]*=(?!=)[ \t]*")
        found.append(_Field(field.name, field.encode_name, field.required, decoder_of(field.type), assignment))
    return found


def _parse_fields(text: str, reply: type[A], reading: Reading) -> A:
    values: dict[str, Any] = {}
    spans: list[tuple[int, int]] = []
    for name, written, required, decoder, assignment in _fields(reply, reading):
        if reading == "last":
            line, start = _last_value(text, assignment)
        else:
            line, start = _last_line_of(text, written, assignment)
        if start < 0:
            if required:
                raise Malformed(
                    f"no line `{written} = ...`" if reading == "strict" else f"no `{written} = ...` with a JSON value"
                )
            continue
        try:
            values[name], end = _decoded(decoder, text, start)
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            value = text[start:].partition("\n")[0]
            raise Malformed(f"{written} = {_said(error, value)}") from None
        if reading == "last" and text[start] not in "[{" and _CONTINUED.match(text, end):
            raise Malformed(f"{text[start : end + 20]!r} has text behind its value")
        spans.append((line, end))
    if reading == "strict":
        _refuse_other_text(text, spans)
    return _built(reply, values)


def _decoded(decoder: msgspec.json.Decoder[Any], text: str, start: int) -> tuple[Any, int]:
    """A JSON value, and the position behind it."""
    flat = _FLAT.match(text, start)
    if flat is not None:
        try:
            return decoder.decode(flat[0]), flat.end()
        except (msgspec.MsgspecError, RecursionError):  # it may go on in the next line, or end before other text
            pass
    _, end = _SCANNER.raw_decode(text, start)
    return decoder.decode(text[start:end]), end


def _built(reply: type[A], values: dict[str, Any]) -> A:
    try:
        return reply(**values)
    except (ValueError, TypeError) as error:  # raised by the __post_init__ of the reply class
        raise Malformed(str(error)) from None


def _refuse_other_text(text: str, spans: list[tuple[int, int]]) -> None:
    """Refuse any other text from the first value line on: it might revoke a value, in a form that no parser can know."""
    spans.sort()
    spans.append((len(text), len(text)))
    end = spans[0][0]
    for line, next_end in spans:
        between = text[end:line]
        if between and not between.isspace():
            rest_of_line, *lines = between.split("\n")
            others = {other.strip() for other in lines}
            if rest_of_line.strip() or others - {"", *_FENCES}:
                raise Malformed("something stands behind a value")
        end = next_end


def _last_line_of(text: str, name: str, assignment: re.Pattern[str]) -> tuple[int, int]:
    """Find the last line ``name = value`` and its value: their positions, or -1 if no line has the name."""
    at = len(text)
    # From the end, since the last line counts. A match must have only blanks before it in its line.
    while (at := text.rfind(name, 0, at)) >= 0:
        assigned = assignment.match(text, at)
        if assigned is not None:
            line = at
            while line and text[line - 1] in " \t":
                line -= 1
            if not line or text[line - 1] == "\n":
                return line, assigned.end()
    return -1, -1


_CONTINUED = re.compile(
    r"""\w | [.,:]\d | [^\S\n]+\d              # 0x5, 5kg; 5.5.1, 5,000, 5:30; 5 000
    | [^\S\n]*(?: [+/^%=\u00d7\u00f7] | [-\u2212][^\S\n]*[\d(] )
    | \*{1,2}[\w(] | [^\S\n]+\*{1,2}[^\S\n]*[\w(]  # but not the end of bold text
    """,
    re.VERBOSE,
)
"""Text behind a value that makes it a part of a longer number or of a formula, and not the value."""


MAX_SAID = 60
"""Characters of a value that an error shows."""
_COMPARED = {"<=": "at most", ">=": "at least", "<": "below", ">": "above"}


def _said(error: Exception, value: str) -> str:
    """Say which value was refused, and why: ``8, but at most 5``."""
    if isinstance(error, json.JSONDecodeError):
        return f"{value[:MAX_SAID]}, but that is not JSON"
    reason = re.sub("[<>]=?", lambda sign: _COMPARED[sign[0]], str(error).replace("`", ""))
    reason = re.sub("Expected (int|float) (?=at|above|below)", "", reason)
    reason, _, place = reason.partition(" - at $.")
    named = f"{place}: " if place else ""
    return f"{value[:MAX_SAID]}, but {named}{reason[:1].lower()}{reason[1:]}"


def _last_value(text: str, assignment: re.Pattern[str]) -> tuple[int, int]:
    """Find the last assignment and its value: their positions, or -1 if there is none."""
    spans = [found.span() for found in assignment.finditer(text)]
    if not spans:
        return -1, -1
    return spans[-1]


def _parse_json(text: str, reply: type[A], reading: Reading) -> A:
    body = text.strip()
    if body.endswith(_FENCES):
        body = body[:-3].rstrip()
    found, reason = "", "no JSON object that starts on a line of its own"
    for start, end in _objects_in(body, anywhere=reading == "last"):
        if end == len(body) or reading == "last":
            found = body[start:end]
        elif end < 0:
            reason = "no JSON object that is whole"
        else:
            reason = "something stands behind the JSON object"
    if not found:
        raise Malformed(reason)
    try:
        read: A = decoder_of(reply).decode(found)
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise Malformed(_said(error, found)) from None
    return read


_OPENED = re.compile(r"^[ \t]*\{", re.MULTILINE)
_OPENED_ANYWHERE = re.compile(r"\{")
MAX_OPENED = 200
"""Braces at which a JSON object is looked for: each may cost a pass over the text."""


def _objects_in(text: str, *, anywhere: bool) -> Iterator[tuple[int, int]]:
    """Yield the outermost JSON objects of a text, each by its start and end; the end is -1 of a brace that opens none.

    Raises:
        Malformed: an object names a key twice.
    """
    opened = _OPENED_ANYWHERE if anywhere else _OPENED
    last = 0
    for brace in islice(opened.finditer(text), MAX_OPENED):
        start = brace.end() - 1
        if start < last:
            continue  # inside an object that is read
        try:
            _, last = _SCANNER.raw_decode(text, start)
        except (ValueError, RecursionError):
            yield start, -1
        else:
            yield start, last


def malformed_reason(text: str, reply: type[Reply], form: Format, reading: Reading) -> str | None:
    """Say why the parser refuses a text; None if it accepts it."""
    try:
        parse(text, reply, form, reading)
    except Malformed as error:
        return str(error)[:200]
    return None
