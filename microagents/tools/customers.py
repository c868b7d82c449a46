"""The customer of an agent: the tool that asks one, whose answer the input waits for."""

from __future__ import annotations

from microagents.base.errors import NotMade
from microagents.replies.reply_fields import Prose
from microagents.tools.tool import tool


@tool("idempotent")
def ask(text: Prose) -> str:
    """Ask the customer, or tell the customer something, and wait for the answer."""
    raise NotMade(f"only the customer of a run can answer {text!r:.100}")
