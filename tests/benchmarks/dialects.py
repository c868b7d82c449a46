"""Dialects of the wires, each of which a person could read: `python -m tests.benchmarks.dialects [--part P] [--shift N]`.

A server on 127.0.0.1 answers a run in one dialect after the other, on the wires of chat completions (streamed and not), responses and
messages. A dialect combines forms of content, end, usage and envelope, or is an error in one of the forms of servers; it states what a
person reads in it. A paid reply is thrown away if its text is not the result, if it is flagged, or if it is bought again. An error that a
person would call final ends the run in the server's words, after two requests at most (of several votes: one more for each).
``--shift`` makes other combinations of the same
forms. Part ``ends`` invents names of finish reasons, part ``mcp`` results of tools of an MCP server.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import re
import string
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Literal
from unittest.mock import patch

import structlog
from msgspec import Struct

from microagents import AgentTask, Call, ChainTask, McpServer, Prompt, Reply, Result, RowTask, Sampling, run
from microagents.base.errors import MicroagentsError
from microagents.roles.solver import outages
from microagents.systems import Maker
from microagents.systems.agents import act
from microagents.systems.agents.act import Act
from tests.benchmarks.harness import options_of
from tests.models.server import Connection, raw, serving

Body = dict[str, Any]
Forms = Mapping[str, str]
"""JSON with names for what differs."""
Expected = Literal["text", "flag", "final", "passing", "told"]
WORD = "Łódź №7"
TEXT = f'word = "{WORD}"'
THOUGHT = "weigh it: the seventh"
WORDS = "the plan Ωmega-9 does not allow it"
K = 3
"""Votes of a request whose choices are streamed."""
OUTAGE_S = 1.0
"""Time that a run waits for a dialect that it does not understand."""


class Word(Reply, frozen=True):
    word: str


class Asked(RowTask[Word]):
    """One question."""

    def prompt(self, row: Any) -> Prompt:  # noqa: ARG002 - the same for all
        return Prompt(system="Name the place.", user="Which?")


class Chain(ChainTask[int, Word]):
    """The same question once a step, whose votes come in one request."""

    sampling = Sampling(first_temperature=0.1)  # so that the first sample comes with the others

    def start(self) -> int:
        return 0

    def done(self, state: int) -> bool:
        return state == 1

    def prompt(self, state: int) -> Prompt:  # noqa: ARG002 - the same for all
        return Prompt(system="Name the place.", user="Which?")

    def advance(self, state: int, reply: Word) -> int:
        if reply.word != WORD:
            raise ValueError(f"read {reply.word!r}")
        return state + 1


class Sent(Struct, frozen=True, kw_only=True):
    """An answer of the server."""

    body: bytes
    status: int = 200
    kind: str | None = "application/json"
    """Its content type; None for no such header."""


class Dialect(Struct, frozen=True, kw_only=True):
    """One way to answer."""

    name: str
    wire: str
    expected: Expected
    """Whether a person reads the text, a text that is not whole or no reply at all, a final error, one that passes, or an error of
    which nobody can tell."""
    reads: str
    """The text, the name of the flag, or the words of the error."""
    answer: Callable[[int], Sent]
    """Its answer to a request for a number of choices."""
    streamed: bool = False


class Tried(Struct, frozen=True, kw_only=True):
    """Failures of a dialect, as sentences; empty if there is none."""

    dialect: Dialect
    thrown_away: str = ""
    bought_again: str = ""
    unclear: str = ""


def encoded(value: object) -> bytes:
    """Return JSON without escapes."""
    return json.dumps(value, ensure_ascii=False).encode()


def filled(form: str, **values: object) -> Any:
    """The JSON of a form, with values in the place of its names in capitals."""
    values |= {"THOUGHT": THOUGHT}
    return json.loads(re.sub("|".join(values), lambda found: json.dumps(values[found[0]]), form))


def with_text(form: str, text: str) -> Any:
    """A form of content with a text, or with two halves of it."""
    return filled(form, TEXT=text, HEAD=text[:5], TAIL=text[5:])


def message(content: object, **more: object) -> Body:
    """A choice of chat completions."""
    return {"message": {"role": "assistant", "content": content, **more}}


# ------------------------------------------------------------------------------------------------ whole replies

CONTENTS: Forms = {
    "a part": '[{"type": "text", "text": TEXT}]',
    "two parts": '[{"type": "text", "text": HEAD}, {"type": "text", "text": TAIL}]',
    "an empty part first": '[{"type": "text", "text": ""}, {"type": "text", "text": TEXT}]',
    "a null part": '[null, {"type": "text", "text": TEXT}, null]',
    "thinking in parts, then text": (
        '[{"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]}, {"type": "text", "text": TEXT}]'
    ),
    "thinking as a text, then text": (
        '[{"type": "thinking", "thinking": THOUGHT, "signature": "c2ln"}, {"type": "text", "text": TEXT}]'
    ),
    "hidden thinking, then text": (
        '[{"type": "redacted_thinking", "data": "c2ln"}, {"type": "text", "text": TEXT, "citations": null}]'
    ),
    "a part of reasoning, then text": (
        '[{"type": "reasoning", "text": THOUGHT}, {"type": "output_text", "text": TEXT, "annotations": []}]'
    ),
    "parts that are texts": "[HEAD, TAIL]",
    "a text": "TEXT",
    "a part without a type": '[{"text": TEXT}]',
    "a part of its own": '{"type": "text", "text": TEXT}',
    "a part whose text has a value": '[{"type": "text", "text": {"value": TEXT}}]',
}
"""Of chat completions and of messages."""
CHOICES: Forms = {
    "reasoning_content beside": '{"message": {"content": TEXT, "reasoning_content": THOUGHT}}',
    "reasoning beside": (
        '{"message": {"content": TEXT, "reasoning": THOUGHT, "reasoning_details": [{"text": THOUGHT}]}}'
    ),
    "every field, null": (
        '{"message": {"content": TEXT, "refusal": null, "tool_calls": null, "function_call": null, "audio": null, '
        '"annotations": null, "reasoning_content": null}}'
    ),
    "empty lists": '{"message": {"content": TEXT, "tool_calls": [], "annotations": [], "refusal": ""}}',
    "text without a message": '{"text": TEXT}',
    "a delta instead of a message": '{"delta": {"role": "assistant", "content": TEXT}}',
    "a delta beside a null message": '{"message": null, "delta": {"content": TEXT}}',
    "a message that is a text": '{"message": TEXT}',
}
"""Of chat completions only."""
OUTPUTS: Forms = {
    "a message": '{"output": [{"type": "message", "content": [{"type": "output_text", "text": TEXT, "annotations": []}]}]}',
    "reasoning first": (
        '{"output": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": THOUGHT}]}, '
        '{"type": "message", "content": [{"type": "output_text", "text": TEXT}]}]}'
    ),
    "reasoning with content first": (
        '{"output": [{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": THOUGHT}], '
        '"encrypted_content": "x"}, {"type": "message", "content": [{"type": "output_text", "text": TEXT}]}]}'
    ),
    "two parts": (
        '{"output": [{"type": "message", "content": [{"type": "output_text", "text": HEAD}, '
        '{"type": "output_text", "text": TAIL}]}]}'
    ),
    "a part of type text": '{"output": [{"type": "message", "content": [{"type": "text", "text": TEXT}]}]}',
    "a text": '{"output": [{"type": "message", "content": TEXT}]}',
    "a null item": '{"output": [null, {"type": "message", "content": [{"type": "output_text", "text": TEXT, "logprobs": null}]}]}',
    "no type": '{"output": [{"role": "assistant", "content": [{"text": TEXT}]}]}',
    "output_text beside": (
        '{"output": [{"type": "message", "content": [{"type": "output_text", "text": TEXT}]}], "output_text": TEXT}'
    ),
    "output_text only": '{"output_text": TEXT}',
    "an item of text": '{"output": [{"type": "output_text", "text": TEXT}]}',
    "output that is a text": '{"output": TEXT}',
}
"""Of responses."""
FORMS_BY_WIRE: Mapping[str, Forms] = {
    "openai": {**CONTENTS, **CHOICES},
    "anthropic": CONTENTS,
    "openai-responses": OUTPUTS,
}
ENDS: Sequence[object] = (
    *(
        "stop",
        ...,
        None,
        "",
        "eos",
        "eos_token",
        "end_turn",
        "STOP",
        "stop_sequence",
        "completed",
        "done",
        "tool_calls",
    ),
    *("FINISH_REASON_STOP", "function_call", "finished", "normal", "end_of_text", "<|im_end|>", 1, "stop_string"),
)
"""Names of a normal end; ``...`` is none."""
CUT: Sequence[str] = ("length", "max_tokens", "MAX_TOKENS", "model_length", "model_context_window_exceeded")
FILTERED: Sequence[str] = ("content_filter", "SAFETY", "refusal", "PROHIBITED_CONTENT", "RECITATION")
STATUSES: Sequence[object] = ("completed", ..., None, "", "complete", "done", "COMPLETED", "succeeded", "stop")
USAGES: Sequence[object] = (
    {"prompt_tokens": 50, "completion_tokens": 10, "input_tokens": 50, "output_tokens": 10, "total_tokens": 60},
    *(..., None, {}, [], "60", {"total_tokens": 60}, {"prompt_tokens": None, "completion_tokens": None}),
    {"prompt_tokens": 50.0, "completion_tokens": 10.0, "input_tokens": 50.0, "output_tokens": 10.0},
    {"prompt_tokens": 50, "completion_tokens": 10, "prompt_tokens_details": None, "completion_tokens_details": None},
    {"queue_time": 0.01, "input_tokens": 50, "output_tokens": 10, "cache_read_input_tokens": None},
)
INDICES: Sequence[object] = (0, ..., None, "0", 0.0)
ENVELOPES: Mapping[str, Callable[[Body], Sent]] = {
    "as documented": lambda body: Sent(body=encoded({"id": "x", "object": "o", "created": 1, "model": "m", **body})),
    "bare": lambda body: Sent(body=encoded(body)),
    "error: null beside": lambda body: Sent(body=encoded({**body, "error": None})),
    "an empty error and a code beside": lambda body: Sent(body=encoded({**body, "error": "", "code": 200})),
    "an empty object as the error": lambda body: Sent(body=encoded({"error": {}, "detail": None, **body})),
    "blank lines first": lambda body: Sent(body=b"\n\n   \r\n" + encoded(body)),
    "a byte order mark": lambda body: Sent(body=b"\xef\xbb\xbf" + encoded(body)),
    "text/plain": lambda body: Sent(body=encoded(body), kind="text/plain; charset=utf-8"),
    "no content type": lambda body: Sent(body=json.dumps(body).encode() + b"\n", kind=None),
    "status 201": lambda body: Sent(body=encoded({**body, "message": "ok", "success": True}), status=201),
    "a message of its own": lambda body: Sent(body=encoded({**body, "message": "success", "code": 0, "warnings": []})),
}


def spread(count: int, shift: int, *axes: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """Combine the members of some axes so that each member of each is met, in other combinations by another shift."""
    lists = [list(axis) for axis in axes]
    for number in range(count):
        turn = number // len(lists[0]) + shift
        yield tuple(axis[(number + turn * place) % len(axis)] for place, axis in enumerate(lists))


def named(name: str, value: object) -> Body:
    """An object with a field, or without it if the value is ``...``."""
    return {} if value is ... else {name: value}


def shown(value: object) -> str:
    return "missing" if value is ... else repr(value)


def chat_body(choice: Body, end: object, usage: object = ..., index: object = 0) -> Body:
    choices = [{**named("index", index), **choice, **named("finish_reason", end)}]
    return {"choices": choices, **named("usage", usage)}


def messages_body(content: object, end: object, usage: object = ...) -> Body:
    return {"type": "message", "content": content, **named("stop_reason", end), **named("usage", usage)}


def said(wire: str, form: str, text: str, end: object, *, usage: object = ..., index: object = 0) -> Body:
    """A reply on a wire in one of its forms of content."""
    content = with_text(FORMS_BY_WIRE[wire][form], text)
    if wire == "openai":
        return chat_body(content if form in CHOICES else message(content), end, usage, index)
    if wire == "anthropic":
        return messages_body(content, end, usage)
    return {**content, **named("status", end), **named("usage", usage)}


def whole_replies(shift: int) -> Iterator[Dialect]:
    """Replies that are not streamed, with a whole text."""
    for wire, ends, count in (("openai", ENDS, 60), ("anthropic", ENDS, 33), ("openai-responses", STATUSES, 24)):
        axes = (FORMS_BY_WIRE[wire], ends, USAGES, ENVELOPES, INDICES)
        for form, end, usage, envelope, index in spread(count, shift, *axes):
            sent = ENVELOPES[envelope](said(wire, form, TEXT, end, usage=usage, index=index))
            name = f"{wire}: {form}; end {shown(end)}; usage {shown(usage)}; {envelope}; index {shown(index)}"
            yield Dialect(name=name, wire=wire, expected="text", reads=WORD, answer=lambda _, sent=sent: sent)  # type: ignore[misc]


def flagged_replies() -> Iterator[Dialect]:
    """Replies that are no whole text, as a person sees too."""

    def flagged(name: str, wire: str, flag: str, body: Body) -> Dialect:
        sent = Sent(body=encoded(body))
        return Dialect(name=f"{wire}: {name}", wire=wire, expected="flag", reads=flag, answer=lambda _: sent)

    half = TEXT[:9]
    for end in CUT:
        yield flagged(f"cut off, called {end}", "openai", "cut_off", said("openai", "a part", half, end))
        yield flagged(f"cut off, called {end}", "anthropic", "cut_off", said("anthropic", "a part", half, end))
    for reason in ("max_output_tokens", "max_tokens", "length"):
        body = {**said("openai-responses", "a text", half, "incomplete"), "incomplete_details": {"reason": reason}}
        yield flagged(f"incomplete by {reason}", "openai-responses", "cut_off", body)
    for end in FILTERED:
        choice: Body = {"index": 0, "finish_reason": end}
        for form, body in {
            "null content": chat_body(message(None), end),
            "no message": {"choices": [choice]},
            "a null message": {"choices": [{**choice, "message": None}]},
        }.items():
            flag = "refusal" if end == "refusal" else "content_filter"
            yield flagged(f"filtered, called {end}, {form}", "openai", flag, body)
    for name, choice in {
        "reasoning_content": message(None, reasoning_content=TEXT),
        "reasoning": message("", reasoning=TEXT),
        "a thinking part": message([{"type": "thinking", "thinking": [{"type": "text", "text": TEXT}]}]),
    }.items():
        yield flagged(f"the answer in {name}", "openai", "only_reasoning", chat_body(choice, "stop"))
    only = messages_body([{"type": "thinking", "thinking": TEXT}], "end_turn")
    yield flagged("the answer in a thinking block", "anthropic", "only_reasoning", only)
    yield flagged("a refusal without content", "anthropic", "refusal", messages_body([], "refusal"))
    yield flagged("a refusal with null content", "anthropic", "refusal", messages_body(None, "refusal"))
    refusal = chat_body(message(None, refusal="I cannot help with that."), "stop")
    yield flagged("a refusal beside the content", "openai", "refusal", refusal)
    part = {"type": "refusal", "refusal": "I cannot help with that."}
    yield flagged(
        "a part of refusal",
        "openai-responses",
        "refusal",
        {"output": [{"type": "message", "content": [part]}], "status": "completed"},
    )


# ------------------------------------------------------------------------------------------------ errors

ERRORS: Forms = {
    "as OpenAI": '{"error": {"message": WORDS, "type": "invalid_request_error", "param": null, "code": CODE}}',
    "as OpenAI, the code a text": '{"error": {"message": WORDS, "code": "CODE"}}',
    "as Anthropic": '{"type": "error", "error": {"type": TYPE, "message": WORDS}}',
    "as OpenRouter": (
        '{"error": {"message": "Provider returned error", "code": CODE, "metadata": {"raw": WORDS}}, "user_id": "u"}'
    ),
    "flat, as vLLM": '{"object": "error", "message": WORDS, "type": "E", "code": CODE}',
    "statusCode and message": '{"statusCode": CODE, "message": WORDS, "error": "Bad"}',
    "as Google": '[{"error": {"code": CODE, "message": WORDS, "status": "S", "details": []}}]',
    "as Cloudflare": '{"success": false, "errors": [{"code": CODE, "message": WORDS}], "result": null}',
    "a status in the error": '{"error": {"status": CODE, "message": WORDS}}',
    "a status beside": '{"status": CODE, "title": "Problem", "detail": WORDS}',
    "nested twice": '{"error": {"error": {"message": WORDS, "code": CODE}}}',
    "JSON in the message": '{"error": {"message": INNER, "code": CODE}}',
}
"""Forms that tell their code."""
TYPES: Mapping[int, str] = {
    400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
    404: "not_found_error", 413: "request_too_large", 422: "invalid_request_error", 429: "rate_limit_error",
    500: "api_error", 502: "api_error", 503: "overloaded_error", 504: "timeout_error", 529: "overloaded_error",
}  # fmt: skip
CODELESS: Forms = {
    "detail": '{"detail": WORDS}',
    "detail as a list": '{"detail": [{"loc": ["body", "messages"], "msg": WORDS, "type": "value_error", "input": "x"}]}',
    "detail as an object": '{"detail": {"message": WORDS, "code": "nope"}}',
    "message": '{"message": WORDS}',
    "Message, as AWS": '{"Message": WORDS, "__type": "ValidationException"}',
    "msg": '{"code": 17, "msg": WORDS, "data": null}',
    "error as a text": '{"error": WORDS}',
    "errors as texts": '{"errors": [WORDS]}',
    "error as a list": '{"error": [{"message": WORDS}]}',
    "a list of texts": "[WORDS]",
    "error_description": '{"error": "invalid_request", "error_description": WORDS}',
    "reason": '{"status": "error", "reason": WORDS}',
    "fault": '{"fault": {"faultstring": WORDS, "detail": {"errorcode": "e"}}}',
    "a JSON text": "WORDS",
    "HTML": "<html><head><title>Error</title></head><body><h1>No</h1><p>WORDS</p></body></html>",
    "plain text": "WORDS",
    "XML": '<?xml version="1.0" encoding="UTF-8"?><Error><Code>Denied</Code><Message>WORDS</Message></Error>',
    "an event": 'event: error\ndata: {"error": {"message": "WORDS"}}\n\n',
}
"""Forms without a code; some are no JSON."""
NO_JSON = ("HTML", "plain text", "XML", "an event")
FINAL: Sequence[int] = (400, 401, 402, 403, 404, 422)
PASSING: Sequence[int] = (429, 500, 502, 503, 529)
WIRES: Sequence[str] = ("openai", "openai-responses", "anthropic")


def error_of(form: str, code: int = 400) -> Any:
    """An error in a form, as an object of JSON or in bytes."""
    if form in NO_JSON:
        return CODELESS[form].replace("WORDS", WORDS).encode()
    inner = json.dumps({"error": {"message": WORDS}})
    text = {**ERRORS, **CODELESS}[form].replace('"CODE"', f'"{code}"')
    return filled(text, WORDS=WORDS, CODE=code, TYPE=TYPES[code], INNER=inner)


def error_body(form: str, code: int = 400) -> bytes:
    made = error_of(form, code)
    return made if isinstance(made, bytes) else encoded(made)


def errors(shift: int) -> Iterator[Dialect]:
    """Error objects under status 200, and errors of every status in any form."""
    expected: Expected

    def failing(name: str, wire: str, expected: Expected, sent: Sent) -> Dialect:
        return Dialect(name=f"{wire}: {name}", wire=wire, expected=expected, reads=WORDS, answer=lambda _: sent)

    for form, code, wire in spread(36, shift, ERRORS, [*FINAL, *PASSING], WIRES):
        expected = "final" if code in FINAL else "passing"
        sent = Sent(body=error_body(form, code))
        yield failing(f"error {code} under status 200, {form}", wire, expected, sent)
    for form, status, wire in spread(60, shift, [*ERRORS, *CODELESS], (400, 401, 403, 404, 405, 410, 413, 422), WIRES):
        yield failing(f"status {status}, {form}", wire, "final", Sent(body=error_body(form), status=status))
    for form, status, wire in spread(30, shift, CODELESS, (408, 429, 500, 502, 503, 504, 520, 529), WIRES):
        yield failing(f"status {status}, {form}", wire, "passing", Sent(body=error_body(form), status=status))
    for form, wire in spread(18, shift, CODELESS, WIRES):
        yield failing(f"{form} under status 200", wire, "told", Sent(body=error_body(form)))
    for code, expected in ((402, "final"), (400, "final"), (429, "passing"), (502, "passing")):
        choice = {"index": 0, "message": {"content": ""}, "finish_reason": "error"}
        choice["error"] = {"code": code, "message": WORDS}
        yield failing(f"error {code} in the choice", "openai", expected, Sent(body=encoded({"choices": [choice]})))
        empty = {"choices": [], "error": {"code": code, "message": WORDS}}
        yield failing(f"error {code} beside choices: []", "openai", expected, Sent(body=encoded(empty)))
    for code, expected in (
        ("rate_limit_exceeded", "passing"),
        ("server_error", "passing"),
        ("invalid_prompt", "final"),
        ("insufficient_quota", "final"),
    ):
        failed = {"status": "failed", "output": [], "error": {"code": code, "message": WORDS}}
        yield failing(f"failed by {code}", "openai-responses", expected, Sent(body=encoded(failed)))


# ------------------------------------------------------------------------------------------------ streams


def chunk(index: object, delta: object, end: object = None, **more: object) -> Body:
    choice = {**named("index", index), **named("delta", delta), **named("finish_reason", end)}
    return {"id": "x", "object": "chat.completion.chunk", "choices": [choice], **more}


def cut_in(text: str, size: int = 4) -> list[str]:
    return ["".join(each) for each in (text[at : at + size] for at in range(0, len(text), size))]


def deltas(number: int, content: Callable[[str], Body], end: object = "stop", size: int = 4) -> list[Any]:
    """The choices by turns, in pieces, each with an end in a chunk of its own."""
    pieces = [chunk(index, content(piece)) for piece in cut_in(TEXT, size) for index in range(number)]
    return pieces + [chunk(index, {}, end) for index in range(number)]


def plain(piece: str) -> Body:
    return {"content": piece}


def without_ends(number: int) -> list[Any]:
    return [each for each in deltas(number, plain) if each["choices"][0]["delta"]]


def ended_by_last(number: int, end: object) -> list[Any]:
    last = len(without_ends(number)) - number
    chunks = without_ends(number)
    for each in chunks[last:]:
        each["choices"][0]["finish_reason"] = end
    return chunks


def first(number: int, delta: Body) -> list[Any]:
    return [chunk(index, delta) for index in range(number)]


USED: Body = {"choices": [], "usage": USAGES[0]}
EVENTS: Mapping[str, Callable[[int], list[Any]]] = {
    "as documented": lambda n: [*first(n, {"role": "assistant", "content": ""}), *deltas(n, plain), USED],
    "role only first": lambda n: [*first(n, {"role": "assistant"}), *deltas(n, plain)],
    "null content first": lambda n: [*first(n, {"role": "assistant", "content": None}), *deltas(n, plain)],
    "role in every delta": lambda n: deltas(n, lambda piece: {"role": "assistant", "content": piece}),
    "parts": lambda n: deltas(n, lambda piece: {"content": [{"type": "text", "text": piece}]}),
    "empty parts": lambda n: [*first(n, {"content": []}), *deltas(n, plain)],
    "thinking parts first": lambda n: [
        *first(n, with_text(CONTENTS["thinking in parts, then text"], "")),
        *deltas(n, lambda piece: {"content": [{"type": "text", "text": piece}]}),
    ],
    "reasoning_content first": lambda n: [
        *first(n, {"content": None, "reasoning_content": THOUGHT}),
        *deltas(n, plain),
    ],
    "reasoning: null": lambda n: deltas(n, lambda piece: {"content": piece, "reasoning": None, "tool_calls": None}),
    "one delta with the end": lambda n: [chunk(index, {"content": TEXT}, "stop") for index in range(n)],
    "an end with the last piece": lambda n: ended_by_last(n, "stop"),
    "a null delta at the end": lambda n: without_ends(n) + [chunk(index, None, "stop") for index in range(n)],
    "no delta at the end": lambda n: without_ends(n) + [chunk(index, ..., "stop") for index in range(n)],
    "no end": without_ends,
    "an empty name of the end": lambda n: deltas(n, plain, end=""),
    "an end called eos": lambda n: deltas(n, plain, end="eos"),
    "an end called STOP": lambda n: [*ended_by_last(n, "STOP"), USED],
    "the end twice": lambda n: deltas(n, plain) + [chunk(index, {"content": ""}, "stop") for index in range(n)],
    "an event without choices": lambda n: [{"choices": [], "prompt_filter_results": []}, *deltas(n, plain)],
    "events that are null": lambda n: [None, *deltas(n, plain), None],
    "an event that is empty": lambda n: [{}, *deltas(n, plain), {"choices": None}],
    "a null choice": lambda n: [{"choices": [None]}, *deltas(n, plain)],
    "usage null in each": lambda n: [{**each, "usage": None} for each in deltas(n, plain)],
    "usage in each": lambda n: [{**each, "usage": USAGES[0]} for each in deltas(n, plain)],
    "usage in the last choice": lambda n: [*deltas(n, plain)[:-1], chunk(n - 1, {}, "stop", usage=USAGES[0])],
    "error: null in each": lambda n: [{**each, "error": None} for each in deltas(n, plain)],
    "all choices in one event": lambda n: [
        {"choices": [{"index": index, "delta": {"content": TEXT}, "finish_reason": "stop"} for index in range(n)]}
    ],
    "all choices in one event, no index": lambda n: [
        {"choices": [{"delta": {"content": TEXT}, "finish_reason": "stop"} for _ in range(n)]}
    ],
    "messages instead of deltas": lambda n: [
        {"choices": [{"index": index, "message": {"content": TEXT}, "finish_reason": "stop"}]} for index in range(n)
    ],
    "texts instead of deltas": lambda n: [
        {"choices": [{"index": index, "text": piece, "finish_reason": None}]}
        for piece in cut_in(TEXT)
        for index in range(n)
    ],
    "an index that is a text": lambda n: [
        chunk(str(index), {"content": piece}) for piece in cut_in(TEXT) for index in range(n)
    ],
    "one choice after the other": lambda n: [
        each for index in range(n) for each in (chunk(index, {"content": TEXT}), chunk(index, {}, "stop"))
    ],
    "a character at a time": lambda n: deltas(n, plain, size=1),
}
UNENDED = ("no end", "an empty name of the end")
FRAMES: Mapping[str, tuple[bytes, bytes, bytes]] = {
    "as documented": (b"", b"data: %s\n\n", b"data: [DONE]\n\n"),
    "CRLF": (b"", b"data: %s\r\n\r\n", b"data: [DONE]\r\n\r\n"),
    "no space": (b"", b"data:%s\n\n", b"data:[DONE]\n\n"),
    "no [DONE]": (b"", b"data: %s\n\n", b""),
    "no blank line at the end": (b"", b"data: %s\n\n", b"data: [DONE]"),
    "no [DONE], no blank line": (b"", b"\n\ndata: %s", b""),
    "comments": (b": PROCESSING\n\n", b":\n\ndata: %s\n\n", b":\n\ndata: [DONE]\n\n"),
    "event and id": (b"", b"event: message\nid: 7\nretry: 3000\ndata: %s\n\n", b"data: [DONE]\n\n"),
    "blank lines": (b"\n\n\n", b"data: %s\n\n\n\n", b"data: [DONE]\n\n\n\n"),
    "empty data": (b"data:\n\n", b"data: %s\n\ndata: \n\n", b"data: [DONE]\n\n"),
    "a byte order mark": (b"\xef\xbb\xbf", b"data: %s\n\n", b"data: [DONE]\n\n"),
    "two lines an event": (b"", b"data: %s\n\n", b"data: [DONE]\n\n"),
}
"""What comes first, each event, and the end."""


def streams(shift: int) -> Iterator[Dialect]:
    """Streams of several choices of a chat completion that nobody asked for, and a whole reply in the place of one."""

    def streaming(name: str, expected: Expected, answer: Callable[[int], Sent]) -> Dialect:
        reads = WORD if expected == "text" else WORDS
        return Dialect(
            name=f"stream: {name}", wire="openai", expected=expected, reads=reads, answer=answer, streamed=True
        )

    def framed(events: Iterable[object], frame: str) -> Sent:
        before, each, after = FRAMES[frame]
        body = before + b"".join(each % encoded(event) for event in events) + after
        if frame == "two lines an event":
            body = body.replace(b', "choices"', b',\ndata: "choices"')
        return Sent(body=body, kind="text/event-stream; charset=utf-8")

    for form, frame in spread(66, shift, EVENTS, FRAMES):
        if form in UNENDED and frame.startswith("no [DONE]"):  # it may have broken off
            continue
        yield streaming(f"{form}; {frame}", "text", lambda n, form=form, frame=frame: framed(EVENTS[form](n), frame))  # type: ignore[misc]

    def whole(number: int) -> Sent:
        choice = chat_body(message(TEXT), "stop")["choices"][0]
        return Sent(body=encoded({"choices": [{**choice, "index": index} for index in range(number)]}))

    yield streaming("a whole reply in its place", "text", whole)
    for form, code in spread(16, shift, ERRORS, [*FINAL, *PASSING]):
        expected: Expected = "final" if code in FINAL else "passing"
        error = error_of(form, code)
        for name, before in {"first": 0, "after a piece": 1}.items():
            yield streaming(
                f"error {code} {name}, {form}",
                expected,
                lambda n, error=error, before=before: framed([*deltas(n, plain)[:before], error], "no [DONE]"),  # type: ignore[misc]
            )


PARTS: Mapping[str, Callable[[int], Iterable[Dialect]]] = {
    "replies": whole_replies,
    "flags": lambda _: flagged_replies(),
    "errors": errors,
    "streams": streams,
}


# ------------------------------------------------------------------------------------------------ trials


def good(wire: str, number: int = 1) -> Sent:
    """A reply to the letter."""
    if wire == "openai":
        choice = chat_body(message(TEXT), "stop")["choices"][0]
        return Sent(body=encoded({"choices": [{**choice, "index": index} for index in range(number)]}))
    if wire == "anthropic":
        return Sent(body=encoded(said(wire, "a part", TEXT, "end_turn")))
    return Sent(body=encoded(said(wire, "a message", TEXT, "completed")))


async def deliver(sent: Sent, connection: Connection) -> None:
    kind = f"content-type: {sent.kind}\r\n" if sent.kind else ""
    head = f"HTTP/1.1 {sent.status} So\r\n{kind}content-length: {len(sent.body)}\r\nconnection: close\r\n\r\n"
    await raw(head.encode() + sent.body)(connection)


async def tried(dialect: Dialect) -> Tried:
    """Answer a run in a dialect, and judge what the run makes of it."""
    sent_in_it = 0

    async def answer(connection: Connection) -> None:
        nonlocal sent_in_it
        number = server.received[-1].json.get("n") or 1
        is_its_turn = sent_in_it == 0 or dialect.expected in ("text", "final", "told")
        if is_its_turn:
            sent_in_it += 1
            await deliver(dialect.answer(number), connection)
        else:
            await deliver(good(dialect.wire, number), connection)

    async with serving(answer) as server:
        several = f",votes_per_request={K}" if dialect.streamed else ""
        task: Any = Chain() if dialect.streamed else Asked(row={"a": "b"})
        result: Result | None = None
        try:
            result = await run(
                task,
                models=f"{dialect.wire}:m@base_url={server.url},timeout_s=10{several}",
                strategy=Maker(k=K if dialect.streamed else 1),
                runs_dir=None,
                max_outage_s=OUTAGE_S,
                resend_stragglers=False,
            )
            words = str(result.reason)
        except* MicroagentsError as caught:
            words = "; ".join(map(str, caught.exceptions))
    if sent_in_it == 0:
        return Tried(dialect=dialect, unclear=f"was never asked for: {words}")
    return judged(dialect, result, words, sent_in_it)


def judged(dialect: Dialect, result: Result | None, words: str, sent_in_it: int) -> Tried:
    """Say what a person would object to."""
    completed = result is not None and result.outcome == "completed"
    flagged = dict(result.account.flagged) if result is not None else {}
    repeated = dict(result.account.repeated) if result is not None else {}
    if dialect.expected == "text":
        lost = flagged or repeated or not completed or not has_read(result)
        return Tried(dialect=dialect, thrown_away=f"{flagged or repeated or ''} {words}" if lost else "")
    if dialect.expected == "flag":
        right = completed and flagged == {dialect.reads: 1}
        return Tried(dialect=dialect, unclear="" if right else f"{flagged or repeated} {words}")
    if dialect.expected == "passing":
        return Tried(dialect=dialect, thrown_away="" if completed and not flagged else f"gave up: {flagged} {words}")
    is_told = dialect.reads in words and not completed
    most = 1 + K if dialect.streamed else 2  # a request for several votes that fails is tried as single ones
    again = sent_in_it > most and dialect.expected == "final"
    return Tried(
        dialect=dialect,
        bought_again=f"{sent_in_it} requests: {words}" if again else "",
        unclear="" if is_told else f"not told: {words}",
    )


def has_read(result: Result | None) -> bool:
    """Whether the word is the result; the chain itself refuses any other."""
    value: Any = result.value if result is not None else None
    return value == 1 or (isinstance(value, Mapping) and value.get("word") == WORD) or getattr(value, "word", 0) == WORD


async def try_all(dialects: Sequence[Dialect], beside: int = 8) -> list[Tried]:
    """Try dialects, some at a time, in their order."""
    room = asyncio.Semaphore(beside)

    async def one(dialect: Dialect) -> Tried:
        async with room:
            return await tried(dialect)

    return await asyncio.gather(*map(one, dialects))


# ------------------------------------------------------------------------------------------------ fuzzers

MEANINGFUL = ("length", "token", "max", "limit", "context", "filter", "safety", "refus", "prohibit", "block", "error")
"""Parts of names that may tell of an end that is no normal one."""


def invented_ends(count: int, seed: int) -> Iterator[Dialect]:
    """Whole replies with ends of invented names, of any type of JSON."""
    random = Random(seed)
    for number in range(count):
        letters = random.choice([string.ascii_lowercase, string.ascii_uppercase, "_-<|>/ é停", string.printable])
        name = "".join(random.choices(letters, k=random.randint(0, 24)))
        end = random.choice([name, name, name, name, number, -1.5, True, [name], {"type": name}, None, ...])
        if any(part in str(end).lower() for part in MEANINGFUL):
            continue
        wire = random.choice(["openai", "anthropic"])
        form = random.choice([*FORMS_BY_WIRE[wire]])
        sent = Sent(body=encoded(said(wire, form, TEXT, end)))
        yield Dialect(
            name=f"{wire}: {form}; end {shown(end)}",
            wire=wire,
            expected="text",
            reads=WORD,
            answer=lambda _, sent=sent: sent,  # type: ignore[misc]
        )


class Shown(Struct, frozen=True, kw_only=True):
    """A result of an MCP tool, and the texts that a person would see in it."""

    result: Body
    texts: Collection[str]


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def block(random: Random, number: int) -> tuple[Body, list[str]]:
    """A content block of any kind, and the texts in it."""
    text, address = f"fact {number}: {random.randrange(10**6)}", f"doc://{number}/{random.randrange(10**6)}"
    more: Body = random.choice([{}, {"annotations": {"audience": ["user"], "priority": 0.5}}, {"_meta": {"a": 1}}])
    kinds: Sequence[tuple[Body, list[str]]] = (
        ({"type": "text", "text": text}, [text]),
        ({"type": "text", "text": f"Ωmega {text} \u202e\x1b[31m"}, [text]),
        ({"type": "resource", "resource": {"uri": address, "text": text}}, [text]),
        ({"type": "resource", "resource": {"uri": address, "mimeType": "text/plain", "text": text}}, [text]),
        ({"type": "resource", "resource": {"uri": address, "mimeType": "application/pdf", "blob": "JVBERg=="}}, [address]),
        ({"type": "resource_link", "uri": address, "name": text}, [address]),
        ({"type": "resource_link", "uri": address, "name": "n", "mimeType": "text/csv", "description": text, "size": 7}, [address]),
        ({"type": "image", "data": PIXEL, "mimeType": "image/png"}, ["image/png"]),
        ({"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}, ["audio/wav"]),
        ({"type": "hologram", "payload": text}, [text]),
        ({"type": "video", "uri": address, "mimeType": "video/mp4"}, [address]),
        ({"type": "text", "text": text, "unknown": [1, 2]}, [text]),
    )  # fmt: skip
    made, texts = random.choice(kinds)
    return {**made, **more}, texts


def shown_result(seed: int) -> Shown:
    """A result of any kind."""
    random = Random(f"mcp {seed}")
    blocks = [block(random, number) for number in range(random.choice([0, 1, 1, 2, 3, 6]))]
    content = [made for made, _ in blocks]
    texts = list(itertools.chain.from_iterable(each for _, each in blocks))
    result: Body = {"content": content}
    if random.random() < 0.4 or not blocks:
        fact = f"structured {random.randrange(10**6)}"
        result["structuredContent"] = random.choice([{"fact": fact}, {"rows": [{"fact": fact, "n": 10**17 + 1}]}])
        texts.append(fact)
        if not blocks and random.random() < 0.3:
            del result["content"]
    if random.random() < 0.3:
        result["isError"] = random.choice([True, False])
    if random.random() < 0.2:
        result["_meta"] = {"trace": 1}
    return Shown(result=result, texts=texts)


def serve_mcp() -> None:
    """An MCP server over stdio without an SDK; its tool `read` gives the result of a number."""
    schema = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        answer: Body = {"error": {"code": -32601, "message": "there is no such method"}}
        if asked["method"] == "initialize":
            about = {"name": "s", "version": "1"}
            answer = {"result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}}
        elif asked["method"] == "tools/list":
            answer = {"result": {"tools": [{"name": "read", "description": "Read.", "inputSchema": schema}]}}
        elif asked["method"] == "tools/call":
            answer = {"result": shown_result(asked["params"]["arguments"]["number"]).result}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)


SERVER = f"{sys.executable} -m tests.benchmarks.dialects --serve-mcp"


class Reading(AgentTask):
    """Reads some results one after the other."""

    first: int = 0
    number: int = 20
    tools: ClassVar = (McpServer(server=SERVER, effects={"read": "read_only"}),)

    def statement(self) -> str:
        return "Read all."


async def lost_results(first: int, number: int) -> list[str]:
    """Read results of a server through an agent; return the texts of them that its model never saw."""
    seen: list[str] = []

    async def model(call: Call) -> str:
        seen.append(call.prompt.user)
        done = call.prompt.user.count("\nAction ")
        tool, arguments = ("end", '{"answer": "x"}') if done == number else ("read", f'{{"number": {first + done}}}')
        return f'calls = [{{"tool": "{tool}", "arguments": {arguments}}}]'

    with patch.object(act, "MAX_TOOL_ERRORS", number):  # some of the results are errors
        await run(
            Reading(first=first, number=number),
            models=model,
            strategy=Act(k_read=1, k_end=1, max_steps=number + 1, memory=10**7),
            runs_dir=None,
        )
    last = seen[-1] if seen else ""
    return [
        f"mcp {each}: {text!r} of {shown_result(each).result}"
        for each in range(first, first + number)
        for text in shown_result(each).texts
        if text not in last
    ]


# ------------------------------------------------------------------------------------------------ the command


def main() -> int:
    options = options_of(__doc__, part=(*PARTS, "ends", "mcp"), shift=0, fuzzed=300, serve_mcp=False)
    if options.serve_mcp:
        serve_mcp()
        return 0
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    outages.BACKOFF_S = (0.001, 0.002)
    failed = 0
    dialects = [each for part in options.part if part in PARTS for each in PARTS[part](options.shift)]
    if "ends" in options.part:
        dialects += invented_ends(options.fuzzed, options.shift)
    found = asyncio.run(try_all(dialects))
    thrown_away = [each for each in found if each.thrown_away]
    bought_again = [each for each in found if each.bought_again]
    unclear = [each for each in found if each.unclear]
    for each in found:
        for title in ("thrown_away", "bought_again", "unclear"):
            if said_of := getattr(each, title):
                print(f"{title}: {each.dialect.name}: {' '.join(said_of.split())[:300]}")
    print(f"{len(found)} dialects: {len(thrown_away)} paid replies thrown away that a person could read")
    print(f"{len(bought_again)} outages bought again for an error a person would call final")
    print(f"{len(unclear)} told otherwise than a person would")
    failed += len(thrown_away) + len(bought_again) + len(unclear)
    if "mcp" in options.part:
        lost = asyncio.run(lost_results(1000 * options.shift, options.fuzzed))
        print(*lost[:20], sep="\n", end="\n" if lost else "")
        print(f"{options.fuzzed} results of MCP tools: {len(lost)} texts lost")
        failed += len(lost)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
