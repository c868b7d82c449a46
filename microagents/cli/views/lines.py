"""Lines of a terminal: their width, and texts of models and users on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.cells import cell_len, set_cell_size

from microagents.base.printing import printable, results


def joined(lines: Iterable[str]) -> str:
    """Join the lines to one text. Characters that stdout cannot encode are replaced."""
    encoding = getattr(results(), "encoding", None) or "utf-8"
    return "\n".join(lines).encode(encoding, "replace").decode(encoding)


def one_line(text: str) -> str:
    """Put a text on one line, without control characters."""
    return printable(" ".join(text.split()))


def wrapped_cells(cells: Iterable[str], columns: int, *, gap: str, indent: str) -> Iterator[str]:
    """Wrap cells side by side. A cell that does not fit begins another line, behind an indent."""
    line = ""
    for cell in cells:
        if line.strip() and cell_len(line) + len(gap) + cell_len(cell) > columns:
            yield line
            line = indent
        line += (gap if line.strip() else "") + cell
    if line:
        yield line


def shorten(text: str, columns: int) -> str:
    """Cut a text to the beginning that fits into this number of columns."""
    text = text[: columns + 1]
    if cell_len(text) <= columns:
        return text
    return set_cell_size(text, max(0, columns - 3)).rstrip() + "..."
