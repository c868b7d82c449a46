"""The wires of providers, seen from the server: requests in, replies out, whole or streamed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Protocol, TypeVar

import msgspec
from msgspec import Meta, Struct

from microagents.base.errors import InvalidUsage
from microagents.replies.chat import Prompt, Sample

MAX_CHOICES = 128
DEFAULT_MAX_OUTPUT_TOKENS = 32_768
PIECE_CHARS = 200
"""Length of a text in one event of a stream."""

S = TypeVar("S", bound=Struct)


class CompletionRequest(Struct, frozen=True, kw_only=True):
    """A request, whatever its wire."""

    model: str
    prompt: Prompt
    temperature: float | None
    max_output_tokens: int
    choices: int = 1
    stream: bool = False
    with_usage: bool = True
    """Whether a stream ends with the usage."""


Temperature = Annotated[float, Meta(ge=0, le=2)] | None
Messages = list[dict[str, Any]]


class StreamOptions(Struct):
    """Options of a stream of chat completions."""

    include_usage: bool | None = None


class ChatBody(Struct):
    """Request of OpenAI's chat completions, as far as it is read."""

    model: str
    messages: Messages
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Temperature = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None


class ResponsesBody(Struct):
    """Request of OpenAI's responses, as far as it is read."""

    model: str
    input: str | Messages
    instructions: str | None = None
    stream: bool | None = None
    temperature: Temperature = None
    max_output_tokens: Annotated[int, Meta(ge=16)] | None = None


class MessagesBody(Struct):
    """Request of Anthropic's messages, as far as it is read."""

    model: str
    messages: Messages
    max_tokens: Annotated[int, Meta(ge=0)]
    system: str | Messages | None = None
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None


class Wire(Protocol):
    """Form of a provider's requests and replies."""

    path: ClassVar[str]

    def read(self, body: bytes) -> CompletionRequest:
        """Read a request.

        Raises:
            InvalidUsage: it is not one.
        """

    def whole(self, asked: CompletionRequest, samples: Sequence[Sample], number: int) -> dict[str, Any]:
        """Write the JSON of a whole reply; ``number`` counts the replies of the server."""

    def opening(self, asked: CompletionRequest, number: int) -> Iterator[bytes]:
        """Write the events at the start of a stream."""

    def choice(self, asked: CompletionRequest, index: int, sample: Sample, number: int) -> Iterator[bytes]:
        """Write the events of one choice."""

    def closing(self, asked: CompletionRequest, samples: Sequence[Sample], number: int) -> Iterator[bytes]:
        """Write the events at the end of a stream."""

    def error(self, status: int, message: str) -> dict[str, Any]:
        """Write the JSON of an error."""


class _OpenAI:
    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": {"message": message, "type": _ERRORS.get(status, "server_error"), "param": None, "code": None}}


class _Chat(_OpenAI):
    """OpenAI's chat completions: several choices, and usage at the end of a stream if it is asked for."""

    path: ClassVar = "/v1/chat/completions"

    def read(self, body: bytes) -> CompletionRequest:
        found = _decoded(body, ChatBody)
        return CompletionRequest(
            model=found.model,
            prompt=_prompt(None, found.messages),
            temperature=found.temperature,
            max_output_tokens=found.max_completion_tokens or found.max_tokens or DEFAULT_MAX_OUTPUT_TOKENS,
            choices=found.n or 1,
            stream=bool(found.stream),
            with_usage=bool((found.stream_options or StreamOptions()).include_usage),
        )

    def whole(self, asked: CompletionRequest, samples: Sequence[Sample], number: int) -> dict[str, Any]:
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", "content": sample.text, "refusal": None},
                "finish_reason": sample.finish,
                "logprobs": None,
            }
            for index, sample in enumerate(samples)
        ]
        return {**_chat(asked, number), "object": "chat.completion", "choices": choices, "usage": _chat_usage(samples)}

    def opening(self, asked: CompletionRequest, number: int) -> Iterator[bytes]:  # noqa: ARG002 - the choices say it all
        return iter(())

    def choice(self, asked: CompletionRequest, index: int, sample: Sample, number: int) -> Iterator[bytes]:
        deltas: list[tuple[dict[str, str], str | None]] = [({"role": "assistant", "content": ""}, None)]
        deltas += [({"content": piece}, None) for piece in _pieces(sample.text)]
        for delta, finish in [*deltas, ({}, sample.finish)]:
            yield self._chunk(
                asked, number, [{"index": index, "delta": delta, "finish_reason": finish, "logprobs": None}]
            )

    def closing(self, asked: CompletionRequest, samples: Sequence[Sample], number: int) -> Iterator[bytes]:
        if asked.with_usage:
            yield self._chunk(asked, number, [], usage=_chat_usage(samples))
        yield b"data: [DONE]\n\n"

    def _chunk(self, asked: CompletionRequest, number: int, choices: list[dict[str, Any]], **more: Any) -> bytes:
        return _event({**_chat(asked, number), "object": "chat.completion.chunk", "choices": choices, **more})


class _Responses(_OpenAI):
    """OpenAI's responses: one choice."""

    path: ClassVar = "/v1/responses"

    def read(self, body: bytes) -> CompletionRequest:
        found = _decoded(body, ResponsesBody)
        return CompletionRequest(
            model=found.model,
            prompt=_prompt(found.instructions, found.input),
            temperature=found.temperature,
            max_output_tokens=found.max_output_tokens or DEFAULT_MAX_OUTPUT_TOKENS,
            stream=bool(found.stream),
        )

    def whole(self, asked: CompletionRequest, samples: Sequence[Sample], number: int) -> dict[str, Any]:
        (sample,) = samples
        reason = {"stop": None, "length": "max_output_tokens"}.get(sample.finish, sample.finish)
        usage = {
            "input_tokens": sample.usage.input_tokens or 0,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": sample.usage.output_tokens or 0,
            "output_tokens_details": {"reasoning_tokens": sample.usage.reasoning_tokens or 0},
            "total_tokens": (sample.usage.input_tokens or 0) + (sample.usage.output_tokens or 0),
        }
        return {
            **self._begun(asked, number),
            "status": "incomplete" if reason else "completed",
            "incomplete_details": {"reason": reason} if reason else None,
            "output": [self._message(number, sample)],
            "usage": usage,
        }

    def opening(self, asked: CompletionRequest, number: int) -> Iterator[bytes]:
        yield self._named("response.created", 0, response=self._begun(asked, number))

    def choice(self, asked: CompletionRequest, index: int, sample: Sample, number: int) -> Iterator[bytes]:  # noqa: ARG002 - there is one
        message = self._message(number, sample)
        (part,) = message["content"]
        begun: dict[str, Any] = {**message, "status": "in_progress", "content": []}
        place: dict[str, Any] = {"item_id": message["id"], "output_index": 0, "content_index": 0}
        events: list[tuple[str, dict[str, Any]]] = [
            ("output_item.added", {"output_index": 0, "item": begun}),
            ("content_part.added", {**place, "part": {**part, "text": ""}}),
            *[("output_text.delta", {**place, "delta": piece, "logprobs": []}) for piece in _pieces(sample.text)],
            ("output_text.done", {**place, "text": sample.text, "logprobs": []}),
            ("content_part.done", {**place, "part": part}),
            ("output_item.done", {"output_index": 0, "item": message}),
        ]
        for sequence, (name, values) in enumerate(events, 1):
            yield self._named(f"response.{name}", sequence, **values)

    def closing(self, asked: CompletionRequest, samples: Sequence[Sample], number: int) -> Iterator[bytes]:
        response = self.whole(asked, samples, number)
        yield self._named(f"response.{response['status']}", len(samples[0].text) // PIECE_CHARS + 8, response=response)

    def _begun(self, asked: CompletionRequest, number: int) -> dict[str, Any]:
        return {
            "id": f"resp_{number}",
            "object": "response",
            "created_at": 0,
            "model": asked.model,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "output": [],
            "parallel_tool_calls": False,
            "temperature": asked.temperature,
            "tool_choice": "none",
            "tools": [],
            "top_p": None,
        }

    def _message(self, number: int, sample: Sample) -> dict[str, Any]:
        part = {"type": "output_text", "text": sample.text, "annotations": [], "logprobs": []}
        status = "completed" if sample.finish == "stop" else "incomplete"
        return {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": status, "content": [part]}

    def _named(self, name: str, sequence: int, **values: Any) -> bytes:
        return _event({"type": name, "sequence_number": sequence, **values}, name)


class _Messages:
    """Anthropic's messages: one choice. A request for no tokens, which warms a cache, gets an empty reply."""

    path: ClassVar = "/v1/messages"

    def read(self, body: bytes) -> CompletionRequest:
        found = _decoded(body, MessagesBody)
        return CompletionRequest(
            model=found.model,
            prompt=_prompt(found.system, found.messages),
            temperature=found.temperature,
            max_output_tokens=found.max_tokens,
            choices=1 if found.max_tokens else 0,
            stream=bool(found.stream),
        )

    def whole(self, asked: CompletionRequest, samples: Sequence[Sample], number: int) -> dict[str, Any]:
        blocks = [{"type": "text", "text": sample.text, "citations": None} for sample in samples]
        return {
            **self._begun(asked, number),
            "content": blocks,
            "stop_reason": self._stop_reason(samples),
            "usage": self._usage(samples),
        }

    def opening(self, asked: CompletionRequest, number: int) -> Iterator[bytes]:
        yield self._named("message_start", message=self._begun(asked, number))

    def choice(self, asked: CompletionRequest, index: int, sample: Sample, number: int) -> Iterator[bytes]:  # noqa: ARG002 - there is one
        yield self._named("content_block_start", index=0, content_block={"type": "text", "text": "", "citations": None})
        for piece in _pieces(sample.text):
            yield self._named("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
        yield self._named("content_block_stop", index=0)

    def closing(self, asked: CompletionRequest, samples: Sequence[Sample], number: int) -> Iterator[bytes]:  # noqa: ARG002 - it has no id
        delta = {"stop_reason": self._stop_reason(samples), "stop_sequence": None}
        yield self._named("message_delta", delta=delta, usage=self._usage(samples))
        yield self._named("message_stop")

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"type": "error", "error": {"type": _ERRORS.get(status, "api_error"), "message": message}}

    def _begun(self, asked: CompletionRequest, number: int) -> dict[str, Any]:
        return {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": asked.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._usage([]),
        }

    def _stop_reason(self, samples: Sequence[Sample]) -> str:
        finish = samples[0].finish if samples else "length"
        return {"stop": "end_turn", "length": "max_tokens"}.get(finish, finish)

    def _usage(self, samples: Sequence[Sample]) -> dict[str, int]:
        read, written = _tokens(samples)
        return {
            "input_tokens": read,
            "output_tokens": written,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        }

    def _named(self, name: str, **values: Any) -> bytes:
        return _event({"type": name, **values}, name)


WIRES: Sequence[Wire] = (_Chat(), _Responses(), _Messages())
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def _decoded(body: bytes, kind: type[S]) -> S:
    """Read a request; parameters that are not read change nothing."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        why = " ".join(str(error).split())
        raise InvalidUsage(f"the request cannot be read: {why}") from None


def _prompt(system: str | Messages | None, messages: str | Messages) -> Prompt:
    """Read the texts of a request."""
    turns: Messages = [{"role": "system", "content": system}]
    turns += [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    texts: dict[bool, list[str]] = {False: [], True: []}
    for each in turns:
        if each["role"] == "assistant":
            raise InvalidUsage(
                "a message of the role 'assistant' is not served: ask one question, without earlier turns"
            )
        texts[each["role"] == "user"].append(_text(each.get("content")))
    return Prompt(system="\n\n".join(filter(None, texts[False])), user="\n\n".join(texts[True]))


def _text(content: str | Messages | None) -> str:
    if isinstance(content, list):
        return "".join(part["text"] for part in content)
    return content or ""


def _tokens(samples: Sequence[Sample]) -> tuple[int, int]:
    """Count the tokens of the prompt, which is read once, and of all choices."""
    read = max((sample.usage.input_tokens or 0 for sample in samples), default=0)
    return read, sum(sample.usage.output_tokens or 0 for sample in samples)


def _chat(asked: CompletionRequest, number: int) -> dict[str, Any]:
    return {"id": f"chatcmpl-{number}", "created": 0, "model": asked.model}


def _chat_usage(samples: Sequence[Sample]) -> dict[str, Any]:
    read, written = _tokens(samples)
    reasoned = sum(sample.usage.reasoning_tokens or 0 for sample in samples)
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": reasoned},
    }


def _pieces(text: str) -> Iterator[str]:
    return (text[start : start + PIECE_CHARS] for start in range(0, len(text), PIECE_CHARS))


def _event(data: dict[str, Any], name: str | None = None) -> bytes:
    head = b"" if name is None else b"event: %s\n" % name.encode()
    return b"%sdata: %s\n\n" % (head, msgspec.json.encode(data))
