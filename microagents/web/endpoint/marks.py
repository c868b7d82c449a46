"""Marks of a reply that was elected: the number of its election in its id, and the sums over all samples beside its usage."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
from msgspec import Raw

from microagents.elections.election import total_usd
from microagents.models.http.events import is_streamed
from microagents.web.endpoint.asked import EMPTY, NULL
from microagents.web.endpoint.exchange import ForwardedReply
from microagents.web.endpoint.served_elections import ElectedReply
from microagents.web.endpoint.wires import CHAT

EXTRAS = "microagents"
"""Name of the object beside the counts of a usage."""
Fields = Mapping[str, Any]
"""The fields of an object, as bytes unless they are set."""
_WHOLE = ("response", "message")
"""Fields of events that have the whole reply."""
_object = msgspec.json.Decoder(dict[str, Raw])
_list = msgspec.json.Decoder(list[Raw])


def sums_of(elected: Sequence[ElectedReply]) -> Fields:
    """Return the sums of an answer, over the elections of all its choices; the number is that of the first."""
    every = [each.sums for each in elected]
    sums = {
        name: sum([each[name] for each in every]) for name in ("samples", "in_flight", "input_tokens", "output_tokens")
    }
    return {
        "election": every[0]["election"],
        "elected": all(each["elected"] for each in every),
        "votes": ", ".join([each["votes"] for each in every]),
        **sums,
        "cost_usd": total_usd([each["cost_usd"] for each in every]),
    }


def headers_of(sums: Fields) -> dict[str, str]:
    """Write the sums of an election as headers."""
    return {f"x-microagents-{name.replace('_', '-')}": str(value).lower() for name, value in sums.items()}


def marked(elected: Sequence[ElectedReply], sums: Fields) -> bytes:
    """Return the bytes of a reply with its marks; of a chat that asks for several choices the first reply, with the choices of all."""
    bodies = [_marked(elected, index, sums) for index in range(len(elected))]
    if len(bodies) == 1:
        return bodies[0]
    if is_streamed(elected[0].reply.body):
        return b"".join([*map(_without_end, bodies[:-1]), bodies[-1]])
    replies = [_object.decode(each) for each in bodies]
    choices = [_list.decode(each["choices"]) for each in replies]
    return msgspec.json.encode({**replies[0], "choices": [*chain.from_iterable(choices)]})


def _without_end(stream: bytes) -> bytes:
    """Return a stream without the event that ends all, so that another one may follow."""
    lines = [line for line in stream.splitlines() if line.removeprefix(b"data:").strip() != b"[DONE]"]
    return b"\n".join([*lines, b"", b""])


def _marked(elected: Sequence[ElectedReply], index: int, sums: Fields) -> bytes:
    """Return the reply that gives the choice with an index."""
    one = elected[index]
    reply, asked = one.reply, one.exchange.asked
    is_last = one is elected[-1]
    written = sum([each.reply.usage.output_tokens or 0 for each in elected])
    end = "" if sums["elected"] else "-not-elected"
    mark = f"{elected[0].reply.id}-e{sums['election']}{end}"

    def edit(fields: Fields) -> Fields:
        """Return the object of a reply, or of an event of one, with its marks; without fields it is left out."""
        edited = dict(fields)
        if reply.id and msgspec.json.decode(fields.get("id", NULL)) == reply.id:
            edited["id"] = mark
        if index and "choices" in fields:
            choices = [_object.decode(each) for each in _list.decode(fields["choices"])]
            edited["choices"] = [{**each, "index": index} for each in choices]
        if fields.get("usage", NULL) == NULL:
            return edited
        is_alone = is_streamed(reply.body) and asked.wire is CHAT and fields.get("choices") in (None, EMPTY)
        if is_alone and not (asked.wants_usage and is_last):
            return {}
        edited["usage"] = {**msgspec.json.decode(fields["usage"], type=dict[str, Any]), EXTRAS: sums}
        if len(elected) > 1:
            total = (reply.usage.input_tokens or 0) + written
            edited["usage"] |= {"completion_tokens": written, "total_tokens": total}
        return edited

    return _edited(reply, edit)


def _edited(reply: ForwardedReply, edit: Callable[[Fields], Fields]) -> bytes:
    """Edit the object of a reply, or those of its events; an event of several lines, or one that is no object, stays as it is."""

    def edited(data: bytes) -> bytes:
        """Edit an object."""
        try:
            if reply.is_bare:
                data = _without_logprobs(data)
            fields = _edited_fields(_object.decode(data), edit)
        except (msgspec.MsgspecError, ValueError):
            return data
        if not fields:
            return b""
        return msgspec.json.encode(fields)

    plain = reply.body.removeprefix(codecs.BOM_UTF8)
    if not is_streamed(reply.body):
        return edited(plain)
    lines = []
    for line in plain.split(b"\n"):
        data = line.removeprefix(b"data:")
        if data == line:
            lines.append(line)
        elif found := edited(data.strip()):
            lines.append(b"data: " + found)
    return b"\n".join(lines)


def _edited_fields(fields: dict[str, Any], edit: Callable[[Fields], Fields]) -> Fields:
    """Edit an object, and the whole reply in it."""
    for name in _WHOLE:
        if name in fields:
            fields[name] = edit(_object.decode(fields[name]))
    return edit(fields)


def _without_logprobs(data: bytes) -> bytes:
    if b'"logprobs"' not in data:
        return data
    return msgspec.json.encode(json.loads(data, strict=False, object_hook=_emptied))


def _emptied(found: dict[str, Any]) -> dict[str, Any]:
    if found.get("logprobs"):
        found["logprobs"] = [] if isinstance(found["logprobs"], list) else None
    return found
