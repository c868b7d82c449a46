"""The recorded state of a document: a `DocumentDraft` that is sent the replies of a journal."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from microagents.base.user_code import called, mistyped
from microagents.systems.documents.document import Document
from microagents.systems.documents.questions import REPLIES
from microagents.systems.documents.records import SubtaskRecord
from microagents.systems.documents.writing import (
    Answer,
    DocumentDraft,
    Missing,
    NothingWritten,
    QuestionBatch,
    SegmentQuestion,
)
from microagents.work.absence import ABSENT
from microagents.work.recorded import NotRecorded, RecordedWork


class DocumentRecord(Struct, frozen=True, kw_only=True):
    """A document as far as a journal records it."""

    agents: tuple[str, ...]
    """Names of the agents."""
    subtasks: tuple[SubtaskRecord, ...]
    """All subtasks: those that are not split in the order of the text, each behind the ones that were split to get it."""
    text: str
    """The text of finished subtasks, and the longest verified text of the one in work."""
    calls: int
    """Number of recorded samples."""
    cost_usd: float | None


def replay(work: RecordedWork[Any, Any], writing: DocumentDraft, agents: tuple[str, ...]) -> DocumentRecord:
    """Send the recorded replies to a writing until one is missing."""
    ended = [True]
    while any(ended):
        ended = [_follow(work, writing, record) for record in writing.ready()]
    calls, cost_usd = work.spent()
    return DocumentRecord(
        agents=agents, subtasks=tuple(_listed(writing)), text=writing.text(), calls=calls, cost_usd=cost_usd
    )


def checked_results(document: Document, text: str) -> dict[str, bool | None]:
    """Check the hard requirements on a text by the document's own code."""
    results = called(document.checks, text)
    try:
        return msgspec.convert(results, dict[str, bool | None])
    except msgspec.ValidationError as error:
        raise mistyped(document.checks, results, f"True, False or None by name ({error})") from None


def _follow(work: RecordedWork[Any, Any], writing: DocumentDraft, record: SubtaskRecord) -> bool:
    """Follow the writing of one subtask; returns whether it has ended, so that others may begin."""
    batches = writing.begin(record)
    try:
        batch = next(batches)
        while True:
            batch = batches.send([_recorded(work, batch, ask) for ask in batch.asks])
    except StopIteration as ended:
        writing.end(record, ended.value)
        return True
    except (NotRecorded, NothingWritten):
        return False


def _recorded(work: RecordedWork[Any, Any], batch: QuestionBatch, ask: SegmentQuestion) -> Answer:
    with suppress(NotRecorded):
        absent = work.row(f"{batch.at}/{ABSENT}").value
        if absent is not None and ask.agent in msgspec.json.decode(absent):
            return Missing.ABSENT
    try:
        valid = work.replies(ask.at, REPLIES[type(ask.asked)])
    except NotRecorded:
        return Missing.OPEN
    return valid[0] if valid else Missing.FLAGGED


def _listed(writing: DocumentDraft) -> list[SubtaskRecord]:
    """List all subtasks: split ones before their parts."""
    listed: dict[str, SubtaskRecord] = {}
    for record in writing.in_order:
        for each in writing.records.values():
            if record.at.startswith(f"{each.at}/"):
                listed.setdefault(each.at, each)
        listed[record.at] = record
    return list(listed.values())
