"""Replies with calls of tools in the dialects of servers, on each wire, whole and streamed.

An edit changes a reply in its wire's standard form: a choice, a message, or a response. A stream cuts it into events.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain, count, zip_longest
from typing import Any

from msgspec import Struct

from tests.doubles.histories import seal

PLAIN, STREAMED = "plain", "streamed"
Object = dict[str, Any]
Edit = Callable[[Object], None]
Stream = Callable[[Object], list[Object]]
GOOGLES_THOUGHTS = 30
"""Tokens of thoughts, which Google counts in the total only."""
_serial = count(1)


class Call(Struct, frozen=True):
    """A call of a tool."""

    name: str
    arguments: Object


class Said(Struct, frozen=True):
    """What a model says."""

    calls: tuple[Call, ...] = ()
    text: str = ""
    reasoning: str = ""


def written(
    wire: str,
    family: str,
    dialect: str,
    replies: Sequence[Said],
    body: Mapping[str, Any],
    *,
    counts: Mapping[str, int] = {},
) -> Object | bytes:
    """Write replies to a request: an object, or the bytes of a stream.

    Args:
        wire: ``chat``, ``responses`` or ``messages``.
        family: whose chat it is.
        dialect: names of an edit and of a stream, or of one of them, with a dot between them.
        replies: as many as were asked for.
        body: the request.
        counts: usage of a message, in the place of its own.
    """
    named, model = dialect.split("."), str(body.get("model"))
    edit = next((EDITS[wire][name] for name in named if name in EDITS[wire]), plain)
    default = STREAMS[wire][STREAMED] if body.get("stream") else None
    stream = next((STREAMS[wire][name] for name in named if name in STREAMS[wire]), default)
    if wire == "chat":
        standard = [_choice(index, said, family, model) for index, said in enumerate(replies)]
    elif wire == "messages":
        standard = [_message(replies[0], model)]
        standard[0]["usage"] |= counts
    else:
        standard = [_response(replies[0], model, body.get("include", []))]
    for reply in standard:
        edit(reply)
    if wire == "chat":
        return _chat(standard, stream, model, thoughts=GOOGLES_THOUGHTS if family == "gemini" else 0)
    if stream is None:
        return standard[0]
    return b"".join(map(data, stream(standard[0])))


def data(event: Object) -> bytes:
    """Write an event of a stream, with its type as its name, which SDKs read."""
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event)}\n\n".encode()


def cut(text: str, number: int = 3) -> list[str]:
    """Cut a text into pieces."""
    size = max(1, -(-len(text) // number))
    return [text[at : at + size] for at in range(0, len(text), size)]


# -- edits -------------------------------------------------------------------------------------------------------------


def plain(reply: Object) -> None:
    """Leave the standard form."""


def calls_in(reply: Object) -> list[Object]:
    """List the calls of a reply on any wire, with their names and arguments beside each other."""
    if "message" in reply:
        return [call["function"] for call in reply["message"].get("tool_calls", ())]
    parts = reply["output"] if "output" in reply else reply["content"]
    return [part for part in parts if part["type"] in ("tool_use", "function_call")]


def with_ids(reply: Object, value: object) -> None:
    """Give all calls one id; none at all for ``...``."""
    holders, name = calls_in(reply), "id" if "output" not in reply else "call_id"
    for call in reply["message"].get("tool_calls", ()) if "message" in reply else holders:
        call[name] = value
        if value is ...:
            del call[name]


def with_arguments(reply: Object, write: Callable[[Object], object]) -> None:
    """Write the arguments of calls in another form; leave them out for ``...``."""
    for call in calls_in(reply):
        name = "input" if "input" in call else "arguments"
        given = call.pop(name)
        found = write(given if name == "input" else json.loads(given))
        if isinstance(found, dict) and name == "arguments":
            found = json.dumps(found)
        if found is not ...:
            call[name] = found


def in_place_of_none(value: object) -> Edit:
    """Write this for no arguments."""
    return partial(with_arguments, write=lambda found: found or value)


def twice(found: Object) -> str:
    """Encode the arguments once more than usual."""
    return json.dumps(json.dumps(found))


def parts_twice(found: Object) -> Object:
    """Encode arrays and objects in the arguments as texts."""
    return {name: json.dumps(each) if isinstance(each, dict | list) else each for name, each in found.items()}


def bare_arguments(reply: Object) -> None:
    """Write arguments as an object where their text is usual, and as a text where an object is."""
    for call in calls_in(reply):
        if "input" in call:
            call["input"] = json.dumps(call["input"])
        else:
            call["arguments"] = json.loads(call["arguments"])


def ending(reply: Object, reason: object) -> None:
    """End with this reason; without one for ``...``."""
    name = next(each for each in ("finish_reason", "stop_reason", "status") if each in reply)
    reply[name] = reason
    if reason is ...:
        del reply[name]


def as_text(reply: Object, before: str = "", end: str = "\n</tool_call>") -> None:
    """Write the calls into the text."""
    found = []
    for call in calls_in(reply):
        arguments = call.get("input") if "input" in call else json.loads(call["arguments"])
        found.append("<tool_call>\n" + json.dumps({"name": call["name"], "arguments": arguments}))
    text = before + "\n</tool_call>\n".join(found) + end
    if "message" in reply:
        reply["message"] = {"role": "assistant", "content": text}
        reply["finish_reason"] = "stop"
    elif "output" in reply:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        reply["output"] = [{"type": "message", "id": "msg_n1", "role": "assistant", "content": content}]
    else:
        reply["content"] = [{"type": "text", "text": text}]
        reply["stop_reason"] = "end_turn"


def without_item_ids(reply: Object) -> None:
    """Leave out reasoning, and the ids of items that are no ids of calls."""
    reply["output"] = [item for item in reply["output"] if item["type"] != "reasoning"]
    for item in reply["output"]:
        item.pop("id", None)


def with_empty_texts(reply: Object) -> None:
    """Put empty texts around the calls."""
    empty = {"type": "text", "text": ""}
    reply["content"] = [empty, *reply["content"], empty]


OF_ALL: Mapping[str, Edit] = {
    PLAIN: plain,
    "no id": partial(with_ids, value=...),
    "a null id": partial(with_ids, value=None),
    "an empty id": partial(with_ids, value=""),
    "one id": partial(with_ids, value="call_0"),
    "no end": partial(ending, reason=...),
    "a null end": partial(ending, reason=None),
    "an unknown end": partial(ending, reason="done_with_it"),
    "an empty text for no arguments": in_place_of_none(""),
    "white space for no arguments": in_place_of_none(" \n"),
    "null for no arguments": in_place_of_none(None),
    "nothing for no arguments": in_place_of_none(...),
    "arguments twice": partial(with_arguments, write=twice),
    "bare arguments": bare_arguments,
    "parts twice": partial(with_arguments, write=parts_twice),
    "text": as_text,
    "text without an end": partial(as_text, end=""),
    "text behind words": partial(as_text, before="I look that up.\n\n"),
}
EDITS: Mapping[str, Mapping[str, Edit]] = {
    "chat": {**OF_ALL, "an end of a text": partial(ending, reason="stop")},
    "responses": {**OF_ALL, "no item id": without_item_ids},
    "messages": {**OF_ALL, "an end of a text": partial(ending, reason="end_turn"), "empty texts": with_empty_texts},
}

# -- chat completions --------------------------------------------------------------------------------------------------


def _choice(index: int, said: Said, family: str, model: str) -> Object:
    message: Object = {"role": "assistant", "content": said.text or None}
    if said.calls:
        message["tool_calls"] = [_chat_call(call, family, model) for call in said.calls]
    if family == "deepseek":
        message["reasoning_content"] = f"{said.reasoning} {seal(model, *[call.name for call in said.calls])}"
    return {"index": index, "message": message, "finish_reason": "tool_calls" if said.calls else "stop"}


def _chat_call(call: Call, family: str, model: str) -> Object:
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    found = {"id": f"call_{next(_serial)}", "type": "function", "function": function}
    if family == "gemini":
        found["extra_content"] = {"google": {"thought_signature": seal(model, call.name)}}
    return found


def _chat(choices: list[Object], stream: Stream | None, model: str, *, thoughts: int) -> Object | bytes:
    written = 10 * len(choices)
    usage = {"prompt_tokens": 50, "completion_tokens": written, "total_tokens": 50 + written + thoughts}
    base = {"id": f"chatcmpl-{next(_serial)}", "created": 1, "model": model}
    if stream is None:
        return {**base, "object": "chat.completion", "choices": choices, "usage": usage}
    events = list[Object]()
    for choice in choices:
        message = choice.pop("message")
        first = {name: value for name, value in message.items() if name not in ("content", "tool_calls")}
        texts = [{"content": piece} for piece in cut(message["content"] or "", 5)]
        deltas = [first, *texts, *({"tool_calls": row} for row in stream(message))]
        events += [{"choices": [{"index": choice["index"], "delta": delta, "finish_reason": None}]} for delta in deltas]
        events.append({"choices": [{**choice, "delta": {}}]})
    events.append({"choices": [], "usage": usage})
    chunks = [data({**base, "object": "chat.completion.chunk", **event}) for event in events]
    return b"".join([*chunks, b"data: [DONE]\n\n"])


def in_pieces(
    message: Object, change: Callable[[Object, Object], Object], *, is_interleaved: bool = False
) -> list[Any]:
    """Stream the arguments of calls in pieces, a row of them in each event.

    Args:
        message: the message.
        change: makes a piece of the call and the standard piece.
        is_interleaved: whether each event has a piece of each call.
    """
    streams = []
    for index, call in enumerate(message.get("tool_calls", ())):
        function, given = call["function"], call["function"].get("arguments")
        is_text = isinstance(given, str)
        begun = {"index": index, **call, "function": {**function, "arguments": ""} if is_text else function}
        parts = [{"index": index, "function": {"arguments": piece}} for piece in cut(given if is_text else "")]
        streams.append([change(call, piece) for piece in [begun, *parts]])
    if is_interleaved:
        return [[piece for piece in row if piece] for row in zip_longest(*streams)]
    return [[piece] for piece in chain.from_iterable(streams)]


def as_it_is(_: Object, piece: Object) -> Object:
    """Leave the standard piece."""
    return piece


def without_index(_: Object, piece: Object) -> Object:
    """Leave out the index: pieces continue the last call."""
    return {name: value for name, value in piece.items() if name != "index"}


def with_id(call: Object, piece: Object) -> Object:
    """Name the call in each piece by its id instead of its index."""
    return without_index(call, {**piece, **({"id": call["id"]} if "id" in call else {})})


def with_name(call: Object, piece: Object) -> Object:
    """Write the name of the tool into each piece."""
    return {**piece, "function": {**piece["function"], "name": call["function"]["name"]}}


def id_behind(message: Object) -> list[Any]:
    """Stream the rest of a call, with its id or its signature, behind its arguments."""
    rows = []
    for index, call in enumerate(message.get("tool_calls", ())):
        rest = {name: value for name, value in call.items() if name not in ("function", "type")}
        rows += [[{"index": index, "function": call["function"]}], [{"index": index, **rest}]]
    return rows


def whole_calls(message: Object, index: Callable[[int], Object]) -> list[Any]:
    """Stream a call an event."""
    return [[{**index(number), **call}] for number, call in enumerate(message.get("tool_calls", ()))]


def so_far(message: Object) -> list[Any]:
    """Stream the list of calls so far in each event."""
    calls = message.get("tool_calls", ())
    return [calls[: end + 1] for end in range(len(calls))]


CHAT_STREAMS: Mapping[str, Stream] = {
    STREAMED: partial(in_pieces, change=as_it_is),
    "streamed interleaved": partial(in_pieces, change=as_it_is, is_interleaved=True),
    "streamed without index": partial(in_pieces, change=without_index),
    "streamed with an id on each": partial(in_pieces, change=with_id),
    "streamed with a name on each": partial(in_pieces, change=with_name),
    "streamed with the id behind": id_behind,
    "streamed whole without index": partial(whole_calls, index=lambda _: {}),
    "streamed with an index later": partial(whole_calls, index=lambda number: {"index": number} if number else {}),
    "streamed all of index 0": partial(whole_calls, index=lambda _: {"index": 0}),
    "streamed at once": lambda message: [message["tool_calls"]] if "tool_calls" in message else [],
    "streamed lists so far": so_far,
}

# -- messages ----------------------------------------------------------------------------------------------------------

BLOCKS = {
    "tool_use": ("input", "input_json_delta", "partial_json"),
    "thinking": ("thinking", "thinking_delta", "thinking"),
    "text": ("text", "text_delta", "text"),
}
"""By type of a block the field that is streamed, the type of its deltas, and their field."""


def _message(said: Said, model: str) -> Object:
    content: list[Object] = []
    if said.reasoning:
        content.append({"type": "thinking", "thinking": said.reasoning, "signature": seal(model, said.reasoning)})
    if said.text:
        content.append({"type": "text", "text": said.text})
    content += [_use(call) for call in said.calls]
    reason = "tool_use" if said.calls else "end_turn"
    usage = {"input_tokens": 50, "output_tokens": 10}
    return {"type": "message", "role": "assistant", "content": content, "stop_reason": reason, "usage": usage}


def _use(call: Call) -> Object:
    return {"type": "tool_use", "id": f"toolu_{next(_serial)}", "name": call.name, "input": call.arguments}


def blocks(message: Object, *, is_cut: bool = True, has_index: bool = True) -> list[Object]:
    """Stream the blocks of a message, each in pieces or whole in its start."""
    events: list[Object] = [{"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}]
    for index, block in enumerate(message["content"]):
        place = {"index": index} if has_index else {}
        field, kind, name = BLOCKS[block["type"]]
        given = block.get(field, {})
        text = given if isinstance(given, str) else json.dumps(given)
        begun, deltas = block, list[Object]()
        if is_cut:
            begun = {**block, field: {} if field == "input" else ""} if field in block else block
            deltas = [{"type": kind, name: piece} for piece in cut(text if field in block else "")]
        if is_cut and "signature" in block:
            begun["signature"] = ""
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        events.append({"type": "content_block_start", **place, "content_block": begun})
        events += [{"type": "content_block_delta", **place, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", **place})
    delta = {"stop_reason": message.get("stop_reason")}
    return [
        *events,
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 10}},
        {"type": "message_stop"},
    ]


def whole_then_empty(message: Object) -> list[Object]:
    """Stream the blocks of a message whole in their starts, each with an empty piece behind it."""
    events = list[Object]()
    for event in blocks(message, is_cut=False):
        events.append(event)
        if event["type"] == "content_block_start":
            _, kind, name = BLOCKS[event["content_block"]["type"]]
            events.append({"type": "content_block_delta", "index": event["index"], "delta": {"type": kind, name: ""}})
    return events


MESSAGE_STREAMS: Mapping[str, Stream] = {
    STREAMED: blocks,
    "streamed whole": partial(blocks, is_cut=False),
    "streamed whole and an empty piece": whole_then_empty,
    "streamed without index": partial(blocks, has_index=False),
}

# -- responses ---------------------------------------------------------------------------------------------------------


def _response(said: Said, model: str, include: Sequence[str]) -> Object:
    serial, output = next(_serial), list[Object]()
    mark = f"{'r' if said.reasoning else 'n'}{serial}"
    if said.reasoning:
        whole = {"encrypted_content": seal(model, f"rs_{mark}")} if "reasoning.encrypted_content" in include else {}
        output.append({"type": "reasoning", "id": f"rs_{mark}", "summary": [], **whole})
    if said.text:
        content = [{"type": "output_text", "text": said.text, "annotations": []}]
        output.append({"type": "message", "id": f"msg_{mark}", "role": "assistant", "content": content})
    for number, call in enumerate(said.calls):
        place = {"id": f"fc_{mark}_{number}", "call_id": f"call_{serial}_{number}"}
        output.append({"type": "function_call", **place, "name": call.name, "arguments": json.dumps(call.arguments)})
    usage = {"input_tokens": 50, "output_tokens": 10}
    return {"object": "response", "id": f"resp_{serial}", "status": "completed", "output": output, "usage": usage}


def items(response: Object, *, has_done: bool = True, ends: Callable[[Object], list[Object]]) -> list[Object]:
    """Stream the items of a response, in pieces and, unless told otherwise, whole when they are done."""
    events: list[Object] = [
        {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}}
    ]
    for index, item in enumerate(response["output"]):
        place: Object = {"output_index": index, "item_id": item.get("id")}
        begun, kind, text = item, "function_call_arguments", item.get("arguments")
        if item["type"] == "function_call" and isinstance(text, str):
            begun = {**item, "arguments": ""}
        elif item["type"] == "message":
            kind, text, begun = "output_text", item["content"][0]["text"], {**item, "content": []}
            place["content_index"] = 0
        events.append({"type": "response.output_item.added", "output_index": index, "item": begun})
        if kind == "output_text":
            events.append({"type": "response.content_part.added", **place, "part": {**item["content"][0], "text": ""}})
        if isinstance(text, str):
            events += [{"type": f"response.{kind}.delta", **place, "delta": piece} for piece in cut(text)]
        if has_done:
            events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    return [*events, *({"type": "response.completed", "response": each} for each in ends(response))]


RESPONSE_STREAMS: Mapping[str, Stream] = {
    STREAMED: partial(items, ends=lambda response: [response]),
    "streamed with nothing at the end": partial(items, ends=lambda response: [{**response, "output": []}]),
    "streamed deltas": partial(items, has_done=False, ends=lambda response: [{**response, "output": []}]),
    "streamed without an end": partial(items, ends=lambda _: []),
}
STREAMS: Mapping[str, Mapping[str, Stream]] = {
    "chat": CHAT_STREAMS,
    "responses": RESPONSE_STREAMS,
    "messages": MESSAGE_STREAMS,
}
