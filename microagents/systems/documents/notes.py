"""Notes of a conductor on a document: the draft, and its author."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from microagents.systems.documents.records import SubtaskRecord
from microagents.systems.documents.writing import DocumentDraft
from microagents.work.notes import Note, Records


class DocumentRecord(Struct, frozen=True, kw_only=True):
    """A document as far as a journal records it."""

    agents: tuple[str, ...]
    """Names of the agents."""
    subtasks: tuple[SubtaskRecord, ...]
    """All subtasks: the unsplit ones in the order of the text, each behind the ones that were split to get it."""
    text: str
    """The text of finished subtasks, and the longest verified text of the one in work."""
    calls: int
    """Number of recorded samples."""
    cost_usd: float | None


class DocumentNotes(NamedTuple):
    """A document that is being written."""

    draft: DocumentDraft
    agents: tuple[str, ...]
    """Names of the agents."""

    def drawn(self, notes: Sequence[Note], records: Records) -> DocumentRecord:  # noqa: ARG002 - there is one
        """Return the document as far as its draft has come."""
        calls, cost_usd = records.spent()
        return DocumentRecord(
            agents=self.agents,
            subtasks=tuple(_listed(self.draft)),
            text=self.draft.text(),
            calls=calls,
            cost_usd=cost_usd,
        )


def _listed(draft: DocumentDraft) -> list[SubtaskRecord]:
    """List all subtasks: split ones before their parts."""
    listed: dict[str, SubtaskRecord] = {}
    for record in draft.in_order:
        for each in draft.records.values():
            if record.at.startswith(f"{each.at}/"):
                listed.setdefault(each.at, each)
        listed[record.at] = record
    return list(listed.values())
