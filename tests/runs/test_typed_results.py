"""Results, rows and decisions have the types that the task declares; files and ``--json`` have what JSON has."""

from __future__ import annotations

import asyncio
import csv
import json
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from msgspec import Struct
from pydantic import BaseModel, Field

from microagents import AgentTask, Call, ChainTask, Problem, Prompt, Reply, Result, RowTask, resume, run_sync
from microagents.runs.inspection.runs import inspect_run
from microagents.runs.row_files import write_rows
from microagents.runs.row_forms import Dialect
from tests.cli.commands import COMPLETED, microagents, write

EXACT = "1.000000000000000001"


class Kind(Enum):
    BILL = "bill"


class Line(Struct, frozen=True):
    price: Decimal


class Bill(Reply, frozen=True):
    """The parts of a bill."""

    total: Decimal
    due: date
    sent: datetime
    kind: Kind
    lines: tuple[Line, ...]
    number: UUID
    seal: bytes
    marks: frozenset[str] = frozenset()


NUMBER = "12345678-1234-5678-1234-567812345678"
WRITTEN = {
    "total": EXACT,
    "due": "2026-05-03",
    "sent": "2026-05-03T10:00:00Z",
    "kind": "bill",
    "lines": [{"price": "0.10"}],
    "number": NUMBER,
    "seal": "/w==",
    "marks": ["a", "b", "c"],
}
READ: dict[str, Any] = {
    "total": Decimal(EXACT),
    "due": date(2026, 5, 3),
    "sent": datetime(2026, 5, 3, 10, tzinfo=UTC),
    "kind": Kind.BILL,
    "lines": (Line(Decimal("0.10")),),
    "number": UUID(NUMBER),
    "seal": b"\xff",
    "marks": frozenset("abc"),
}


async def bills(call: Call) -> str:  # noqa: ARG001 - always the same
    return "\n".join(f"{name} = {json.dumps(value)}" for name, value in WRITTEN.items())


class Bills(RowTask[Bill]):
    discount: Decimal = Decimal("0.5")

    def prompt(self, row: dict[str, Any]) -> Prompt:
        return Prompt(user=row["text"])


def test_a_row_its_result_and_its_decision_have_the_declared_types() -> None:
    told: list[Any] = []
    result = run_sync(Bills.rows([{"text": "a"}]), models=bills, on_decision=told.append)
    (row,) = result.rows()
    decisions = [*told, *result.decisions()]
    assert [dict(result.value[0]), *(each.value for each in decisions)] == [READ] * 3
    assert {type(value) for value in READ.values()} == {type(result.value[0][name]) for name in READ}
    assert decisions[0].votes == ((READ, 3),)
    assert row == {"text": "a", "state": "decided", "why": None, **READ}


def test_the_files_of_rows_have_what_json_has(tmp_path: Path) -> None:
    result = run_sync(Bills.rows([{"text": "a"}]), models=bills, output=tmp_path / "out.jsonl")
    (row,) = map(json.loads, (tmp_path / "out.jsonl").read_text("utf-8").splitlines())
    assert {**row, "marks": sorted(row["marks"])} == {"text": "a", "state": "decided", "why": None, **WRITTEN}
    assert result.as_json()["result"][0]["due"] == "2026-05-03"
    write_rows(tmp_path / "out.csv", lambda: result.rows(as_json=True), Dialect())
    with (tmp_path / "out.csv").open("r", encoding="utf-8", newline="") as file:
        (cells,) = csv.DictReader(file)
    assert (cells["due"], cells["total"], cells["lines"]) == ("2026-05-03", EXACT, '[{"price":"0.10"}]')


class Total(BaseModel):
    amount: Decimal = Field(alias="theAmount")
    at: date
    seal: bytes = b"x"


@dataclass(frozen=True)
class Account:
    total: Total
    by_year: dict[int, Kind]


class Stage(Struct, frozen=True):
    at: date = date(2026, 1, 1)


class Once(ChainTask[Stage, Bill]):
    def start(self) -> Stage:
        return Stage()

    def done(self, state: Stage) -> bool:
        return state != Stage()

    def prompt(self, state: Stage) -> Prompt:
        return Prompt(user=str(state))

    def advance(self, state: Stage, reply: Bill) -> Stage:  # noqa: ARG002 - the reply is enough
        return Stage(at=reply.due)


END = Stage(date(2026, 5, 3))


def returning(value: Any, *annotation: Any) -> type[ChainTask[Any, Any, Any]]:
    """Make a chain whose ``result()`` returns a value, with the annotation if there is one."""

    def result(self: Any, state: Any) -> Any:  # noqa: ARG001 - a method of a chain
        return value

    del result.__annotations__["return"]
    result.__annotations__.update(zip(("return",), annotation, strict=False))
    return type("Made", (Once,), {"__module__": __name__, "result": result})


ACCOUNT = Account(Total(theAmount=Decimal("1.50"), at=date(2026, 5, 3)), {2026: Kind.BILL})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Once, END),
        (returning(ACCOUNT, Account), ACCOUNT),
        (returning([ACCOUNT.total], list[Total]), [ACCOUNT.total]),
        (returning(date(2026, 5, 3)), "2026-05-03"),
        (returning({"more": 1}, Stage), {"more": 1}),
    ],
)
def test_a_chain_gives_its_result_in_the_type_that_it_says(kind: Any, value: Any) -> None:
    result = run_sync(kind(), models=bills, run_id="r")
    again = run_sync(kind(), models=bills, run_id="r")
    assert result.value == again.value == value
    assert type(result.value) is type(again.value) is type(value)


class Billed(Problem[Bill]):
    def statement(self) -> str:
        return "Bill."


class Paid(Struct, frozen=True):
    amount: Decimal
    at: date


class Paying(AgentTask[Paid]):
    def statement(self) -> str:
        return "Pay."


async def ends(call: Call) -> str:  # noqa: ARG001 - always the same
    return f'calls = [{{"tool": "end", "arguments": {{"amount": {EXACT}, "at": "2026-05-03"}}}}]'


async def answers(call: Call) -> str:  # noqa: ARG001 - always the same
    return json.dumps(WRITTEN)


def test_an_agent_and_a_problem_give_the_fields_of_their_answers() -> None:
    paid = run_sync(Paying(), models=ends).value
    assert paid["result"] == {"amount": Decimal(EXACT), "at": date(2026, 5, 3)}
    answered = run_sync(Billed(), models=answers, strategy="self-consistency")
    assert answered.value["answer"] == READ
    assert [each.value for each in answered.decisions()][-1] == READ


DATED = """
    from datetime import date
    from decimal import Decimal

    from microagents import Prompt, Reply, RowTask

    print("imported")

    class Due(Reply, frozen=True):
        day: date

    class Dates(RowTask[Due]):
        discount: Decimal = Decimal("0.5")

        def prompt(self, row):
            return Prompt(user=row["text"])

        def expert(self, prompt, reply):
            return Due(day=date(2026, 5, 3))
"""


def test_without_the_tasks_code_a_result_is_what_json_has_and_nothing_is_imported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write("dated.py", DATED)
    Path("in.jsonl").write_text('{"text": "a"}\n')
    monkeypatch.syspath_prepend(str(Path.cwd()))
    ran = microagents("run", "dated.py", "--inputs", "in.jsonl", "--model", "sim:perfect", "--run-id", "r")
    assert ran.code == COMPLETED, ran.err
    monkeypatch.delitem(sys.modules, "dated", raising=False)
    capsys.readouterr()
    shown: Result[Any] = inspect_run(Path("runs"), "r")
    assert (shown.value[0], [row["day"] for row in shown.rows()]) == ({"day": "2026-05-03"}, ["2026-05-03"])
    assert [each.value for each in shown.decisions()] == [{"day": "2026-05-03"}]
    assert capsys.readouterr().out == ""
    assert "dated" not in sys.modules
    assert asyncio.run(resume("r")).value[0] == {"day": date(2026, 5, 3)}, "resume() imports the task"
    assert shown.value[0] == {"day": date(2026, 5, 3)}, "now it is at hand"
