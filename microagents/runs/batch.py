"""Many inputs in one run: each is conducted to an end of its own, a bounded number of them side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import structs

from microagents.aio import TaskScope
from microagents.conductor import Conduct
from microagents.elections.election import input_of
from microagents.errors import JournalMismatch, MicroagentsError, ModelUnavailable, NoHandler, PeerLost, Stopped, TakenOver, Undecided
from microagents.journal.messages import Account, InputEnding, RecallCompletedInputs, RecallFailedInputs, Report, RunOutcome
from microagents.journal.reading import Reader
from microagents.runtimes.dispatcher import RoleMessenger

AT_A_TIME = 1024
"""Number of inputs that are open at a time, where no bound of calls is given."""
REFUSES_ALL = (401, 402, 403, 404)
"""HTTP statuses with which a provider refuses the key or the model, and so every call."""


class Batch:
    """The inputs of a run.

    Args:
        journal: the file that records their endings; None for a run without one, whose endings are kept here.
        total: number of inputs.
        only: numbers of the inputs to conduct, completed ones included; None for all that are not completed.
        concurrency: number of inputs that are open at a time; None for `AT_A_TIME`.
        passes_undecided: whether the work on an input goes past elections that end undecided.
    """

    def __init__(
        self, journal: Path | None, total: int, *, only: Sequence[int] | None, concurrency: int | None, passes_undecided: bool
    ) -> None:
        self._journal = journal
        self._total = total
        self._only = only
        self._at_a_time = concurrency or AT_A_TIME
        self._passes_undecided = passes_undecided
        self._kept: dict[int, InputEnding] = {}

    async def conduct(self, messenger: RoleMessenger) -> None:
        """Conduct inputs, each to its end. The failure of one ends no other.

        Raises:
            MicroagentsError: a failure that ends the run, such as a refused key.
        """
        done = await messenger.ask(RecallCompletedInputs())
        completed = frozenset(done)
        todo = [number for number in range(self._total) if number not in completed] if self._only is None else sorted({*self._only})
        waiting = iter(todo)
        scope = TaskScope()
        try:
            await asyncio.gather(*[scope.start(self._conduct_next(messenger, waiting)) for _ in todo[: self._at_a_time]])
        finally:
            await scope.close()

    async def _conduct_next(self, messenger: RoleMessenger, waiting: Iterator[int]) -> None:
        for number in waiting:  # the iterator is shared by all tasks
            self._note(messenger, await _conducted(messenger, number))

    def _note(self, messenger: RoleMessenger, ended: InputEnding) -> None:
        messenger.tell(ended)
        if self._journal is None or self._passes_undecided:
            self._kept[ended.input] = ended

    async def mark_undecided(self, messenger: RoleMessenger, account: Account) -> Account:
        """Mark completed inputs with an undecided election as undecided; returns the account with them."""
        undecided: dict[int, list[str]] = {}
        for path in account.undecided_at:
            undecided.setdefault(input_of(path), []).append(path)
        for number, paths in undecided.items():
            ended = self._kept.get(number)
            if ended is not None and ended.outcome == "completed":
                self._note(messenger, structs.replace(ended, outcome="undecided", reason=undecided_elections(paths)))
        return await messenger.ask(Report(final=True)) if undecided else account

    def endings(self) -> Iterator[InputEnding]:
        """The endings of inputs so far, in their order. Call it once the journal is closed."""
        if self._journal is None:
            yield from (self._kept[number] for number in sorted(self._kept))
            return
        with Reader(self._journal) as reader:
            yield from reader.input_endings()

    async def outcome(self, messenger: RoleMessenger, account: Account) -> tuple[RunOutcome, str | None]:
        """The outcome of the run once its inputs are conducted, and the reason in one sentence."""
        # Not from the file: closing a second connection in the writing process would release SQLite's locks on it.
        endings = await messenger.ask(RecallFailedInputs()) if self._journal is not None else list(self.endings())
        bad = [ended for ended in endings if ended.outcome != "completed"]
        undecided = sum(ended.outcome == "undecided" for ended in bad)
        failed, left = len(bad) - undecided, self._total - account.inputs_done - len(bad)
        if not bad and not left:
            return "completed", None
        counts = [(undecided, "undecided"), (failed, "failed"), (left, "not done yet")]
        said = f"of {self._total:,} inputs {', '.join(f'{count:,} {what}' for count, what in counts if count)}, the others are completed"
        first = f"; input {bad[0].input}: {bad[0].reason}" if bad else ""
        return "undecided" if undecided else "failed" if bad else "stopped", f"{said}{first}; resume does those that are not completed"


async def _conducted(messenger: RoleMessenger, number: int) -> InputEnding:
    try:
        conducted = await messenger.ask(Conduct(input=number))
    except (Stopped, TakenOver, JournalMismatch, NoHandler, PeerLost):
        raise
    except Undecided as error:
        return InputEnding(input=number, outcome="undecided", reason=str(error))
    except MicroagentsError as error:
        if isinstance(error, ModelUnavailable) and error.status in REFUSES_ALL:
            raise
        return InputEnding(input=number, outcome="failed", reason=str(error))
    return InputEnding(input=number, outcome="completed", result=conducted.value)


def undecided_elections(paths: Sequence[str]) -> str:
    """A sentence about elections that the work went past."""
    return f"{len(paths)} elections are undecided, the first at {paths[0]}"
