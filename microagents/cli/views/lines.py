"""Plain lines of a terminal: drawings by rich, and texts of models and users."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from io import StringIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from microagents.base.printing import printable, results
from microagents.runs.words.summary import columns_of_stdout


def drawn(shown: RenderableType, columns: int) -> str:
    """Lay out at this width. Characters that stdout cannot encode are replaced."""
    console = Console(file=StringIO(), width=columns, color_system=None)
    with console.capture() as captured:
        console.print(shown)
    encoding = getattr(results(), "encoding", None) or "utf-8"
    text = captured.get().rstrip("\n")
    lines = [line.rstrip() for line in text.split("\n")]
    return "\n".join(lines).encode(encoding, "replace").decode(encoding)


def draw(tree: Tree) -> str:
    """Draw a tree of texts at the width of the terminal."""
    return drawn(tree, columns_of_stdout())


def one_line(text: str) -> str:
    """Put a text on one line, without control characters."""
    return printable(" ".join(text.split()))


def branch(*lines: str, told: str = "", below: Iterable[Tree] = ()) -> Tree:
    """Make a branch of a tree.

    Args:
        lines: texts of models and tasks; each stays on one line, and is cut where the terminal ends.
        told: words of ours below them, which are wrapped.
        below: the branches below it.
    """
    texts = [Text(one_line(line), no_wrap=True, overflow="ellipsis") for line in lines]
    texts += [Text(printable(told))] * bool(told)
    made = Tree(Group(*texts), highlight=False)
    made.children += below
    return made


def shorten(text: str, columns: int) -> str:
    """Cut a text to the beginning that fits into this number of columns."""
    text = text[: columns + 1]
    if cell_len(text) <= columns:
        return text
    return set_cell_size(text, max(0, columns - 3)).rstrip() + "..."


def flags_text(flags: Mapping[str, int]) -> str:
    """Count red flags by name, to stand after votes."""
    counts = [f", {number} {flag}" for flag, number in sorted(flags.items())]
    return "".join(counts)
