"""Signals that end a process: Ctrl-C while the modules of the command are imported, and the ones of a forked child."""

from __future__ import annotations

import os
import signal
import sys
import threading
from functools import partial
from pathlib import Path

EXIT_CODE = 130
ENDINGS = (signal.SIGTERM, signal.SIGHUP)


def is_command() -> bool:
    """Whether this process is the command ``microagents`` or ``python -m microagents``, and not a program that imports the package."""
    program = (sys.argv or [""])[0]  # "-m" while Python imports the package of the module to run
    return program == "-m" or Path(program).name == "microagents"


def leave_quietly() -> None:
    """Let Ctrl-C end the process at once, until `raise_again`. A handler of the caller's own stays."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def raise_again() -> None:
    """Let Ctrl-C raise `KeyboardInterrupt`, as Python does by default."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def end_children_by_signals() -> None:
    """Let SIGTERM and SIGHUP end a child that this process forks, from its first moment: a handler of the loop would tell its parent."""
    os.register_at_fork(
        before=partial(signal.pthread_sigmask, signal.SIG_BLOCK, ENDINGS),
        after_in_parent=partial(signal.pthread_sigmask, signal.SIG_UNBLOCK, ENDINGS),
        after_in_child=_handle_by_default,
    )


def _handle_by_default() -> None:
    for number in ENDINGS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)


def _leave(*_: object) -> None:
    os._exit(EXIT_CODE)


if is_command():
    leave_quietly()
