"""Rows that ask the same question: the first of them is asked, and the others end as it does."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import structs

from microagents.base.errors import MicroagentsError
from microagents.base.text_digests import digest_of
from microagents.base.user_code import called
from microagents.journal.messages import InputEnding
from microagents.replies.chat import Prompt
from microagents.runs.plan import RunPlan
from microagents.runs.spool import temporary_table, writing_temporary
from microagents.systems.chains.row_task import RowTask
from microagents.task import Task

DIGEST_BYTES = 12
_BY_ROW = ("flag", "verify", "oracle", "correct", "advance", "result", "done", "start")
"""Methods that may look at columns that the prompt does not show."""


def may_share(plan: RunPlan) -> bool:
    """Return whether rows of a plan that ask the same question may share a result."""
    return plan.settings["share"] == "on" and isinstance(plan.tasks[0], RowTask) and not plan.strategy.passes_undecided


def questions_of(tasks: Sequence[Task]) -> int:
    """Count the different questions of rows."""
    shared = SharedQuestions(tasks)
    digests = [shared.digest(number) for number in range(len(tasks))]
    return digests.count(None) + len({*digests} - {None})


def shared_ending(ending: InputEnding, other: int) -> InputEnding:
    """Return the ending of a row as the ending of another one."""
    if ending.outcome != "completed":
        return structs.replace(ending, input=other)
    first = ending.input
    return structs.replace(ending, input=other, reason=f"asks the same as input {first}", same_as=first)


class SharedQuestions:
    """For each row the first one that asks the same question, and the rows that wait for the end of another.

    Args:
        tasks: the rows. The digests of their questions are in an unnamed temporary file, so that memory does not grow with the rows.
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = tasks
        kind = type(tasks[0])
        self._needs_row = any(getattr(kind, name) is not getattr(RowTask, name) for name in _BY_ROW)
        self._firsts = temporary_table(self, "firsts (question BLOB PRIMARY KEY, number INTEGER) WITHOUT ROWID")
        self._later: dict[int, int] = {}
        """The first row of the question of a row, if that is another one."""
        self._waiting: dict[int, list[int]] = {}
        """Rows that end once another one does."""
        self._unsolved: dict[int, list[int]] = {}
        """Rows that ended like an incomplete one: if that one continues, they end again."""

    def note(self, number: int) -> None:
        """Note the question of the next row. Rows are noted in their order.

        Raises:
            InvalidUsage: the temporary folder has no room.
        """
        digest = self.digest(number)
        if digest is None:
            return
        with writing_temporary():
            is_new = self._firsts.execute("INSERT OR IGNORE INTO firsts VALUES (?, ?)", (digest, number)).rowcount
        if is_new:
            return
        (first,) = self._firsts.execute("SELECT number FROM firsts WHERE question = ?", (digest,)).fetchone()
        if first != number:
            self._later[number] = first

    def first_of(self, number: int) -> int | None:
        """Return the first row that asks the same; None if that is the row itself."""
        return self._later.pop(number, None)

    def wait(self, first: int, number: int) -> None:
        """Let a row wait for the end of the first that asks the same."""
        self._waiting.setdefault(first, []).append(number)

    def reopen(self, first: int) -> None:
        """Let the rows that ended like an unsolved one wait for it again."""
        if first in self._unsolved:
            self._waiting.setdefault(first, []).extend(self._unsolved.pop(first))

    def take(self, ending: InputEnding) -> list[int]:
        """Take the rows that end like this one now: each ending of the one ends every other once."""
        found = self._waiting.pop(ending.input, [])
        if found and ending.outcome != "completed":
            self._unsolved.setdefault(ending.input, []).extend(found)
        return found

    def digest(self, number: int) -> bytes | None:
        """Return the digest of the question of a row; None if it cannot be asked."""
        task = self._tasks[number]
        assert isinstance(task, RowTask)
        try:
            asked: Prompt = called(task.prompt, called(task.start), gives=Prompt)
            judged_by = {column: task.row.get(column) for column in task.gold}
            terms = msgspec.json.encode((asked, task.row if self._needs_row else judged_by), order="deterministic")
        except (MicroagentsError, TypeError, ValueError):  # the row fails by itself, in the words of its own error
            return None
        return digest_of(terms, DIGEST_BYTES)
