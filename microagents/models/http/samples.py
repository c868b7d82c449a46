"""Samples: the text, the end and the native calls of a reply, without the key."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import structs

from microagents.base.foreign_text import in_whole_characters
from microagents.base.logs import log
from microagents.elections.red_flags import CONTENT_FILTER, EMPTY, ONLY_REASONING, OTHER, REFUSAL
from microagents.models.http.native_calls import NativeCall, native_tools
from microagents.models.http.refusals import Redaction
from microagents.models.http.replies import Said, finish_of, name_in
from microagents.replies.chat import Sample, Usage
from microagents.replies.reply_forms import write
from microagents.replies.tool_calls import Calls
from microagents.replies.turns import Turn
from microagents.tools.toolbox import BAD_ARGUMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from microagents.models.model import Call

ENDED_BY_CALLS = ("stop", "tool_calls", ONLY_REASONING, OTHER, EMPTY)
"""Ends of replies that may have calls, whatever the server calls them."""


class SampleMaker:
    """Makes the samples of one model.

    Args:
        model: provider and name of the model.
        by: the same with its address, which a turn with the wire's own items is marked by.
        redaction: keeps the key out.
        items_of: returns what the wire wants back with the calls of a reply; None for nothing.
    """

    def __init__(
        self, model: str, by: str, redaction: Redaction, items_of: Callable[[Said, Sequence[NativeCall]], Any]
    ) -> None:
        self._model = model
        self._by = by
        self._redaction = redaction
        self._items_of = items_of
        self._has_told_end = False

    def sample(self, said: Said, reason: Any, usage: Usage, call: Call) -> Sample:
        """Make the sample of a reply, with its native calls."""
        sample = self._in_text(said, name_in(reason), usage)
        if not call.prompt.tools or sample.finish not in ENDED_BY_CALLS:
            return sample
        tools, text, calls = native_tools(call.prompt.tools), said.text, said.calls
        if not calls:
            text, calls = tools.in_text(said.text)
        if not calls:
            return sample
        read = tools.read(calls)
        if read is None:
            shown = "\n".join([f"{each.name}({each.text})" for each in calls])
            return structs.replace(sample, text=f"{text}\n\n{shown}".lstrip("\n"), finish=BAD_ARGUMENTS)
        turn = Turn(role="assistant", text=text, calls=read)
        items = self._items_of(said, calls) if said.calls else None
        if items:
            written = in_whole_characters(json.dumps(items, ensure_ascii=False))
            turn = structs.replace(turn, items=written, by=self._by)
        shown = f"{text}\n\n{write(Calls(calls=list(read)))}".lstrip("\n")
        made = structs.replace(sample, text=shown, finish="stop", turn=turn)
        return self._redaction.of_sample(made)

    def _in_text(self, said: Said, reason: str, usage: Usage) -> Sample:
        """Make the sample of a reply that ended for a reason, by whatever name."""
        finish = finish_of(reason)
        text = said.text or said.refusal
        if said.refusal and finish != CONTENT_FILTER:
            finish = REFUSAL
        elif finish is None:
            self._tell_unknown_end(reason)
            finish = "stop" if said or not reason else OTHER
        elif finish == "tool_calls" and text.strip():
            finish = "stop"  # no call was asked for, and the text is there
        if finish == "stop" and said.reasoning.strip() and not text.strip():
            finish, text = ONLY_REASONING, said.reasoning
        return Sample(
            text=self._redaction.without_key(in_whole_characters(text)), finish=finish, usage=usage, model=self._model
        )

    def _tell_unknown_end(self, name: str) -> None:
        """Tell once that the end of replies has an unknown name, or none."""
        if not self._has_told_end:
            self._has_told_end = True
            told = repr(self._redaction.sanitize(name)) if name else "none"
            log().warning("replies end for an unknown reason; whole texts are used", model=self._model, reason=told)
