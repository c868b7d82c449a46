"""Clean a table, a row a step: names, countries and dates come out in one form. The oracle knows, since the mess is made by code."""

import re
from datetime import date, timedelta
from functools import cached_property
from random import Random
from typing import Literal

from msgspec import Struct

from microagents import ChainTask, Prompt, Reply

NAMES = [(first, last) for first in ("Ada", "Emil", "Ines", "Tom") for last in ("Berg", "Costa", "Hall", "Wolff")]
COUNTRIES = {"DE": ("Germany", "germany ", "Deutschland"), "PT": ("Portugal", "PORTUGAL"), "GB": ("U.K.", "Britain")}
RULES = """You clean a table of customers. The name is written "First Last", the country by its code of two letters,
the date as YYYY-MM-DD. Dates with dots have the day first, dates with slashes the month."""


class Row(Reply, frozen=True):
    name: str
    country: Literal["DE", "PT", "GB"]
    joined: str


class Table(Struct, frozen=True):
    rows: tuple[Row, ...] = ()


class Cleaned(Struct, frozen=True):
    rows: tuple[Row, ...]
    solved: bool


class Cleaning(ChainTask[Table, Row, Cleaned]):
    """microagents run cleaning.py"""

    size: int = 40
    seed: int = 1

    @cached_property
    def table(self) -> list[tuple[str, Row]]:
        """Each row as it came in, and as it should be."""
        return [self.row(Random(f"{self.seed} {number}")) for number in range(self.size)]

    def row(self, rng: Random) -> tuple[str, Row]:
        (first, last), code = rng.choice(NAMES), rng.choice(list(COUNTRIES))
        day = date(2020, 1, 1) + timedelta(days=rng.randrange(2000))
        name = rng.choice([f"{first} {last}", f"{last}, {first}", f"{last.upper()}, {first.lower()}"])
        form = rng.choice(["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y"])
        came = f"{name} | {rng.choice(COUNTRIES[code])} | {day.strftime(form)}"
        return came, Row(name=f"{first} {last}", country=code, joined=day.isoformat())

    def start(self) -> Table:
        return Table()

    def steps(self) -> int:
        return self.size

    def done(self, state: Table) -> bool:
        return len(state.rows) == self.size

    def prompt(self, state: Table) -> Prompt:
        return Prompt(system=RULES, user=f"Row: {self.table[len(state.rows)][0]}")

    def advance(self, state: Table, reply: Row) -> Table:
        return Table(rows=(*state.rows, reply))

    def result(self, state: Table) -> Cleaned:
        return Cleaned(rows=state.rows, solved=list(state.rows) == [row for _, row in self.table])

    def oracle(self, state: Table) -> Row:
        return self.table[len(state.rows)][1]

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Row:  # for the simulated model: it reads the text
        name, country, day = (part.strip() for part in prompt.user.removeprefix("Row: ").split("|"))
        last, comma, first = name.partition(", ")
        code = next(code for code, forms in COUNTRIES.items() if country in {form.strip() for form in forms})
        parts = re.split(r"\D", day)
        year, month, day_ = parts if "-" in day else parts[::-1] if "." in day else (parts[2], *parts[:2])
        return Row(name=f"{first} {last}".title() if comma else name, country=code, joined=f"{year}-{month}-{day_}")
