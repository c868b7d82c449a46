"""The records of a document that is being written: who wrote, who approved and objected, and why."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from microagents.systems.documents.questions import Segment


class ValidationRecord(Struct, kw_only=True):
    """Judgement of one agent on one segment."""

    agent: int
    passes: bool | None
    """None for an agent that is absent, whose replies were all flagged, or that has not answered yet."""
    reason: str = ""
    missing: Literal["", "flagged", "absent", "open"] = ""


SegmentOutcome = Literal["open", "passed", "failed", "forced", "flagged", "absent"]
"""``failed``: discarded; ``forced``: taken at the depth limit although too few segments passed; ``flagged``: no valid segment."""


class SegmentRecord(Struct, kw_only=True):
    """Segment that one agent wrote in one round."""

    agent: int
    outcome: SegmentOutcome
    segment: Segment | None = None
    validations: list[ValidationRecord] = field(default_factory=list)

    @property
    def approvals(self) -> int:
        """Number of agents that approve."""
        return sum(each.passes is True for each in self.validations)

    @property
    def objections(self) -> int:
        """Number of agents that object, or that gave no valid judgement."""
        return sum(each.passes is False or each.missing == "flagged" for each in self.validations)


class RankRecord(Struct, kw_only=True):
    """Ranking of versions by one ranker."""

    agent: int | None
    """None for the neutral ranker."""
    best: int | None
    """Agent whose version is best; None if the ranker gave no valid reply."""
    second: int | None = None
    reason: str = ""


SubtaskState = Literal["waiting", "writing", "split", "done"]


class SubtaskRecord(Struct, kw_only=True):
    """A subtask and all that happened in it."""

    at: str
    """Its place in the work, which is its id."""
    objective: str
    parents: tuple[str, ...] = ()
    """Places of the subtasks that it depends on."""
    depth: int = 0
    """Number of splits that led to it."""
    state: SubtaskState = "waiting"
    rounds: list[list[SegmentRecord]] = field(default_factory=list)
    """Segments by round."""
    refused_splits: list[str] = field(default_factory=list)
    """Faults of proposed splits."""
    rankings: list[RankRecord] = field(default_factory=list)
    author: int | None = None
    """Agent whose version was chosen."""
    text: str = ""
    """The chosen version; while it grows, the longest verified one."""
    agreed: bool = True
    """Whether every segment of the chosen version passed."""
    complete: bool = True
    """Whether its author called it complete."""
    summary: str | None = None
    """SegmentSummary that some later authors saw in place of the text; None if all saw the text."""
    has_no_summary: bool = False
    """Whether a summary was asked for in vain."""
