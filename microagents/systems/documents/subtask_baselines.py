"""The baselines of SeqCV: the same subtasks by one author, without validation and without splitting (SeqCV, table 2)."""

from __future__ import annotations

from microagents.systems.documents.document_conductor import DocumentConductor
from microagents.systems.documents.strategy import DocumentStrategy


class Sequential(DocumentStrategy):
    """Subtasks one after another; each author sees all finished text."""

    conductor = DocumentConductor


class Parallel(Sequential):
    """Subtasks side by side; each author sees the text of the direct parents of its subtask only."""

    sees = "parents"
