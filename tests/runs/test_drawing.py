"""What `show` draws: the notes of a conductor, heard in a replay of its journal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec import Struct

from microagents import Conductor, InvalidUsage, Strategy, Work, run
from microagents.journal.sharded import reader_of
from microagents.runs.inspection.runs import solution_of
from microagents.systems.agents.act import Act
from microagents.systems.questions.recursive import Recursive
from microagents.tasks.multiplication import Multiplication
from microagents.work.notes import Note, Records
from tests.systems.agents.shop import Ticket

RUNS = Path("runs")


class Told(Multiplication):
    """A multiplication with a background that a test changes."""

    told: ClassVar[str] = ""

    def background(self) -> str:
        return self.told


class Tickets(Ticket):
    """Tickets with a goal that a test changes."""

    told: ClassVar[str] = ""

    def statement(self) -> str:
        return f"{super().statement()}{self.told}"


class Counted(Struct):
    """What a conductor of the user notes."""

    done: list[str]
    calls: int = 0

    def drawn(self, notes: Sequence[Note], records: Records) -> Counted:
        self.calls, _ = records.spent()
        assert notes == [self]
        return self


class CountingConductor(Conductor[Multiplication, "Counting"]):
    """Asks twice."""

    async def conduct(self, work: Work[Multiplication, Counting]) -> object:
        notes = Counted(done=[])
        if work.strategy.notes:
            work.note(notes)
        for at in ("first", "second"):
            prompt, reply = work.task.first_prompt(), work.task.reply_type()
            assert prompt is not None
            assert reply is not None
            await work.sample(at, prompt, reply, needed=True)
            notes.done.append(at)
        return notes.done


class Counting(Strategy):
    """A strategy of the user."""

    solves = (Multiplication,)
    conductor = CountingConductor
    draws_solution = True
    notes: bool = True


def drawn() -> Any:
    with reader_of(RUNS, "r") as reader:
        return solution_of(reader, 0)


async def test_a_conductor_that_notes_nothing_is_named() -> None:
    await run(Multiplication(), models="sim:perfect", strategy=Counting(notes=False), run_id="r")
    with pytest.raises(
        InvalidUsage, match=r"cannot be drawn from its journal \(its conductor, CountingConductor, notes n"
    ):
        drawn()


@pytest.mark.parametrize(
    ("task", "strategy", "at"), [(Told, Recursive(k=1), "0/solve/decompose"), (Tickets, Act(), "0/step/0")]
)
async def test_work_whose_questions_have_changed_since_is_not_drawn(
    task: type[Any], strategy: Strategy, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(task(), models="sim:perfect", strategy=strategy, run_id="r")
    assert drawn() is not None
    monkeypatch.setattr(task, "told", "Another one.")
    with pytest.raises(
        InvalidUsage, match=f"asks another question than the recorded one at {at}; its code, its options"
    ):
        drawn()
