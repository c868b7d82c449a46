"""The world of the desk: a shop's customers, orders, payments, refunds and mails in an SQLite file, apart for each run and input."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any, Literal

from msgspec import Struct

RETURN_DAYS = 30
"""Days from delivery in which an order can be paid back."""
MAX_CENTS = 20_000
"""More than this the desk may not pay back."""
Status = Literal["refunded", "declined"]
GOODS = ("a lamp", "a kettle", "two chairs", "a bicycle bell", "a desk", "a rain coat", "a radio", "a tea set")
FAULTS = ("arrived broken", "has the wrong colour", "is too small", "does not work", "is not what the picture shows")
_TABLES = """
CREATE TABLE IF NOT EXISTS refund (run TEXT, order_id INTEGER, cents INTEGER);
CREATE TABLE IF NOT EXISTS status (run TEXT, order_id INTEGER, status TEXT, key TEXT, UNIQUE (run, key));
CREATE TABLE IF NOT EXISTS mail (run TEXT, customer INTEGER, template TEXT, key TEXT);
"""


class Order(Struct, frozen=True, kw_only=True):
    """An order of a shop."""

    order: int
    customer: int
    goods: str
    cents: int
    delivered_days_ago: int


class Case(Struct, frozen=True, kw_only=True):
    """A ticket, and the part of the shop that it is about. It follows from its number."""

    customer: int
    name: str
    orders: tuple[Order, ...]
    wanted: int
    """The number of the order that the ticket is about."""
    fault: str

    @property
    def order(self) -> Order:
        """Order that the ticket is about."""
        return next(each for each in self.orders if each.order == self.wanted)

    @property
    def is_due(self) -> bool:
        """Whether the policy pays it back."""
        return pays_back(self.order.cents, self.order.delivered_days_ago)


def pays_back(cents: int, delivered_days_ago: int) -> bool:
    """Return whether the policy pays an order back."""
    return delivered_days_ago <= RETURN_DAYS and cents <= MAX_CENTS


def case_of(ticket: int) -> Case:
    """Make the case of a ticket."""
    random = Random(ticket)  # noqa: S311 - a case of a number
    customer, first = random.randrange(100, 1_000), random.randrange(1_000, 9_000)
    orders = tuple(
        Order(
            order=first + number,
            customer=customer,
            goods=goods,
            cents=random.choice((1_990, 4_500, 8_990, 15_000, 19_900, 24_900)),
            delivered_days_ago=random.choice((2, 6, 11, 19, 27, 30, 31, 45)),
        )
        for number, goods in enumerate(random.sample(GOODS, 3))
    )
    name = random.choice(("Ada", "Bo", "Chen", "Dana", "Eli", "Fay", "Gus", "Hana"))
    return Case(
        customer=customer, name=name, orders=orders, wanted=random.choice(orders).order, fault=random.choice(FAULTS)
    )


class World:
    """Shop of one run and input."""

    def __init__(self, path: str, run: str, ticket: int) -> None:
        self._path = path
        self._run = run
        self.case = case_of(ticket)

    def order(self, number: int) -> Order:
        """Find an order.

        Raises:
            ValueError: there is none.
        """
        found = next((each for each in self.case.orders if each.order == number), None)
        if found is None:
            raise ValueError(f"unknown order {number}")
        return found

    def add(self, table: Literal["refund", "status", "mail"], *values: object) -> None:
        """Add a row to a table; to that of statuses once for a key."""
        places = ", ".join("?" * (1 + len(values)))
        with self._opened() as db:
            db.execute(f"INSERT OR IGNORE INTO {table} VALUES ({places})", (self._run, *values))  # noqa: S608 - ours

    def is_right(self) -> bool:
        """Return whether what was done is what the policy says, and nothing else."""
        case, order = self.case, self.case.order
        template = "refunded" if case.is_due else "declined"
        done: dict[str, list[Any]] = {
            "refund": [(order.order, order.cents)] if case.is_due else [],
            "status": [(order.order, template)],
            "mail": [(case.customer, template)],
        }
        columns = {"refund": "order_id, cents", "status": "order_id, status", "mail": "customer, template"}
        with self._opened() as db:
            for table, rows in done.items():
                found = db.execute(f"SELECT {columns[table]} FROM {table} WHERE run = ?", (self._run,))  # noqa: S608 - ours
                if found.fetchall() != rows:
                    return False
            return True

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        Path(self._path).parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self._path, timeout=30)) as db, db:
            db.executescript(_TABLES)
            yield db
