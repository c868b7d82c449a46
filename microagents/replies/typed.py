"""Replies as persons type them: the texts of their fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from itertools import product
from typing import Any

import msgspec

from microagents.replies.model_replies import hints_of
from microagents.replies.reply import Reply
from microagents.replies.reply_forms import decoder_of

_NAMES = re.compile(r"(?:^|\s)([^\s={\"]+)=")


def fields_of(kind: type[Reply]) -> tuple[str, ...]:
    """Return the names of the fields of a reply."""
    return kind.__struct_encode_fields__


def fields_in(words: str, kind: type[Reply]) -> dict[str, str]:
    """Split ``FIELD=VALUE FIELD=VALUE`` at the names of fields; the first name may be unknown. Empty for words of another form."""
    texts, name, begins = dict[str, str](), "", 0
    for found in _NAMES.finditer(words):
        if found.start() == 0 or found[1] in fields_of(kind):
            texts[name] = words[begins : found.start()]
            name, begins = found[1], found.end()
    texts[name] = words[begins:]
    if texts.pop("", ""):
        return {}
    return texts


def reply_json(texts: Mapping[str, str], kind: type[Reply]) -> str:
    """Write the texts of fields as the JSON of a reply: each as its type reads it, else as JSON, else as a text."""
    types = dict(zip(fields_of(kind), hints_of(kind).values(), strict=True))
    written = {name: msgspec.Raw(_json_of(text.strip(), types.get(name, str))) for name, text in texts.items()}
    return msgspec.json.encode(written).decode()


def _json_of(text: str, declared: Any) -> bytes:
    """Write the text of a field. A list may be typed without brackets, and its texts without quotes."""
    as_text, parts = msgspec.json.encode(text), [part.strip() for part in text.split(",")]
    forms = [text.encode(), as_text, f"[{text}]".encode(), msgspec.json.encode(parts)]
    if text.startswith('"'):  # a text with quotes keeps them
        forms.insert(0, as_text)
    for kind, form in product((declared, Any), forms):  # a union of models has no decoder of its own
        with suppress(msgspec.MsgspecError, ValueError, TypeError):
            decoder_of(kind).decode(form)
            return form
    return as_text
