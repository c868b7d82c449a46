"""Questions to the person at a terminal about files that somebody else may have written."""

from __future__ import annotations

import sys

import typer

from microagents.base.errors import InvalidUsage
from microagents.cli.reporting import warn


def has_terminal() -> bool:
    """Return whether a person can be asked."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def confirm_trust(what: str, flag: str, otherwise: str = "") -> None:
    """Ask whether something is trusted.

    Args:
        what: the thing to trust, and its powers.
        flag: the option that says yes.
        otherwise: the way without trust; empty if there is none.

    Raises:
        InvalidUsage: the answer is no, or no person is there to ask.
    """
    without = f"; {otherwise}" if otherwise else ""
    if not has_terminal():
        raise InvalidUsage(f"{what}; if you trust it, add {flag}{without}")
    warn(what)
    try:
        is_trusted = typer.confirm("Do you trust it?", err=True)
    except typer.Abort:  # Ctrl-C, or the end of the input
        is_trusted = False
    if not is_trusted:
        raise InvalidUsage(f"nothing was started, since you do not trust it{without}")
