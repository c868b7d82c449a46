"""Actions of agents: the calls that a reply asks for, their outcomes, and the state that they add up to."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from functools import cached_property
from typing import Any, Literal

from msgspec import Struct

from microagents.base.text_digests import digest_of
from microagents.replies.media import Media
from microagents.replies.reply import CheckedReply, ProseByTool
from microagents.replies.tool_calls import Calls, ToolCall, with_whole_numbers
from microagents.replies.turns import Turn, canonical
from microagents.tools.effect_keys import MAKING

END = "end"
"""The name of the tool that ends the work. Its arguments are the result."""
MIXED_CALLS = "mixed_calls"
"""The red flag of an end that stands beside calls."""

Outcome = Literal["done", "error", "partly done", "rejected", "repeated"]
"""What came of a call: `done`, it returned; `error`, it raised, its server refused it, or its agent failed before it changed anything;
`partly done`, its agent failed later; `rejected`, a person did not approve it; `repeated`, it is equal to a destructive call that was
made, so it was not made again."""
MADE: tuple[Outcome, ...] = ("done", "partly done")
"""Outcomes after which a call has changed the world, if it can."""
MAX_RETURNED_CHARS = 1_000
"""Characters of what a destructive call returned that are kept for the case that it is repeated."""


# The docstring is part of the digest of questions: see `Reply`.
class Action(Calls, frozen=True):
    """What to do next: the calls to make now, or the end of the work."""

    @property
    def is_end(self) -> bool:
        """Whether it ends the work."""
        return self.calls[0].tool == END

    def vote(self) -> Hashable:
        """Return the calls as text. Several are made side by side, so neither their order nor the order of arguments matters."""
        keys = sorted(call.key_text() for call in self.calls)
        return f"[{','.join(keys)}]"

    def without_prose(self, prose: ProseByTool) -> Action:
        """Return the calls without the arguments that are declared as prose. All others count in a vote."""
        calls = [_without(call, prose.get(call.tool, ())) for call in self.calls]
        return Action(calls=calls)

    def text_that_differs(self, other: CheckedReply) -> str:
        """Name the only argument in which another action differs, if it is a text in both: ``body of send``."""
        if not isinstance(other, Action) or len(self.calls) != len(other.calls):
            return ""
        pairs = [pair for pair in zip(self.calls, other.calls, strict=True) if pair[0] != pair[1]]
        if len(pairs) != 1:
            return ""
        ((one, two),) = pairs
        if one.tool != two.tool or one.arguments.keys() != two.arguments.keys():
            return ""
        differing = [name for name, value in one.arguments.items() if value != two.arguments[name]]
        if len(differing) != 1 or not all(_has_words(each.arguments[differing[0]]) for each in (one, two)):
            return ""
        return f"{differing[0]} of {one.tool}"

    def flaw(self) -> str | None:
        """No call at all, too many, or an end beside calls."""
        if len(self.calls) > 1 and any(call.tool == END for call in self.calls):
            mixed = MIXED_CALLS
        else:
            mixed = None
        return super().flaw() or mixed


def _has_words(value: object) -> bool:
    """Return whether a value is a text that is no number or date."""
    return isinstance(value, str) and any(map(str.isalpha, value))


def _without(call: ToolCall, arguments: Collection[str]) -> ToolCall:
    return ToolCall(call.tool, {name: value for name, value in call.arguments.items() if name not in arguments})


class Observation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of one call: its result, refusal or error."""

    outcome: Outcome
    text: str
    """What the tool returned, bounded, with control characters shown as such."""
    files: tuple[Media, ...] = ()
    """Pictures and files that it returned."""


class PastAction(Struct, frozen=True, kw_only=True, dict=True):
    """One action that was taken, and the outcomes of its calls."""

    calls: tuple[ToolCall, ...]
    observations: tuple[Observation, ...]
    """In the order of the calls."""

    @cached_property
    def size(self) -> int:
        """Characters that count towards a strategy's `memory`."""
        return sum(len(seen.text) for seen in self.observations) + len(str(self.calls))

    @cached_property
    def results(self) -> tuple[Turn, ...]:
        """The turns of the results."""
        turns = []
        for call, each in enumerate(self.observations):
            turns.append(Turn(role="tool", call=call, outcome=each.outcome, text=each.text, files=each.files))
        return tuple(turns)

    def turn(self, number: int) -> Turn:
        """Return the assistant's turn of the action with a number, from 1."""
        turns: dict[int, Turn] = self.__dict__.setdefault("_turns", {})
        if number not in turns:
            turns[number] = Turn(role="assistant", calls=self.calls, label=f"Action {number}: ")
        return turns[number]


class MadeCall(Struct, frozen=True, kw_only=True):
    """A destructive call that was made."""

    digest: str
    """Equal for equal calls (`call_digest`)."""
    action: int
    """Number of the action that made it last, from 1."""
    returned: str
    is_told: bool = False
    """Whether the agent chose it again, and has read that it was made."""


class AgentState(Struct, frozen=True, kw_only=True):
    """Actions so far."""

    turns: tuple[PastAction, ...] = ()
    """The actions after those in the summary."""
    summary: str = ""
    """What the earlier ones came to, in the words of the compressor; empty if there are none."""
    summarized: int = 0
    """Number of actions in the summary."""
    errors: int = 0
    """Number of calls that ended with an error."""
    made: tuple[MadeCall, ...] = ()
    """The destructive calls that were made, also those in the summary; without repeatable ones."""
    result: dict[str, Any] | None = None
    """The arguments of the end; None before it."""

    @property
    def taken(self) -> int:
        """Number of actions taken, the end left out."""
        return self.summarized + len(self.turns)


def making_at(call: str, number: int) -> str:
    """Return the place of a making, counted from 1, of the call at a place: ``step/3/call/0/making/1``."""
    return f"{call}{MAKING}{number}"


def call_digest(call: ToolCall, parameters: Mapping[str, Any]) -> str:
    """Return a digest that is equal for calls that do the same: an argument may be left out or be its default, 5 or 5.0."""
    schemas = parameters.get("properties", {})
    defaults = {name: each["default"] for name, each in schemas.items() if isinstance(each, dict) and "default" in each}
    arguments = with_whole_numbers({**defaults, **call.arguments})
    return digest_of(canonical([call.tool, arguments])).hex()


class ToShorten(Struct, frozen=True, kw_only=True):
    """Data of the question that takes actions into the summary."""

    goal: str
    summary: str
    actions: tuple[PastAction, ...]
