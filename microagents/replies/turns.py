"""Turns of a conversation: texts, calls of tools and their results, as wires with native calls take them, and as one text."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct, structs

from microagents.base.foreign_text import bounded, fenced, visible
from microagents.base.text_digests import digest_of
from microagents.replies.media import Media, checked_files

W = TypeVar("W")
Speaker = Literal["user", "assistant", "tool"]
EARLIER = "\n\nYour earlier answer was:\n"
"""Stands in the flat form of a prompt before an answer of the model."""
CALLED = "Call: "

Arguments = dict[str, Any]
"""Arguments of a call of a tool, by name, as JSON has them."""


class ToolCall(Struct, frozen=True, forbid_unknown_fields=True):
    """One call of a tool."""

    tool: str
    arguments: Arguments = {}

    def key_text(self) -> str:
        """Return the call as text that is equal for equal calls, whatever the order of its arguments."""
        return canonical({"tool": self.tool, "arguments": self.arguments})

    def shown(self, most: int = sys.maxsize) -> str:
        """Write the call as in Python, on one line, for a person; a note says how much is left out of more than ``most`` characters."""
        given = [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in self.arguments.items()]
        return " ".join(bounded(f"{self.tool}({', '.join(given)})", most).split())


class Turn(Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """One turn behind the first text of the user. Calls are followed by their results, in their order."""

    role: Speaker
    """Who speaks; ``tool`` for the result of one call."""
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    """Calls of an assistant's turn."""
    call: int = 0
    """Of a result: the place of its call in the assistant's turn, from 0."""
    outcome: str = "done"
    """Of a result: its outcome, such as ``error``."""
    closing: str = ""
    """Text behind a user's turn in the flat form only: where results end a conversation, the next step is the model's."""
    files: tuple[Media, ...] = ()
    """Pictures and files of a user's turn, or of a result."""
    label: str = CALLED
    """Text before each call and its result in the flat form."""
    items: str = ""
    """JSON of what the wire of a model gives beyond text and calls, such as reasoning with signatures; it is part of no digest."""
    by: str = ""
    """The model that gave the items, which alone gets them back."""

    def __post_init__(self) -> None:
        if self.files:
            structs.force_setattr(self, "files", checked_files(self.files))

    def __hash__(self) -> int:
        return hash(self.digest)  # arguments have no hash

    @cached_property
    def digest(self) -> bytes:
        """Digest of the turn without the items."""
        asked = structs.replace(self, text=self.text + self.closing, closing="", items="", by="")
        return digest_of(_canonical(asked))

    @cached_property
    def size(self) -> int:
        """Bytes of the turn as UTF-8, each call and the items included."""
        return len(_canonical(self))

    def is_of(self, by: str) -> bool:
        """Whether its items are of a model."""
        return bool(self.items) and self.by == by

    def given_by(self, given: Turn) -> Turn:
        """Return the turn with the items of a model that gave the same calls; else itself."""
        if given.calls != self.calls:
            return self
        return self.written(given.items, lambda: structs.replace(self, items=given.items, by=given.by))

    def written(self, form: object, write: Callable[[], W]) -> W:
        """Return the turn in the form of a wire, which is written once.

        Args:
            form: names the wire and all else that the form depends on.
            write: writes it.
        """
        forms: dict[object, W] = self.__dict__.setdefault("_forms", {})
        if form not in forms:
            forms[form] = write()
        return forms[form]


def rounds_of(turns: Sequence[Turn]) -> Iterator[tuple[Turn, Sequence[Turn]]]:
    """Yield each turn of user or assistant, with the results of its calls."""
    at = 0
    while at < len(turns):
        end = at + 1
        while end < len(turns) and turns[end].role == "tool":
            end += 1
        yield turns[at], turns[at + 1 : end]
        at = end


def flaw_of(turns: Sequence[Turn]) -> str | None:
    """Say why no model takes these turns; None if all is in order."""
    for number, (turn, results) in enumerate(rounds_of(turns), 1):
        if turn.role == "tool":
            return f"turn {number} is the result of a call that no turn before it makes"
        if turn.role == "user" and turn.calls:
            return f"turn {number} is the user's, and calls tools; only the assistant's can"
        if turn.files and turn.role == "assistant":
            return f"turn {number} is the assistant's, and has files; only the user's turns and results can"
        if not (turn.text + turn.closing).strip() and not turn.calls and not turn.files:
            return f"turn {number} has neither a text nor a call"
        if [each.call for each in results] != list(range(len(turn.calls))):
            return (
                f"turn {number} makes {len(turn.calls)} calls, and the results behind it are of the calls "
                f"{[each.call for each in results]}; each call needs one, in their order"
            )
    return None


class ToolForm(Struct):
    """A tool as a prompt describes it."""

    name: str
    description: str
    parameters: dict[str, Any]


@lru_cache(maxsize=256)
def flaw_of_tools(tools: object) -> str | None:
    """Say why a text is no JSON list of tools; None if it is one."""
    try:
        found = msgspec.json.decode(str(tools), type=list[ToolForm])
    except msgspec.MsgspecError as error:
        return str(error)
    names = [each.name for each in found]
    if len(names) > len({*names}):
        return "two have one name"
    return None


def flat_text(turns: Sequence[Turn]) -> str:
    """Write turns as one text, to stand behind the user's."""
    return "".join([_flat(turn, results) for turn, results in rounds_of(turns)])


def _flat(turn: Turn, results: Sequence[Turn]) -> str:
    if turn.role == "user":
        return f"\n{turn.text}{turn.closing}"
    if not turn.calls:
        return f"{EARLIER}{visible(turn.text)}"
    shown = [
        each.written((turn.label, each.call), lambda: f"\n{turn.label}{observed(call, each.outcome, each.text)}")  # noqa: B023 - called at once
        for call, each in zip(turn.calls, results, strict=True)
    ]
    return "".join(shown)


def without_feedback(turns: tuple[Turn, ...], rounds: int) -> tuple[Turn, ...]:
    """Leave out the answers that were found wrong among the last rounds, each with its feedback; look-ups stay.

    Args:
        turns: the turns.
        rounds: number of the last answers to look at, at least 1.
    """
    starts = [place for place, turn in enumerate(turns) if turn.role == "assistant"][-rounds:]
    kept = list(turns)
    for start, end in reversed(list(pairwise([*starts, len(turns)]))):
        if turns[end - 1].role == "user":
            del kept[start:end]
    return tuple(kept)


def joined(turns: Iterable[Turn]) -> list[Turn]:
    """Join texts of the user that stand side by side: many templates want the speakers to take turns."""
    found: list[Turn] = []
    for turn in turns:
        if found and (turn.text or turn.files) and turn.role == found[-1].role == "user":
            text = "\n".join(filter(None, (found[-1].text, turn.text)))
            found[-1] = Turn(role="user", text=text, files=(*found[-1].files, *turn.files))
        elif turn.text or turn.files or turn.calls or turn.role != "user":
            found.append(turn)
    return found


def files_of(turns: Sequence[Turn]) -> tuple[Media, ...]:
    """Return all files of turns, in their order."""
    return tuple([file for turn in turns for file in turn.files])


def without_files(turns: Sequence[Turn], untaken: Collection[Media]) -> tuple[Turn, ...]:
    """Return turns whose results have none of these files, and say so: a tool may return what a model does not take."""
    found = []
    for turn in turns:
        left_out = [file for file in turn.files if file in untaken and turn.role == "tool"]
        if left_out:
            said = f"(left out, since the model takes none: {', '.join(file.shown for file in left_out)})"
            kept = tuple([file for file in turn.files if file not in untaken])
            turn = structs.replace(turn, text=f"{turn.text}\n{said}", files=kept)  # noqa: PLW2901 - the same turn
        found.append(turn)
    return tuple(found)


def native_only(turns: Sequence[Turn], by: str) -> list[Turn]:
    """Write the rounds of calls that another model gave as texts of the user, for a model that wants its own reasoning with each call."""
    found = []
    for turn, results in rounds_of(turns):
        if turn.calls and not turn.is_of(by):
            found.append(Turn(role="user", text=_flat(turn, results).strip("\n"), files=files_of(results)))
        else:
            found += [turn, *results]
    return found


def observed(call: ToolCall, outcome: str, text: str) -> str:
    """Write down a call and its result."""
    note = "" if outcome == "done" else f' outcome="{outcome}"'
    return f"{visible(call.key_text())}\n{fenced('observation', text, note)}\n"


def described(tools: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Describe tools to a model: as a JSON list for native calls, and in a text as a line of JSON each.

    Args:
        tools: each with ``tool``, ``description``, ``parameters`` and perhaps ``effect``.
    """
    native = []
    for each in tools:
        effect = f" Effect: {each['effect']}." if "effect" in each else ""
        said = f"{each['description']}{effect}"
        native.append({"name": each["tool"], "description": said, "parameters": each["parameters"]})
    lines = [json.dumps(each, ensure_ascii=False, sort_keys=True) for each in tools]
    return canonical(native), visible("\n".join(lines))


def canonical(value: object) -> str:
    """JSON with the keys of objects in order."""
    return _canonical(value).decode()


_canonical = msgspec.json.Encoder(order="deterministic").encode
