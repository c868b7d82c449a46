"""Audits: which rows of an output are drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from microagents import Call, Prompt, Reply, RowTask, run_sync
from microagents.replies.reply_forms import write
from microagents.runs.inspection.runs import decide
from microagents.studies.audits import drawn
from microagents.systems.chains.maker import Maker

OUTPUT, RUNS, TORN = Path("out.csv"), Path("runs"), 3


class Square(Reply, frozen=True):
    square: int


class Squares(RowTask[Square]):
    def prompt(self, row: dict[str, int]) -> Prompt:
        return Prompt(user=str(row["x"]))


async def torn(call: Call) -> str:
    x = int(call.prompt.user.split()[0])
    return write(Square(square=x**2 + (call.id.seq % 2 and x == TORN)))


@pytest.mark.parametrize("trust_columns", [True, False])
def test_a_row_that_a_person_decided_is_not_drawn(trust_columns: bool) -> None:  # noqa: FBT001
    def filled() -> str:
        tasks, strategy = Squares.rows([{"x": x} for x in range(6)]), Maker(k=2, max_draws=4)
        ran = run_sync(tasks, models=torn, strategy=strategy, run_id="r", output=OUTPUT, trust_columns=trust_columns)
        return ran.outcome

    assert filled() == "undecided"
    decide(RUNS, "r", f"{TORN}/step/0", '{"square": 9}')
    assert filled() == "completed"
    audit, rows = drawn(OUTPUT, 10, RUNS, of_cells=False)
    assert (audit.population, sorted(each["x"] for each in rows)) == (5, ["0", "1", "2", "4", "5"])
    without = drawn(OUTPUT, 10, Path("elsewhere"), of_cells=False)[0]
    assert without.population == (5 if trust_columns else 6), "the journal is not there"
