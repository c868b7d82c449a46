"""The ending of a run, as its journal records it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from microagents.journal.messages import RunOutcome
from microagents.journal.rows import RunPart

LimitName = Literal["max_calls", "max_tokens", "max_cost_usd", "max_time_s"]
_Amount = Annotated[float, Meta(ge=0, le=1e300)]


class ReachedLimit(Struct, frozen=True, kw_only=True):
    """The limit that has stopped a run."""

    setting: LimitName
    value: _Amount
    enough: _Amount
    """A value under which the next call is sent; 0 if no value helps, since a price is unknown."""


class RunEnding(RunPart, frozen=True, kw_only=True):
    """How the last sitting of a run ended."""

    part = "ending"
    outcome: RunOutcome
    reason: str | None = None
    """Why the run did not complete, in one sentence; None if it did."""
    limit: ReachedLimit | None = None
    """The limit that has stopped it; None if none has."""
    traceback: str = ""
    """Traceback of a user's code; empty if it did not raise."""
    result: str | None = None
    """The result, as JSON; None without one, and of a list of inputs."""
    ended_at: str = ""
    """Time in UTC; empty before the ending is recorded."""
