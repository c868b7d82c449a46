"""Ctrl-C during the first moments of the command, while its modules are imported: it ends the process without a traceback."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

EXIT_CODE = 130


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


def _leave(*_: object) -> None:
    os._exit(EXIT_CODE)


if is_command():
    leave_quietly()
