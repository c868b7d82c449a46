"""Labels: the samples that a person sees after a label."""

from __future__ import annotations

from pathlib import Path

import pytest

from microagents import Call, Prompt, Reply, RowTask, run_sync
from microagents.base.errors import InvalidUsage
from microagents.replies.reply_forms import write
from microagents.runs.inspection.row_queue import judge_next
from microagents.studies.labels import DrawnRows, LabelQueue
from microagents.systems.chains.maker import Maker

OUTPUT, RUNS, FILE = Path("out.csv"), Path("runs"), Path("out.labels.csv")


class Square(Reply, frozen=True):
    square: int


class Squares(RowTask[Square]):
    def prompt(self, row: dict[str, int]) -> Prompt:
        return Prompt(user=str(row["x"]))


async def right(call: Call) -> str:
    return write(Square(square=int(call.prompt.user.split()[0]) ** 2))


def queue(count: int = 6, first: int = 0) -> LabelQueue:
    rows = [Squares(row={"x": x, "right": ""}, gold={"right": "square"}) for x in range(first, first + 6)]
    return LabelQueue(DrawnRows(rows, "in.csv"), FILE, count, OUTPUT, RUNS)


def test_a_label_is_kept_once_and_then_the_samples_of_this_users_own_run_are_shown() -> None:
    run_sync(Squares.rows([{"x": x} for x in range(6)]), models=right, strategy=Maker(k=2), run_id="r", output=OUTPUT)
    row = queue().waiting()
    assert row is not None
    assert (row.number, row.of, list(row.asked)) == (0, 6, ["right"])
    with pytest.raises(InvalidUsage, match="the gold column 'right' has 'many', and the field square allows <integer>"):
        judge_next(queue(), 0, {"right": "many"})
    for empty in ({}, {"right": " "}):
        with pytest.raises(InvalidUsage, match="a label needs a value for right; nothing was kept"):
            judge_next(queue(), 0, empty)
    shown = judge_next(queue(), 0, {"right": "7"})
    assert shown is not None
    assert shown.cells == {"square": [(row.row["x"] ** 2, 2)]}
    with pytest.raises(InvalidUsage, match="row 1 of the queue was judged meanwhile; this answer was not kept"):
        judge_next(queue(), 0, {"right": "8"})
    later = queue()
    assert getattr(later.waiting(), "number", None) == 1
    assert later.said() == "1 of 6 rows labelled in out.labels.csv"
    (RUNS / "r.sqlite").rename(RUNS / "foreign.sqlite")
    assert judge_next(queue(), 1, {"right": "7"}) is None, "a run of somebody else"
    assert getattr(queue(3).waiting(), "of", None) == 6, "as many as the file has, after a test that asked for more"
    FILE.unlink()
    assert judge_next(queue(first=1), 0, {"right": "7"}) is None, "a run on other rows"
