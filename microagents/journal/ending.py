"""The ending of a run, as its journal records it."""

from __future__ import annotations

from typing import ClassVar

from microagents.journal.messages import RunOutcome
from microagents.journal.rows import RunPart


class RunEnding(RunPart, frozen=True, kw_only=True):
    """How the last sitting of a run ended."""

    part: ClassVar[str] = "ending"
    outcome: RunOutcome
    reason: str | None
    traceback: str
    """Traceback of a user's code; empty if it did not raise."""
    result: str | None
    """The result, as JSON."""
    ended_at: str
