"""A table that a simulated provider fills in batches."""

from __future__ import annotations

import re

from microagents import Prompt, Reply
from microagents.systems.chains.row_task import Row, RowTask


class Product(Reply, frozen=True):
    """The product."""

    product: int


class Multiplied(RowTask[Product]):
    """Two numbers of a row, multiplied."""

    def prompt(self, row: Row, /) -> Prompt:
        """Ask for the product."""
        return Prompt(user=f"What is {row['a']} times {row['b']}?")

    def oracle(self, row: Row, /) -> Product:
        """Multiply."""
        return Product(product=int(row["a"]) * int(row["b"]))

    def expert(self, prompt: Prompt, _: type[Reply], /) -> Product:
        """Multiply the numbers in the question."""
        first, second = re.findall(r"\d+", prompt.user)[:2]
        return Product(product=int(first) * int(second))


def table(rows: int) -> list[Multiplied]:
    """Return tasks for this number of different rows."""
    return [Multiplied(row={"a": number, "b": number + 1}) for number in range(rows)]
