"""Questions about a document that is written in segments (SeqCV, appendix E): their data, and the replies to them.

The data of a question are one JSON object in the user prompt. Fields that stay the same from call to call come first, so that providers
can cache them: the objective, the finished text, and then the parts that change.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from microagents.replies.chat import Prompt
from microagents.replies.data_prompts import data_in
from microagents.replies.reply import Reply
from microagents.replies.reply_fields import Unvoted


# Another docstring here would change the digests of questions: see `Reply`.
class Text(Reply, frozen=True):
    """The whole document."""

    text: str


class Segment(Reply, frozen=True):
    """The next segment of a text."""

    justify: Annotated[str, Unvoted, Meta(description="what this segment does, and what is left to be written")]
    text: Annotated[str, Meta(description="the segment itself, in the form of the result, ending at the end of a line")]
    status: Annotated[
        Literal["ongoing", "complete"],
        Meta(description='"complete" if nothing is left to be written of the subtask after this segment'),
    ]
    mode: Annotated[
        Literal["continue", "override"],
        Meta(
            description='"continue" puts the segment behind `written`; "override" puts it in place of everything in `written`'
        ),
    ]

    def __post_init__(self) -> None:
        """Refuse a segment that adds nothing and ends nothing."""
        if not self.text.strip() and (self.status, self.mode) != ("complete", "continue"):
            raise ValueError("the text of the segment is blank")


class Validation(Reply, frozen=True):
    """The judgement of one segment."""

    reason: Annotated[str, Unvoted, Meta(description="the errors found, or why there is none")]
    passes: Annotated[bool, Meta(description="whether the segment can stand as it is")]


class Part(Struct, frozen=True, kw_only=True):
    """A subtask as a model proposes it."""

    id: int
    objective: str
    depends_on: tuple[int, ...]


class Parts(Reply, frozen=True):
    """Subtasks that take the place of a subtask."""

    subtasks: tuple[Part, ...]


class Ranking(Reply, frozen=True):
    """The two best versions of a text."""

    reason: Annotated[str, Unvoted, Meta(description="why the best is better than the others")]
    best: Annotated[str, Meta(description="label of the best version")]
    second: Annotated[str, Meta(description="label of the second best version")]

    def vote(self) -> str:
        """Return both labels, without regard to case and blanks."""
        return ranking_vote(self.best, self.second)


class SegmentSummary(Reply, frozen=True):
    """A summary of a finished part."""

    summary: str


class _OfSubtask(Struct, frozen=True, kw_only=True):
    objective: str
    """The objective of the whole document."""
    finished: str
    """The text of finished subtasks."""
    subtask: str


class ToWrite(_OfSubtask, frozen=True, kw_only=True, tag_field="wanted", tag="segment"):
    """Write the next segment of a subtask."""

    written: str
    """The text of this subtask so far."""
    round: int
    """Number of this round, from 1."""
    rounds: int
    """Number of rounds after which the subtask ends."""


class ToValidate(_OfSubtask, frozen=True, kw_only=True, tag_field="wanted", tag="validation"):
    """Judge a segment of a subtask."""

    written: str
    """The text of the subtask so far, by the author of the segment."""
    segment: str
    status: str
    mode: str


class ToSplit(_OfSubtask, frozen=True, kw_only=True, tag_field="wanted", tag="parts"):
    """Split a subtask into simpler ones."""

    max_subtasks: int


class Version(Struct, frozen=True):
    """A version of a subtask's text, in the prompt of a ranker."""

    label: str
    text: str


class ToRank(_OfSubtask, frozen=True, kw_only=True, tag_field="wanted", tag="ranking"):
    """Name the two best versions of a subtask's text."""

    versions: tuple[Version, ...]


class ToSummarize(Struct, frozen=True, kw_only=True, tag_field="wanted", tag="summary"):
    """Summarize the text of a finished subtask for the authors of later ones."""

    objective: str
    subtask: str
    text: str


Asked = ToWrite | ToValidate | ToSplit | ToRank | ToSummarize
"""The data of a question about a document."""
REPLIES: dict[type[Asked], type[Reply]] = {
    ToWrite: Segment,
    ToValidate: Validation,
    ToSplit: Parts,
    ToRank: Ranking,
    ToSummarize: SegmentSummary,
}
"""The class of replies to each question."""
_decoder: msgspec.json.Decoder[Asked] = msgspec.json.Decoder(Asked)


def asked_in(prompt: Prompt) -> Asked:
    """Read the data of a question from the text of its prompt.

    Raises:
        InvalidDefinition: the prompt is of another kind.
    """
    return data_in(prompt, _decoder, "a document")


def ranking_vote(best: str, second: str) -> str:
    """Return the vote of a ranking that names these labels."""
    return f"{best.strip().upper()} {second.strip().upper()}"
