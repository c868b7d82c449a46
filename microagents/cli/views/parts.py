"""Titled parts of a long text on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from microagents.words.summary import printable


class Parts:
    """Prints parts below each other, each under a rule with its title."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)

    def add(self, title: str, body: str) -> None:
        """Print a part. Control characters from models and tasks are replaced."""
        self._console.rule(Text(printable(title)), align="left", style="dim")
        self._console.print(Text(printable(body)))
