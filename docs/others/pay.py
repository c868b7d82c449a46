"""The effect of all sides: it pays, and the first time it dies before anybody hears of it."""

import os
import signal
from pathlib import Path

LEDGER = Path("ledger.txt")


def pay() -> None:
    """Write a line to the ledger."""
    is_first = not LEDGER.exists()
    with LEDGER.open("a") as ledger:
        ledger.write("4900 cents\n")
    if is_first:
        os.kill(os.getpid(), signal.SIGKILL)
