"""Replies of servers, in the dialect of any of them: what a reply says, and how it ended. All wires and streams read them by this."""

from __future__ import annotations

import re

import msgspec
from msgspec import Raw, Struct, structs

from microagents.elections.red_flags import CONTENT_FILTER, OTHER, REFUSAL, known_finish
from microagents.models.http.usage import name_or_none, read_or_empty

MOST_ITEMS = 1024
"""Choices of a reply, or parts of a text, that are read: a longer list would take too much memory."""
MAX_NAME_CHARS = 64
"""Characters of a reason; a longer one is no name."""
NOTHING = Raw(b"null")
_EMPTY = (b"null", b'""', b"{}", b"[]", b"false")
_END = Raw(b"")
_Items = msgspec.defstruct(
    "_Items", [(f"_{place}", Raw, _END) for place in range(MOST_ITEMS)], array_like=True, forbid_unknown_fields=True
)
_decode_items = msgspec.json.Decoder(_Items).decode
_REASONING = re.compile(r"think|reason|thought", re.IGNORECASE)
"""Types of parts whose text is no part of the reply."""
_NO_TEXT = re.compile(r"tool|call|result|citation|reference", re.IGNORECASE)
"""Types of parts that are left out."""
_SYNONYMS = {
    "stop": "end_turn stop_sequence stop_token eos eos_token eos_found eot_id im_end end end_of_turn end_of_text endoftext complete "
    "completed finish finished done success succeeded",
    "length": "max_tokens max_output_tokens max_completion_tokens max_new_tokens max_length model_length output_limit "
    "token_limit limit error_limit truncated",
    CONTENT_FILTER: "content_filtered content_moderation moderation safety image_safety recitation blocklist blocked "
    "prohibited_content spii sensitive guardrail_intervened error_toxic",
    REFUSAL: "refused",
    "tool_calls": "tool_call malformed_function_call unexpected_tool_call",
    "error": "failed network_error insufficient_system_resource",
    "abort": "aborted interrupted timeout",
    OTHER: "incomplete in_progress queued cancelled canceled",
}
_FINISHES = {name: finish for finish, names in _SYNONYMS.items() for name in names.split()}


class Fields(Struct, frozen=True):
    """The fields of an object of a reply that may be read, as they are written; the others are left out."""

    id: Raw = NOTHING
    choices: Raw = NOTHING
    output: Raw = NOTHING
    usage: Raw = NOTHING
    service_tier: Raw = NOTHING
    status: Raw = NOTHING
    incomplete_details: Raw = NOTHING
    error: Raw = NOTHING
    index: Raw = NOTHING
    delta: Raw = NOTHING
    message: Raw = NOTHING
    finish_reason: Raw = NOTHING
    stop_reason: Raw = NOTHING
    logprobs: Raw = NOTHING
    type: Raw = NOTHING
    content: Raw = NOTHING
    text: Raw = NOTHING
    value: Raw = NOTHING
    refusal: Raw = NOTHING
    thinking: Raw = NOTHING
    reasoning: Raw = NOTHING
    reasoning_content: Raw = NOTHING
    summary: Raw = NOTHING
    reason: Raw = NOTHING


decode_reply = msgspec.json.Decoder(Fields).decode


def is_there(written: Raw) -> bool:
    """Whether something stands in a field."""
    return bytes(written) not in _EMPTY


def items_in(written: Raw) -> tuple[Raw, ...]:
    """Return the items of a list; none for null.

    Raises:
        msgspec.MsgspecError: it is no list, or too long.
    """
    if not is_there(written):
        return ()
    items = (*structs.astuple(_decode_items(written)), _END)
    return items[: items.index(_END)]


class Said(Struct):
    """What a reply says, or a part of it."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    has_reasoning: bool = False
    """Whether there is reasoning, also without its text."""
    logprobs: list[Raw] = []
    """Log-probabilities of the parts of the text."""

    def __bool__(self) -> bool:
        return bool(self.text or self.reasoning or self.refusal)

    def add(self, written: Raw, *, is_reasoning: bool = False) -> None:
        """Add a text, an object with one, or a list of them.

        Raises:
            msgspec.MsgspecError: it is none of these.
        """
        match bytes(memoryview(written)[:1]):
            case b'"' if is_reasoning:
                self.reasoning += msgspec.json.decode(written, type=str)
            case b'"':
                self.text += msgspec.json.decode(written, type=str)
            case b"[":
                for each in items_in(written):
                    self.add(each, is_reasoning=is_reasoning)
            case b"{":
                self._add_object(read_or_empty(written, Fields), is_reasoning=is_reasoning)
            case b"n":
                pass
            case _ if not is_reasoning:
                raise msgspec.ValidationError(f"Expected a text, got {bytes(written)[:20]!r}")

    def join(self, piece: Said) -> None:
        """Add what the next piece of a stream says."""
        self.text += piece.text
        self.reasoning += piece.reasoning
        self.refusal += piece.refusal
        self.has_reasoning |= piece.has_reasoning

    def _add_object(self, part: Fields, *, is_reasoning: bool) -> None:
        kind = name_or_none(part.type) or ""
        if _NO_TEXT.search(kind):
            return
        is_reasoning = is_reasoning or _REASONING.search(kind) is not None
        for inner in (part.content, part.text, part.value):
            self.add(inner, is_reasoning=is_reasoning)
        for aside in (part.thinking, part.reasoning, part.reasoning_content, part.summary):
            self.add(aside, is_reasoning=True)
        self.refusal += name_or_none(part.refusal) or ""
        self.has_reasoning = self.has_reasoning or is_reasoning or bool(self.reasoning)
        if is_there(part.text) and not is_reasoning:
            self.logprobs.append(part.logprobs)


class ChatChoice(Struct):
    """One choice of a reply, or a piece of it in a stream."""

    index: int
    said: Said
    reason: Raw = NOTHING
    """Why it ended, as it is written."""
    logprobs: Raw = NOTHING


def choices_in(written: Raw) -> list[ChatChoice]:
    """Read the choices of a reply, or of an event of a stream.

    Raises:
        msgspec.MsgspecError: they cannot be read.
    """
    choices = []
    for place, item in enumerate(items_in(written)):
        found, said = msgspec.json.decode(item, type=Fields), Said()
        held = [each for each in (found.delta, found.message, found.text) if is_there(each)]
        said.add(held[0] if held else NOTHING)
        index = place_in(found.index, place)
        choices.append(ChatChoice(index=index, said=said, reason=found.finish_reason, logprobs=found.logprobs))
    return choices


def place_in(written: Raw, otherwise: int) -> int:
    """Read the index of a choice; ``otherwise`` if it has none."""
    try:
        return msgspec.json.decode(written, type=int, strict=False)
    except (msgspec.MsgspecError, RecursionError):
        return otherwise


def finish_of(reason: str) -> str | None:
    """Return the finish by its name in any dialect; None for no name, and for one that no server is known to use."""
    if not reason.isprintable() or len(reason) > MAX_NAME_CHARS:
        return OTHER
    name = re.sub(r"[^a-z]+", "_", reason.lower()).strip("_").removeprefix("finish_reason_")
    found = _FINISHES.get(name) or known_finish(name)
    return None if found == OTHER and name not in _FINISHES else found
