"""Observations: results of tools, as text that is safe to show to a model and on a terminal. It is data, never an instruction."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from binascii import Error as BinasciiError
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct
from pydantic_core import to_json

from microagents.base.errors import InvalidUsage
from microagents.base.foreign_text import bounded
from microagents.base.plain_values import plain
from microagents.base.user_code import shown
from microagents.replies.media import File, Media

MAX_RESULT_FILES = 16
"""Pictures and files that are taken from one result."""
MAX_TYPE_CHARS = 80
_OF_FILE = re.compile("image|application/pdf")
"""Types of pictures and files that a model may see."""
MAX_OBSERVATION_CHARS = 4_000
"""Characters of an observation; the middle of a longer one is left out."""


class Called(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of one call: its result, refusal or error."""

    outcome: Literal["done", "error", "unknown"]
    """`done`: it returned. `error`: it failed; a destructive call did nothing. `unknown`: it may have been made, or not."""
    text: str
    """What it returned, or why not; bounded, with control characters shown as such."""
    files: tuple[Media, ...] = ()
    """Pictures and files that it returned."""


def observation_of(value: object, most: int) -> str:
    """Write the value that a tool returned as text: a text as it is, anything else as JSON.

    Numbers that JSON lacks are texts in it: ``"NaN"``, ``"Infinity"``. Any other value that JSON lacks is shown as Python does: the call
    was made all the same, and its result must not be lost.
    """
    if isinstance(value, str):
        return bounded(value, most)
    try:
        return bounded(to_json(plain(value), inf_nan_mode="strings").decode(), most)
    except Exception as error:  # noqa: BLE001 - a model may have serializers of its own
        said = f"(the call was made; it returned a {type(value).__name__}, which cannot be written as JSON: {error})"
        return bounded(f"{said} {shown(value)}", most)


def files_in(value: object) -> tuple[Media, ...]:
    """Return the pictures and files that a tool returned, alone or in a list."""
    parts = value if isinstance(value, list | tuple) else [value]
    return tuple([each for each in parts if isinstance(each, Media)])


def without_files(value: object) -> object:
    """Return the value that a tool returned with its pictures and files in words."""
    if isinstance(value, Media):
        return f"({value.shown})"
    if isinstance(value, list | tuple) and files_in(value):
        return [without_files(each) for each in value]
    return value


def taken_files(contents: Sequence[Any]) -> tuple[list[Any], list[str]]:
    """Take the pictures and files out of the contents of an MCP tool's result, as base64 for `file_of`.

    Words stand in the place of each, or why it is left out. First bytes decide: what the server calls them may be wrong.
    """
    parts, files = list(contents), list[str]()
    for place, part in enumerate(contents):
        facts = _facts_of(part)
        data = facts.get("blob", facts.get("data"))
        if not isinstance(data, str):
            continue
        kind, plain = str(facts.get("mimeType", facts.get("type"))), "".join(data.rpartition("base64,")[2].split())
        try:
            if len(files) == MAX_RESULT_FILES:
                raise InvalidUsage(f"a result has at most {MAX_RESULT_FILES}")  # noqa: TRY301 - as any other reason
            said = f"({file_of(plain).shown})"
            files.append(plain)
        except (InvalidUsage, BinasciiError) as error:
            if not _OF_FILE.match(kind):
                continue
            said = f"({bounded(kind, MAX_TYPE_CHARS)}, left out: {error})"
        parts[place] = {"type": "text", "text": said}
    return parts, files


def file_of(data: str) -> Media:
    """Return the picture or file in base64.

    Raises:
        InvalidUsage: it is none.
        BinasciiError: it is not in base64.
    """
    return File(b64decode(data, validate=True))


def _facts_of(part: Any) -> dict[str, Any]:
    """Return the fields of a part of a result, with those of the resource in it; none of one in another form."""
    if not isinstance(part, dict):
        return {}
    resource = part.get("resource")
    return {**part, **resource} if isinstance(resource, dict) else part


def text_of_result(result: Mapping[str, Any], contents: object) -> str:
    """Write the result of an MCP tool: its contents, with words for files, and the structured value unless these say the same."""
    structured = result.get("structuredContent", result.get("toolResult"))
    parts = contents if isinstance(contents, list) else [contents]
    texts = [_text_of(part) for part in parts if part is not None]
    if structured is None:
        return "\n".join(texts)
    # Servers put a bare value, all text or the contents under a name of their own, and each item of a list into a text.
    value = structured
    if isinstance(structured, dict) and len(structured) == 1:
        (value,) = structured.values()
    decoded = [_decoded(text) for text in texts]
    if value == decoded:
        return _json(value)
    said = [result.get("content"), "\n".join(texts), *decoded]
    if value in said or structured in said:
        return "\n".join(map(_tight, texts))
    shown = value if structured == {"result": value} else structured
    return "\n".join((*texts, _json(shown)))


_NOT_SHOWN = ("data", "blob", "size", "resource", "annotations", "_meta", "icons")
"""Fields of a part that are data, or say nothing to a model."""


def _text_of(part: Any) -> str:
    """Write a part of a result: its text; of one without a text all but its data, the kind, name, address and type first."""
    if not isinstance(part, dict):
        return str(part)
    facts = _facts_of(part)
    if isinstance(facts.get("text"), str):
        return str(facts["text"])
    names = dict.fromkeys(("type", "name", "uri", "mimeType", *facts))
    shown = [_json(facts[name]) for name in names if facts.get(name) is not None and name not in _NOT_SHOWN]
    data, size = facts.get("blob", facts.get("data")), facts.get("size")
    if isinstance(data, str):  # in base64
        size = len(data.rstrip("=")) * 3 // 4
    if isinstance(size, int):
        shown.append(f"{size:,} bytes")
    return f"({', '.join(shown)})"


def _json(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _tight(text: str) -> str:
    """Write a text that is JSON without its white space; a number keeps its digits."""
    try:
        return msgspec.json.format(text, indent=-1)
    except (RecursionError, msgspec.DecodeError):
        return text


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except (RecursionError, ValueError):
        return text
