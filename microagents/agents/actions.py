"""Actions of agents: the calls that a reply asks for, what came of them, and the state that they add up to."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Literal

import msgspec
from msgspec import Struct

from microagents.replies.chat import CheckedReply

END = "end"
"""The name of the tool that ends the work. Its arguments are the result."""
MAX_CALLS = 16
"""Number of calls that one action may make side by side."""
TOO_MANY_CALLS, MIXED_CALLS = "too_many_calls", "mixed_calls"
"""Red flags of an action: of more calls than that, or of an end that stands beside calls."""

Outcome = Literal["done", "error", "rejected"]
"""What came of a call: `done`, it returned; `error`, it raised, or its server refused it; `rejected`, a person did not approve it."""


class ToolCall(Struct, frozen=True, forbid_unknown_fields=True):
    """One call of a tool."""

    tool: str
    arguments: dict[str, Any] = {}

    def key_text(self) -> str:
        """The call as text that is equal for equal calls, whatever the order of its arguments."""
        return canonical({"tool": self.tool, "arguments": self.arguments})


# The docstring is part of the digest of questions: see `Reply`.
class Action(CheckedReply, frozen=True):
    """What to do next: the calls to make now, or the end of the work."""

    calls: list[ToolCall]

    @property
    def is_end(self) -> bool:
        """Whether it ends the work."""
        return self.calls[0].tool == END

    def vote(self) -> Hashable:
        """The calls as text. Several are made side by side, so their order does not matter; nor does that of arguments."""
        return f"[{','.join(sorted(call.key_text() for call in self.calls))}]"

    def flaw(self) -> str | None:
        """No call at all, too many, or an end beside calls."""
        if not 1 <= len(self.calls) <= MAX_CALLS:
            return TOO_MANY_CALLS if self.calls else "no_call"
        return MIXED_CALLS if len(self.calls) > 1 and any(call.tool == END for call in self.calls) else None


class Observation(Struct, frozen=True, kw_only=True):
    """What came of one call."""

    outcome: Outcome
    text: str
    """What the tool returned, bounded, with control characters shown as such."""


class PastAction(Struct, frozen=True, kw_only=True):
    """One action that was taken, and what came of its calls."""

    calls: tuple[ToolCall, ...]
    observations: tuple[Observation, ...]
    """In the order of the calls."""


class AgentState(Struct, frozen=True, kw_only=True):
    """What was done so far."""

    turns: tuple[PastAction, ...] = ()
    """The actions after those in the summary."""
    summary: str = ""
    """What the earlier ones came to, in the words of the compressor; empty where there is none."""
    summarized: int = 0
    """Number of actions in the summary."""
    errors: int = 0
    """Number of calls that ended with an error."""
    result: dict[str, Any] | None = None
    """The arguments of the end; None before it."""

    @property
    def taken(self) -> int:
        """Number of actions taken, the end left out."""
        return self.summarized + len(self.turns)


class ToCompressActions(Struct, frozen=True, kw_only=True):
    """The data of the question that takes actions into the summary."""

    goal: str
    summary: str
    actions: tuple[PastAction, ...]


def canonical(value: object) -> str:
    """JSON with the keys of objects in order."""
    return _encode(value).decode()


_encode = msgspec.json.Encoder(order="deterministic").encode
