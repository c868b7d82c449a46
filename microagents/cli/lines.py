"""Texts of models and users as single lines of a terminal."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size

from microagents.cli.reporting import printable


def one_line(text: str) -> str:
    """A text on one line, without control characters."""
    return printable(" ".join(text.split()))


def shorten(text: str, columns: int) -> str:
    """The beginning of a text that fits into this number of columns."""
    text = text[: columns + 1]
    return text if cell_len(text) <= columns else set_cell_size(text, max(0, columns - 3)).rstrip() + "..."
