"""The end of the command's process, though threads or processes that a tool has begun do not end."""

from __future__ import annotations

import _thread
import multiprocessing
import os
import sys
import threading
import time
from contextlib import suppress

_bounds_s: list[float] = []
"""Bounds that runs of this process have set, in seconds."""


def bound_end(within_s: float) -> None:
    """Let the command end at most so long after its work."""
    _bounds_s.append(within_s)


def end_bounded(code: object) -> None:
    """End the process of the command with its exit code at the least bound, if it lives so long.

    A program that imports the package does not call this: it ends as it likes.
    """
    if not _bounds_s:
        return
    sys.stdout.flush()
    if min(_bounds_s) > 0:
        _thread.start_new_thread(_end, (min(_bounds_s), code))
    else:
        _end(0.0, code)


def _end(after_s: float, code: object) -> None:
    time.sleep(after_s)
    if after_s > 0:
        others = [each.name for each in threading.enumerate() if each is not threading.main_thread()]
        threads = [f"thread {name}" for name in others if not name.startswith("Dummy-")]  # threads of tools themselves
        children = [f"process {each.pid}" for each in multiprocessing.active_children()]
        left = ", ".join((*threads, *children))
        with suppress(OSError):
            sys.stderr.write(f"microagents: the process ends though tools have begun work that has not ended: {left}\n")
            sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0)
