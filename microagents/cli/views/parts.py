"""Titled parts of a long text on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from microagents.base.printing import printable, results

INDENT = 2


class _Console(Console):
    """A console that raises the error once it has no reader, as all other output does."""

    def on_broken_pipe(self) -> None:
        """Raise the error again."""
        raise BrokenPipeError


class Sections:
    """Prints parts below each other, each under a rule with its title."""

    def __init__(self) -> None:
        self._console = _Console(file=results(), highlight=False)

    def add(self, title: str, quoted: str, said: str = "") -> None:
        """Print a part: a text of a model or a task, indented so that it begins no line, and then the remark on it."""
        self._console.rule(Text(printable(title)), align="left", style="dim")
        if quoted:
            for line in Text(printable(quoted)).wrap(self._console, self._console.width - INDENT):
                self._console.print(Text(" " * INDENT + line.plain.rstrip()))
        if said:
            self._console.print(Text(printable(said)))
