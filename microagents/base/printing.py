"""Standard output of a command: its results alone. Prints of users' code and its processes go to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from typing import TextIO

_results: list[TextIO] = []
"""Stdout of the command that runs in this process."""


def results() -> TextIO:
    """Return the stream for the results of the command; outside of a command, stdout."""
    if _results:
        return _results[-1]
    return sys.stdout


@contextmanager
def users_print_to_stderr() -> Iterator[None]:
    """Let all but `results` print to stderr in the body."""
    _results.append(results())
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _results.pop()


def keep_stdout() -> None:
    """Move stdout to a descriptor that no process inherits, and put stderr in its place.

    A process that outlives the command then holds no pipe that somebody reads its results from.
    """
    before = sys.stdout
    if before is not None:
        before.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        kept = os.dup(1)
    except OSError:  # the shell closed it
        kept = os.dup(nowhere)
    try:
        os.dup2(2, 1)
    except OSError:
        os.dup2(nowhere, 1)
    os.close(nowhere)
    os.register_at_fork(after_in_child=partial(os.dup2, 2, kept))
    encoding, errors = getattr(before, "encoding", None), getattr(before, "errors", None)
    sys.stdout = os.fdopen(kept, "w", encoding=encoding, errors=errors, closefd=False)


def printable(text: str) -> str:
    """Replace the control characters of a text, because a terminal would act on them."""
    shown = [each if each.isprintable() or each == "\n" else "\N{REPLACEMENT CHARACTER}" for each in text]
    return "".join(shown)
