"""Documents: texts that are written in segments, each on top of the text before it."""

from microagents.documents.document import Document, WorkedDocument
from microagents.documents.questions import (
    Part,
    Parts,
    Ranking,
    Segment,
    Summary,
    Text,
    ToRank,
    ToSplit,
    ToSummarize,
    ToValidate,
    ToWrite,
    Validation,
    Version,
    asked_in,
)
from microagents.documents.reasoning import WrittenProblem
from microagents.problems.questions import prompt_of

__all__ = [
    "Document",
    "Part",
    "Parts",
    "Ranking",
    "Segment",
    "Summary",
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
    "asked_in",
    "prompt_of",
]
