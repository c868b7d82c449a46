"""The progress of a run in a notebook: a line under the cell, by IPython's own display if the notebook has loaded it."""

from __future__ import annotations

import sys
from typing import Any

from microagents.journal.messages import Account
from microagents.runs.driver.keywords import OnProgress
from microagents.runs.words.money import Price
from microagents.runs.words.summary import progress_line


def notebook_progress(title: str, unit: str, price: Price) -> OnProgress | None:
    """Show a line of progress in a notebook; returns the callback that updates it, or None outside a notebook."""
    ipython: Any = sys.modules.get("IPython")  # whoever runs a notebook has imported it
    shell = None if ipython is None else ipython.get_ipython()
    # IPython in a terminal has none, and cannot change a line that is printed.
    if getattr(shell, "kernel", None) is None:
        return None
    line = sys.modules["IPython.display"].display({"text/plain": f"{title}: starting"}, raw=True, display_id=True)

    def show(account: Account) -> None:
        line.update({"text/plain": progress_line(title, account, unit, price)}, raw=True)

    return show
