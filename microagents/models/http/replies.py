"""Replies of servers, in the dialect of any of them: text, parts and ending. All wires and streams read them by this."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

from msgspec import Struct

from microagents.elections.red_flags import CONTENT_FILTER, OTHER, REFUSAL
from microagents.models.http.histories import REASONING_FIELDS
from microagents.models.http.native_calls import NativeCall, call_in, join_calls

MOST_VALUES = 2**20
"""Values of a body that is decoded: more would take too much memory."""
MOST_DIGITS = 40
"""Digits of a whole number that are read: one with more is no count."""
REPLY_FIELDS = ("choices", "output", "content")
"""Fields with the parts of a reply, one on each wire."""
_AROUND = ("data", "result", "response", "body")
"""Fields in which a gateway may wrap a reply or an error."""
_MOST_AROUND = 4
"""Lists and objects around a reply that are opened."""
UNREADABLE = (ValueError, RecursionError)
"""Errors of `decode`, and of what reads its values."""
_REASONING = re.compile(r"think|reason|thought", re.IGNORECASE)
"""Types of parts whose text is no part of the reply."""
_CALL = re.compile(r"tool_use|tool_call|function_call|function", re.IGNORECASE)
"""Types of parts that are calls of tools."""
_NO_TEXT = re.compile(r"tool|call|result|citation|reference", re.IGNORECASE)
"""Types of parts that are left out."""
_ENDS = (
    ("length", r"length|limit|max|trunc|context|too_many"),
    ("pause_turn", r"pause"),
    (CONTENT_FILTER, r"filter|moderat|safety|recitation|block|prohibit|spii|sensitive|guardrail|toxic|policy"),
    (REFUSAL, r"refus"),
    ("error", r"error|fail|insufficient"),
    ("tool_calls", r"tool|function"),
    ("abort", r"abort|interrupt|time_?out"),
    (OTHER, r"incomplete|in_progress|queued|cancel|other"),
    ("stop", r"^(?:stop|eos|eot|eom|im_end|end|complete|finish|done|success)"),
)
"""Ends of replies, by the names that servers give to them; the first one counts."""


def decode(body: bytes) -> Any:
    """Decode the JSON of a server, with any characters and numbers, in UTF-8, UTF-16 or UTF-32, also after a byte order mark.

    Raises:
        ValueError: it is no JSON, or has too many values.
        RecursionError: it is nested too deep.
    """
    if sum(map(body.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise ValueError(f"it has more than {MOST_VALUES} values")
    return json.loads(body, strict=False, parse_int=lambda digits: int(digits[:MOST_DIGITS]))


def object_in(found: Any) -> dict[str, Any]:
    """Return an object; an empty one for any other value."""
    if not isinstance(found, dict):
        return {}
    return found


def name_in(found: Any) -> str:
    """Return a text; an empty one for any other value."""
    if not isinstance(found, str):
        return ""
    return found


def reply_in(found: Any, around: int = _MOST_AROUND, *, is_piece: bool = False) -> Any:
    """Take a reply or an error out of the lists, objects and texts around it, and write Ollama's own form as a chat; anything else stays.

    Args:
        found: the JSON of a server.
        around: lists and objects that may be opened.
        is_piece: whether it may be a piece of a stream.
    """
    if isinstance(found, str) and found[:1] == "{":
        with suppress(*UNREADABLE):
            found = decode(found.encode())
    if isinstance(found, list) and found and around:
        return reply_in(found[0], around - 1, is_piece=is_piece)
    if not isinstance(found, dict) or "type" in found or _is_reply(found):
        return found
    if found.get("done") or (is_piece and "done" in found):
        return _chat_of(found)
    for name in _AROUND:
        if around and name in found:
            inner = reply_in(found[name], around - 1, is_piece=is_piece)
            if _is_reply(object_in(inner)):
                return inner
    return found


def has_reply(found: Any) -> bool:
    """Whether an object has a reply, of any wire."""
    return any(object_in(found).get(name) for name in REPLY_FIELDS)


def _is_reply(found: dict[str, Any]) -> bool:
    """Whether an object is a reply or an error."""
    return any(found.get(name) is not None for name in (*REPLY_FIELDS, "error"))


def _chat_of(native: dict[str, Any]) -> dict[str, Any]:
    """Write a reply in Ollama's own form, or a piece of one, as a chat."""
    reason = native.get("done_reason") or ("stop" if native["done"] else None)
    choice = {"message": native.get("message"), "text": native.get("response"), "finish_reason": reason}
    usage = {"prompt_tokens": native.get("prompt_eval_count"), "completion_tokens": native.get("eval_count")}
    return {"choices": [choice], "usage": usage}


class Said(Struct):
    """Text of a reply, or of a part of it, in pieces."""

    texts: list[str] = []
    reasonings: list[str] = []
    refusal: str = ""
    has_reasoning: bool = False
    """Whether there is reasoning, also without its text."""
    logprobs: list[Any] = []
    """Log-probabilities of the parts of the text."""
    calls: list[NativeCall] = []
    """Calls of tools; in a piece of a stream pieces of them."""
    parts: list[dict[str, Any]] = []
    """The parts of a reply that is a list of them, as they are."""
    extras: dict[str, Any] = {}
    """Reasoning by the name of its field, as the server wants it back."""

    @property
    def text(self) -> str:
        """The text of the reply."""
        return "".join(self.texts)

    @property
    def reasoning(self) -> str:
        """The text of the reasoning."""
        return "".join(self.reasonings)

    def __bool__(self) -> bool:
        return any(self.texts) or any(self.reasonings) or bool(self.refusal or self.calls)

    def add(self, found: Any, *, is_reasoning: bool = False) -> None:
        """Add a text, an object with one, or a list of them.

        Raises:
            ValueError: it is none of these.
        """
        if isinstance(found, str):
            pieces = self.reasonings if is_reasoning else self.texts
            pieces.append(found)
        elif isinstance(found, list):
            self.parts = self.parts or [each for each in found if isinstance(each, dict)]
            for each in found:
                self.add(each, is_reasoning=is_reasoning)
        elif isinstance(found, dict):
            self._add_object(found, is_reasoning=is_reasoning)
        elif found is not None and not is_reasoning:
            raise ValueError(f"Expected a text, got {found!r:.20}")

    def join(self, piece: Said) -> None:
        """Add the next piece of a stream."""
        self.texts += piece.texts
        self.reasonings += piece.reasonings
        self.refusal += piece.refusal
        self.has_reasoning |= piece.has_reasoning
        join_calls(self.calls, piece.calls)
        for name, value in piece.extras.items():
            self.extras[name] = self.extras[name] + value if type(value) is type(self.extras.get(name)) else value

    def _add_object(self, part: dict[str, Any], *, is_reasoning: bool) -> None:
        kind = name_in(part.get("type"))
        self._add_calls(part, kind)
        if _NO_TEXT.search(kind):
            return
        is_reasoning = is_reasoning or _REASONING.search(kind) is not None
        for name in ("content", "text", "value"):
            self.add(part.get(name), is_reasoning=is_reasoning)
        for name in ("thinking", "reasoning", "reasoning_content", "summary"):
            self.add(part.get(name), is_reasoning=True)
        self.refusal += name_in(part.get("refusal"))
        self.has_reasoning = self.has_reasoning or is_reasoning or any(self.reasonings)
        if part.get("text") and not is_reasoning:
            self.logprobs.append(part.get("logprobs"))

    def _add_calls(self, part: dict[str, Any], kind: str) -> None:
        """Add the calls of a message, or the call that a part is; and the reasoning that goes back with them."""
        listed = part.get("tool_calls") or part.get("function_call")
        found = listed if isinstance(listed, list) else [listed]
        if _CALL.fullmatch(kind):
            found = [part]
        calls = [call_in({**each, **object_in(each.get("custom"))}) for each in found if isinstance(each, dict)]
        self.calls += [each for each in calls if each is not None]
        self.extras |= {name: part[name] for name in REASONING_FIELDS if part.get(name)}


class ChatChoice(Struct):
    """One choice of a reply, or a piece of it in a stream."""

    index: int
    said: Said
    reason: Any = None
    """Why it ended, as it is written."""
    logprobs: Any = None
    is_message: bool = False
    """Whether it stands as a whole message, and not as a piece of one."""


def choices_in(found: Any) -> list[ChatChoice]:
    """Read the choices of a reply, or of an event of a stream.

    Raises:
        ValueError: they cannot be read.
    """
    if not isinstance(found, list | None):
        raise ValueError(f"Expected choices, got {found!r:.20}")  # noqa: TRY004 - as all that cannot be read
    choices = []
    for place, each in enumerate(found or ()):
        choice, said = object_in(each), Said()
        delta, message = choice.get("delta"), choice.get("message")
        said.add(delta or message or choice.get("text"))
        choices.append(
            ChatChoice(
                index=_index_in(choice.get("index"), place),
                said=said,
                reason=choice.get("finish_reason"),
                logprobs=choice.get("logprobs"),
                is_message=bool(message and not delta),
            )
        )
    return choices


def _index_in(found: Any, place: int) -> int:
    """Read the index of a choice, its place if it has none."""
    try:
        return int(found)
    except (TypeError, ValueError, OverflowError):
        return place


def snake_of(name: str) -> str:
    """Return a name in lower case with underscores, such as ``max_tokens`` for ``maxTokens`` and ``<MAX TOKENS>``."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return re.sub(r"[^a-z0-9]+", "_", words).strip("_")


def finish_of(reason: str) -> str | None:
    """Return the finish by its name in any dialect; None for no name, and for one that tells nothing."""
    name = snake_of(reason).removeprefix("finish_reason_")
    for finish, pattern in _ENDS:
        if re.search(pattern, name):
            return finish
    return None
