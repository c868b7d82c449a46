"""The baselines of SeqCV: the same subtasks by one author, without validation and without splitting (SeqCV, table 2)."""

from __future__ import annotations

from typing import ClassVar, Literal

from microagents.systems.documents.document_conductor import DocumentConductor, DocumentStrategy
from microagents.systems.documents.writing import WritingRules


class _Unvalidated(DocumentStrategy):
    conductor = DocumentConductor
    sees: ClassVar[Literal["all", "parents"]]

    def rules(self, agents: int) -> WritingRules:
        """Return the rules of writing: every segment passes."""
        return WritingRules(agents=agents, rounds=self.rounds, sees=self.sees, context_tokens=self.context_tokens)


class Sequential(_Unvalidated):
    """Subtasks one after another; each author sees all finished text."""

    sees = "all"


class Parallel(_Unvalidated):
    """Subtasks side by side; each author sees the text of the direct parents of its subtask only."""

    sees = "parents"
