"""One question in full on the terminal: its prompt, replies, flags, votes and price."""

from __future__ import annotations

from microagents.cli.reporting import json_text
from microagents.cli.views.decision import CHECKED, flag_text, tally_lines
from microagents.cli.views.parts import Sections
from microagents.elections.election import OPEN_OUTCOMES
from microagents.runs.words.money import prices_of
from microagents.runs.words.verdict import counted
from microagents.studies.preview import ShownReply, ShownStep


def print_question(shown: ShownStep) -> None:
    """Print a question, its replies and its vote."""
    parts, price = Sections(), prices_of(reply.model for reply in shown.replies)
    parts.add(f"{shown.path}: system prompt", shown.system)
    parts.add("user prompt", shown.user)
    for reply in shown.replies:
        if reply.temperature is None:
            temperature = "provider's temperature"
        else:
            temperature = f"temperature {reply.temperature:g}"
        if reply.output_tokens is None:
            tokens = "tokens unknown"
        else:
            tokens = f"{reply.output_tokens} tokens"
        parts.add(
            f"reply {reply.seq}: {reply.model}, {temperature}, {tokens}, {reply.finish}, {price(reply.cost_usd)}",
            reply.text,
            f"=> {_read(reply)}",
        )
    ending, votes = _ending(shown)
    parts.add(f"{ending}; {counted(shown.calls, 'call')}, {price(shown.cost_usd)}", "", votes)


def _ending(shown: ShownStep) -> tuple[str, str]:
    """Return the title of the vote, and its count."""
    if shown.reason is not None:
        return "stopped", shown.reason
    lines = tally_lines(shown.tally)
    checked = None
    if shown.leader_correct is not None:
        checked = CHECKED[shown.leader_correct]
    ending = f"{shown.outcome}: not decided by the vote"
    if shown.outcome not in (*OPEN_OUTCOMES, "argmax"):
        ending = ", ".join(filter(None, [shown.outcome, checked]))
        return ending, "\n".join(lines)
    if shown.climbs_to is not None:
        lines.append(f"a run would climb to {shown.climbs_to}")
    if checked is not None:
        lines.append(f"the leader is {checked}")
    return ending, "\n".join(lines)


def _read(reply: ShownReply) -> str:
    if not reply.counted:
        return "drawn, but not counted: the vote was over"
    if reply.flag:
        return flag_text(reply.flag, reply.why)
    return f"vote {json_text(reply.vote)}"
