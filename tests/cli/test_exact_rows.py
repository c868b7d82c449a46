"""Numbers of rows go from text to the declared type without a float between."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pytest

from microagents.cli.inputs import given_by
from tests.cli.commands import COMPLETED, microagents, write

EXACT, LARGE = "1.000000000000000001", 2**70 + 1
PRICES = """
    from dataclasses import dataclass
    from decimal import Decimal

    from pydantic import BaseModel
    from microagents import ChainTask, Prompt, Reply, RowTask


    class Seen(Reply, frozen=True):
        text: str


    class Part(BaseModel):
        price: Decimal


    @dataclass
    class Share:
        part: Decimal
        weight: float


    class Prices(ChainTask[str, Seen]):
        amount: Decimal
        amounts: list[Decimal | None] = []
        parts: dict[str, Part] = {}
        share: Share | None = None
        weight: float = 0.0
        count: int = 0

        def start(self):
            return ""

        def done(self, state):
            return bool(state)

        def prompt(self, state):
            return Prompt(user=str(self.amount))

        def advance(self, state, reply):
            return reply.text

        def expert(self, prompt, reply):
            return Seen(text=prompt.user.partition("\\n")[0])


    class Rowed(RowTask[Seen]):
        def prompt(self, row):
            return Prompt(user=str(row["amount"]))

        def expert(self, prompt, reply):
            return Seen(text=prompt.user.partition("\\n")[0])
"""
LINE = (
    f'{{"amount": {EXACT}, "amounts": [{EXACT}, 0.1, null], "parts": {{"a": {{"price": {EXACT}}}}}, '
    f'"share": {{"part": {EXACT}, "weight": {EXACT}}}, "weight": {EXACT}, "count": {LARGE}}}'
)


def array(name: str) -> None:
    Path(name).write_text(f"[{LINE}]", "utf-8")


def packed(name: str) -> None:
    Path(name).write_bytes(gzip.compress(f"{LINE}\n".encode()))


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("make", "name"), [(array, "in.json"), (packed, "in.jsonl.gz")], ids=lambda each: str(each)[:9]
)
def test_a_number_is_read_as_its_field_says_and_stays_so_in_a_resume(make: Callable[[str], None], name: str) -> None:
    write("prices.py", PRICES)
    make(name)
    task: object = given_by("prices.py:Prices", [], name).first
    prices = SimpleNamespace(**dict(task))  # type: ignore[call-overload]
    exact = Decimal(EXACT)
    assert (prices.amount, prices.amounts) == (exact, [exact, Decimal("0.1"), None])
    assert (prices.parts["a"].price, prices.share.part) == (exact, exact)
    assert [(type(each), each) for each in (prices.weight, prices.share.weight)] == [(float, 1.0)] * 2
    assert prices.count == LARGE
    words = ("run", "prices.py:Prices", "--inputs", name, "--model", "sim:perfect", "--run-id", "r")
    assert (ran := microagents(*words, "--max-calls", "1")).code != COMPLETED, ran.err
    assert (again := microagents(*words, "--max-calls", "9")).code == COMPLETED, again.err
    assert again.out.strip() == f'"{EXACT}"'


def test_a_row_without_a_declared_type_loses_no_digit() -> None:
    write("prices.py", PRICES)
    Path("in.jsonl").write_text(f'{{"amount": {EXACT}, "id": {LARGE}, "x": 0.1}}\n', "utf-8")
    words = ("--model", "sim:perfect", "--run-id", "r")
    ran = microagents("run", "prices.py:Rowed", "--inputs", "in.jsonl", "-o", "out.jsonl", *words)
    assert ran.code == COMPLETED, ran.err
    written = Path("out.jsonl").read_text("utf-8")
    assert written.startswith(
        f'{{"amount":"{EXACT}","id":{LARGE},"x":0.1,"state":"decided","why":null,"text":"{EXACT}"}}'
    )
