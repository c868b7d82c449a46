"""Documents: texts that are written in segments, each on top of the text before it."""

from microagents.replies.data_prompts import prompt_of
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
    asked_in,
)
from microagents.systems.documents.ranker import Rank, Ranker
from microagents.systems.documents.reasoned_text import WrittenProblem
from microagents.systems.documents.splitter import Split, Splitter
from microagents.systems.documents.validator import Validate, Validator

__all__ = [
    "Document",
    "Part",
    "Parts",
    "Rank",
    "Ranker",
    "Ranking",
    "Segment",
    "SegmentSummary",
    "Split",
    "Splitter",
    "Text",
    "ToRank",
    "ToSplit",
    "ToSummarize",
    "ToValidate",
    "ToWrite",
    "Validate",
    "Validation",
    "Validator",
    "Version",
    "WorkedDocument",
    "WrittenProblem",
    "asked_in",
    "prompt_of",
]
