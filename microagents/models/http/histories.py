"""Turns of a prompt as each wire wants them: every call with its result next to it, and reasoning only back to its model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from microagents.models.http.media_parts import CHAT, MESSAGES, NO_CONTENTS, RESPONSES, PartForm
from microagents.models.http.native_calls import NativeTools, native_tools, written_arguments
from microagents.replies.chat import Prompt
from microagents.replies.turns import Turn, files_of, joined, native_only, rounds_of

REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details")
"""Fields of an assistant's message with its reasoning, in the dialects of chat completions."""
USER_BEHIND_RESULTS = "user behind results"
"""What Mistral's models refuse: a text of the user right behind the results of calls, without a word of the assistant between them."""
FILES_BEHIND = "The pictures and files of these results, in their order:"
Message = dict[str, Any]


def id_of(number: int) -> str:
    """Return the id of a call by its number in the conversation: nine letters and digits, which every server takes."""
    return f"call{number:05}"


def result_text(turn: Turn) -> str:
    """Write a result, with its outcome if the call was not done."""
    return turn.text if turn.outcome == "done" else f"{turn.outcome}: {turn.text}"


class History(Struct, frozen=True):
    """The conversation of a prompt, for one model."""

    turns: tuple[Turn, ...]
    tools: NativeTools
    by: str
    """The model that it is written for."""
    left_out: frozenset[str] = frozenset()
    """Fields of reasoning, and texts right behind results, that the model refuses."""
    contents: Mapping[str, bytes] = NO_CONTENTS
    """Bytes of the files of the turns."""

    def messages(
        self,
        form: PartForm,
        call_message: Callable[[History, Turn, int], Any],
        result: Callable[[Turn, str, Any], Any],
    ) -> Iterator[Any]:
        """Yield a pair of speaker and content, or the calls of a turn and then their results, as the wire writes them."""
        first = 0
        for turn, results in rounds_of(self.turns):
            if not turn.calls:
                yield turn.role, form.content([turn.text], turn.files, self.contents)
                continue
            place = (form, first, self.by, self.left_out, self.tools)
            yield turn.written(place, lambda: call_message(self, turn, first))  # noqa: B023 - called at once
            for each in results:
                call_id, text = id_of(first + each.call), result_text(each)
                if each.files:  # they are too large to be kept as they are written
                    yield result(each, call_id, form.content((text, ""), each.files, self.contents))
                else:
                    yield each.written((form, first), lambda: result(each, call_id, text))  # noqa: B023 - called at once
            first += len(turn.calls)

    def own_items(self, turn: Turn) -> Any:
        """Read the items of a turn that this model gave; None without any."""
        return json.loads(turn.items) if turn.is_of(self.by) else None

    def calls_of(self, turn: Turn, first: int) -> Iterator[tuple[str, str, str]]:
        """Yield the id of each call of a turn, the name of its tool on the wire, and its arguments as JSON."""
        for number, call in enumerate(turn.calls, first):
            yield id_of(number), self.tools.names.get(call.tool, call.tool), written_arguments(call)


def opened(
    prompt: Prompt, by: str, refused: Sequence[str], contents: Mapping[str, bytes] = NO_CONTENTS
) -> tuple[Prompt, History]:
    """Return a prompt with the texts of the user that stand right behind its own in it, and the rest of its turns.

    Args:
        prompt: the prompt.
        by: the model that it is for.
        refused: fields of reasoning that the model refuses; ``unreasoned`` if it refuses calls without their reasoning.
        contents: bytes of the files, by their digests.
    """
    turns = native_only(prompt.turns, by) if "unreasoned" in refused else prompt.turns
    opening = Turn(role="user", text=prompt.user)
    first, *rest = joined([opening, *turns])
    fields = frozenset((*REASONING_FIELDS, USER_BEHIND_RESULTS)).intersection(refused)
    history = History(tuple(rest), native_tools(prompt.tools), by, fields, contents)
    if first is opening:
        return prompt, history
    return structs.replace(prompt, user=first.text, files=(*prompt.files, *first.files)), history


# -- chat completions --------------------------------------------------------------------------------------------------------------


def chat_messages(history: History) -> Iterator[Message]:
    """Yield the messages of chat completions."""
    is_behind_result = False
    if files_of(history.turns):
        history = structs.replace(history, turns=tuple(joined(_with_files_behind(history.turns))))
    for each in history.messages(CHAT, _chat_calls, _chat_result):
        if isinstance(each, dict):
            yield each
        else:
            if is_behind_result and USER_BEHIND_RESULTS in history.left_out:
                yield {"role": "assistant", "content": "Understood."}
            yield {"role": each[0], "content": each[1]}
        is_behind_result = isinstance(each, dict)


def _with_files_behind(turns: Sequence[Turn]) -> Iterator[Turn]:
    """Yield turns with the files of results in a turn of the user behind them: on this wire results are texts."""
    for turn, results in rounds_of(turns):
        yield turn
        for each in results:
            yield structs.replace(each, files=())
        if files := files_of(results):
            yield Turn(role="user", text=FILES_BEHIND, files=files)


def _chat_calls(history: History, turn: Turn, first: int) -> Message:
    own = history.own_items(turn) or {}
    calls = list[Message]()
    for call_id, name, arguments in history.calls_of(turn, first):
        function = {"name": name, "arguments": arguments}
        calls.append({"id": call_id, "type": "function", "function": function})
    for call, extra in zip(calls, own.get("extra_content", ()), strict=False):
        if extra:
            call["extra_content"] = extra
    reasoning = {name: own[name] for name in REASONING_FIELDS if own.get(name) and name not in history.left_out}
    return {"role": "assistant", "content": turn.text or own.get("content") or None, "tool_calls": calls, **reasoning}


def _chat_result(_: Turn, call_id: str, content: Any) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


# -- responses ---------------------------------------------------------------------------------------------------------------------


def responses_input(history: History) -> Iterator[Message]:
    """Yield the input items of responses."""
    for each in history.messages(RESPONSES, _responses_calls, _responses_result):
        if isinstance(each, list):
            yield from each
        else:
            yield each if isinstance(each, dict) else {"role": each[0], "content": each[1]}


def _responses_calls(history: History, turn: Turn, first: int) -> list[Message]:
    items = history.own_items(turn)
    if items is None:
        text = [{"role": "assistant", "content": turn.text}] if turn.text.strip() else []
        items = [*text, *({"type": "function_call"} for _ in turn.calls)]
    taken = [
        each
        for each in items
        if each.get("type") != "reasoning" or each.get("encrypted_content") or each.get("content")
    ]
    has_all = len(taken) == len(items)
    written, calls, reasoning = list[Message](), history.calls_of(turn, first), Message()
    for each in taken:
        item = {name: value for name, value in each.items() if has_all or name != "id"}
        if item.get("type") == "reasoning":
            reasoning = item
        elif item.get("type") == "function_call":
            if written and written[-1] is not reasoning and reasoning.get("content"):
                # Servers with open reasoning want it before each of several calls.
                written.append({name: value for name, value in reasoning.items() if name != "id"})
            item |= zip(("call_id", "name", "arguments"), next(calls), strict=True)
        written.append(item)
    return written


def _responses_result(_: Turn, call_id: str, content: Any) -> Message:
    return {"type": "function_call_output", "call_id": call_id, "output": content}


# -- messages ----------------------------------------------------------------------------------------------------------------------


def messages_of(history: History, opening: Message) -> list[Message]:
    """Return the messages of Anthropic's wire: all results of a reply first in one message of the user, and texts behind them."""
    written, content = [opening], list[Message]()
    for each in history.messages(MESSAGES, _message_calls, _message_result):
        if isinstance(each, dict):
            content.append(each)
            continue
        speaker, said = ("assistant", each) if isinstance(each, list) else each
        if speaker == "user":
            content += said if isinstance(said, list) else [{"type": "text", "text": said}]
            continue
        if content:
            written.append({"role": "user", "content": content})
        written.append({"role": speaker, "content": said})
        content = []
    if content:
        written.append({"role": "user", "content": content})
    return written


def _message_calls(history: History, turn: Turn, first: int) -> list[Message]:
    blocks = history.own_items(turn)
    if blocks is None:
        blocks = [{"type": "text", "text": turn.text}, *({"type": "tool_use"} for _ in turn.calls)]
    calls, written = history.calls_of(turn, first), list[Message]()
    for block in blocks:
        if block.get("type") == "tool_use":
            call_id, name, arguments = next(calls)
            raw = msgspec.Raw(arguments.encode())
            written.append({"type": "tool_use", "id": call_id, "name": name, "input": raw})
        elif block.get("type") != "text" or block["text"].strip():
            written.append(block)
    return written


def _message_result(turn: Turn, call_id: str, content: Any) -> Message:
    result: Message = {"type": "tool_result", "tool_use_id": call_id}
    if not isinstance(content, str) or content.strip():
        result["content"] = content
    if turn.outcome in ("error", "partly done"):
        result["is_error"] = True
    return result
