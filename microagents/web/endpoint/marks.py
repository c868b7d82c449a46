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
_NO_USAGE = msgspec.Raw(b"{}")
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
    """Join the replies of a chat that asks for several choices, whole or streamed: the first, with the choices of all."""
    if len(bodies) == 1:
        return bodies[0]
    if _data_in(bodies[0].partition(b"\n")[0]) is not None:
        return _joined_events(bodies)
    replies = [_numbered(_object.decode(body), index) for index, body in enumerate(bodies)]
    choices = [bytes(each["choices"])[1:-1] for each in replies]
    usage = _summed([each.get("usage", _NO_USAGE) for each in replies])
    return _written({**replies[0], "choices": msgspec.Raw(b"[%s]" % b",".join(choices)), "usage": usage})


def _joined_events(bodies: Sequence[bytes]) -> bytes:
    """Join the events of several choices, one after the other, with one usage at the end."""
    lines: list[bytes] = []
    counted: list[dict[str, msgspec.Raw]] = []
    for index, body in enumerate(bodies):
        for line in body.split(b"\n"):
            event = _data_in(line)
            if event is None:
                continue
            fields = _object.decode(line.partition(b"data:")[2])
            if event.get("choices"):
                lines.append(_written(_numbered(fields, index)))
            elif event.get("usage"):
                counted.append(fields)
    if counted:
        usage = _summed([each["usage"] for each in counted])
        lines.append(_written({**counted[0], "usage": usage}))
    return b"".join([b"data: %s\n\n" % line for line in (*lines, b"[DONE]")])


def _numbered(fields: dict[str, msgspec.Raw], index: int) -> dict[str, msgspec.Raw]:
    """Give the choice of a reply, or of an event of one, its index."""
    place = msgspec.Raw(b"%d" % index)
    choices = [_written({**_object.decode(each), "index": place}) for each in _list.decode(fields["choices"])]
    return {**fields, "choices": msgspec.Raw(b"[%s]" % b",".join(choices))}


def _summed(usages: Sequence[msgspec.Raw]) -> msgspec.Raw:
    """Return the first usage, with the output tokens of all."""
    found = [msgspec.json.decode(each, type=dict[str, Any] | None) or {} for each in usages]
    written = sum([each.get("completion_tokens") or 0 for each in found])
    total = (found[0].get("prompt_tokens") or 0) + written
    return msgspec.Raw(msgspec.json.encode({**found[0], "completion_tokens": written, "total_tokens": total}))


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
