"""Marks of a reply that was elected: the number of its election in its id, and the sums over all samples beside its usage."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

import msgspec

from microagents.elections.election import total_usd
from microagents.models.http.replies import UNREADABLE, decode, object_in
from microagents.web.endpoint.served_elections import Elected
from microagents.web.endpoint.wires import CHAT

EXTRAS = "microagents"
"""Name of the object beside the counts of a usage."""
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list = msgspec.json.Decoder(list[msgspec.Raw])


def sums_of(elected: Elected) -> dict[str, Any]:
    """Return how a reply came about, and what all samples of its election used."""
    usages = [each.usage for each in elected.exchange.replies.values()]
    cost_usd = total_usd([each.cost_usd for each in usages])
    return {
        "election": elected.number,
        "elected": elected.is_elected,
        "votes": elected.votes,
        "samples": len(usages),
        "input_tokens": sum(each.input_tokens or 0 for each in usages),
        "output_tokens": sum(each.output_tokens or 0 for each in usages),
        "cost_usd": None if cost_usd is None else round(cost_usd, 9),
    }


def headers_of(sums: dict[str, Any]) -> dict[str, str]:
    """Write the same as headers."""
    return {f"x-microagents-{name.replace('_', '-')}": str(value).lower() for name, value in sums.items()}


def marked(elected: Elected) -> bytes:
    """Return the bytes of a reply, with its marks."""
    reply, asked = elected.reply, elected.exchange.asked
    extras = msgspec.json.encode(sums_of(elected))
    if reply.is_streamed:
        lines = reply.body.split(b"\n")
        body = b"\n".join(_marked_events(lines, extras, without_usage=asked.wire is CHAT and not asked.wants_usage))
    else:
        body = _with_extras(reply.body, extras)
    if reply.id:
        mark = f"{reply.id}-e{elected.number}{'' if elected.is_elected else '-not-elected'}"
        body = body.replace(msgspec.json.encode(reply.id), msgspec.json.encode(mark))
    return body


def joined(bodies: Sequence[bytes]) -> bytes:
    """Join the replies of a chat that asks for several choices: the first, with the choice of each."""
    fields, choices, written = _object.decode(bodies[0]), [], 0
    for index, body in enumerate(bodies):
        other = _object.decode(body)
        choice = _object.decode(_list.decode(other["choices"])[0])
        choices.append(_written({**choice, "index": msgspec.Raw(b"%d" % index)}))
        written += int(
            msgspec.json.decode(other.get("usage", b"{}"), type=dict[str, Any]).get("completion_tokens") or 0
        )
    fields["choices"] = msgspec.Raw(b"[%s]" % b",".join(choices))
    if "usage" in fields:
        usage = msgspec.json.decode(fields["usage"], type=dict[str, Any])
        usage |= {"completion_tokens": written, "total_tokens": (usage.get("prompt_tokens") or 0) + written}
        fields["usage"] = msgspec.Raw(msgspec.json.encode(usage))
    return _written(fields)


def _marked_events(lines: Sequence[bytes], extras: bytes, *, without_usage: bool) -> list[bytes]:
    found = []
    for line in lines:
        event = _data_in(line) if b'"usage"' in line else None
        if event is None:
            found.append(line)
        elif not (without_usage and event.get("usage") and not event.get("choices")):
            head, _, data = line.partition(b"data:")
            found.append(head + b"data: " + _with_extras(data.strip(), extras))
    return found


def _data_in(line: bytes) -> dict[str, Any] | None:
    """Read the event of a line ``data: {...}``; None for any other line."""
    data = line.removeprefix(codecs.BOM_UTF8).strip()
    if not data.startswith(b"data:"):
        return None
    try:
        return object_in(decode(data.removeprefix(b"data:")))
    except UNREADABLE:
        return None


def _with_extras(body: bytes, extras: bytes) -> bytes:
    """Add the sums to the usage of a reply, or of the reply in an event; all other values stay as they are."""
    try:
        fields = _object.decode(body)
        place = "usage" if "usage" in fields else "response"
        inner = bytes(fields[place])
        if place == "response":
            inner = _with_extras(inner, extras)
        else:
            inner = _written({**_object.decode(inner), EXTRAS: msgspec.Raw(extras)})
    except (KeyError, msgspec.MsgspecError, ValueError):  # without usage
        return body
    return _written({**fields, place: msgspec.Raw(inner)})


def _written(fields: dict[str, msgspec.Raw]) -> bytes:
    return b"{%s}" % b",".join(msgspec.json.encode(name) + b":" + bytes(value) for name, value in fields.items())
