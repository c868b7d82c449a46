"""Any goal, with a checklist for the result."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from microagents.replies.reply import Reply
from microagents.systems.documents.document import are_met
from microagents.systems.questions.problem import Problem
from microagents.tasks.given_text import GivenText
from microagents.tasks.requirements import requirements_in

MAX_CHARS = 200_000


class Outcome(Reply, frozen=True):
    """What was wanted, whole, as a text."""

    text: str


class Goal(Problem[Outcome]):
    """Reach a goal in steps. It needs a real model: ``--model``."""

    default_strategy = "swarm"

    goal: Annotated[GivenText, Field(max_length=MAX_CHARS)]
    """The goal; goal=@FILE reads it from a file."""
    checklist: Annotated[str, Field(max_length=MAX_CHARS)] = ""
    """Requirements on the result. Lines such as ``- check: at least 30 of "TEXT"`` are checked by code as well."""

    @field_validator("checklist")
    @classmethod
    def _has_known_checks(cls, given: str) -> str:
        requirements_in(given, "")
        return given

    def statement(self) -> str:
        if self.checklist.strip():
            return f"{self.goal}\n\nThe result must have:\n{self.checklist}"
        return self.goal

    def correct(self, reply: Outcome) -> bool | None:
        """Return whether it passes the checks by code. None without any, or without the program for one."""
        requirements = requirements_in(self.checklist, "")
        return are_met({name: met(reply.text) for name, met in requirements.items()})
