"""Documents: texts that are written in segments, each on top of the text before it."""

from microagents.systems.documents.document import Document, WorkedDocument
from microagents.systems.documents.questions import (
    Part,
    Parts,
    Ranking,
    Segment,
    SegmentSummary,
    Text,
    ToRank,
    ToSplit,
    ToSummarize,
    ToValidate,
    ToWrite,
    Validation,
    Version,
)
from microagents.systems.documents.reasoned_text import WrittenProblem

__all__ = [
    "Document",
    "Part",
    "Parts",
    "Ranking",
    "Segment",
    "SegmentSummary",
    "Text",
    "ToRank",
    "ToSplit",
    "ToSummarize",
    "ToValidate",
    "ToWrite",
    "Validation",
    "Version",
    "WorkedDocument",
    "WrittenProblem",
]
