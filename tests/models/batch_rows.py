"""A table that a simulated provider fills in batches."""

from __future__ import annotations

import re
from pathlib import Path

from microagents import Prompt, Reply
from microagents.models.http import batch_client
from microagents.systems.chains.row_task import Row, RowTask

PRICES = "price_in=0.1,price_out=0.5"
WIRES = {
    "chat": ("openai:gpt-6-luna", "/v1", "file"),
    "responses": ("openai-responses:gpt-6-luna", "/v1", "file"),
    "windows": ("openai-responses:gpt-6-luna", "/v1", "window"),
    "messages": ("anthropic:claude-haiku-5-5", "", "file"),
}
"""Models of each wire, the path of its base behind the address of a server, and its kind of batches."""
line_of = batch_client.line_of


def spec_at(wire: str, url: str) -> str:
    """Return the spec of a wire's model at a server."""
    spec, path, _ = WIRES[wire]
    several = ",votes_per_request=1" if wire == "chat" else ""
    return f"{spec}@base_url={url}{path},{PRICES}{several}"


def note_keys(file: Path) -> None:
    """Let clients of this process note the key of each line in a file, from which a desk knows which sample to draw."""

    def noted(key: str, turn: int) -> bytes:
        line = line_of(key, turn)
        with file.open("a") as keys:
            keys.write(f"{line.hex()} {key}\n")
        return line

    batch_client.line_of = noted


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
