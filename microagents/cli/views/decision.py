"""One recorded decision as text for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from microagents.base.foreign_text import told_apart
from microagents.cli.reporting import json_text
from microagents.cli.views.agent import print_calls
from microagents.cli.views.parts import Sections
from microagents.replies.chat import Cached
from microagents.runs.accuracy import in_words
from microagents.runs.inspection.decision import InspectedDecision, RecordedReply
from microagents.runs.words.money import Price, prices_of
from microagents.runs.words.verdict import decided_text, local_time

CHECKED = {True: "right by the task's own oracle", False: "WRONG by the task's own oracle"}
NOT_KEPT, CUT = "(text not kept)", "\n(the rest of the text is not kept)"


def print_decision(shown: InspectedDecision) -> None:
    """Print a decision: its prompt, its replies, and the vote. Control characters from models and tasks are replaced."""
    parts, price = Sections(), prices_of(shown.models)
    if shown.user is None:
        parts.add(f"{shown.path}: prompt", "", shown.note or "")
    else:
        parts.add(f"{shown.path}: system prompt", shown.system or "")
        title = "user prompt"
        if shown.prompts > 1:
            title += f", the first of {shown.prompts} through which samples cycle"
        parts.add(title, shown.user)
    for reply in shown.replies:
        _print_reply(parts, reply, shown, price)
    ended = shown.outcome
    if shown.settled_by is not None:
        ended += f" (settled by {shown.settled_by})"
    if shown.correct is not None:
        ended += f", {CHECKED[shown.correct]}"
    lines = _votes(shown)
    if shown.probability is not None:
        lines = _likelihood(shown, lines)
    lines += _remarks(shown)
    is_predicted = any(reply.rollout is not None for reply in shown.replies)
    paid = f"samples, {price(shown.cost_usd)}"
    if is_predicted:
        paid = "predictions, paid as rollouts"
    paid += _cached_text(shown.cached)
    parts.add(f"{ended}; {len(shown.replies)} {paid}", "", "\n".join(lines))
    if shown.action is not None:
        print_calls(parts, shown.action.calls)


def _print_reply(parts: Sections, reply: RecordedReply, shown: InspectedDecision, price: Price) -> None:
    cost, text, vote = "", NOT_KEPT, "vote"
    if reply.text is not None:
        text = reply.text
    if reply.cost_usd is not None:
        cost = f", {price(reply.cost_usd)}"
    cost += _cached_text(reply.cached)
    if reply.model is not None:
        cost += f", by {reply.model}"
    if reply.text_is_cut:
        text += CUT
    if reply.rollout is not None:
        text = f"predicted by the rollout at {reply.rollout}"
    if reply.shares:
        options = [f"{share:.4f}  {option}" for option, share in reply.shares.items()]
        text, vote = "\n".join(options), "likeliest"
    said = ""
    if not reply.flag:
        said = f"=> {vote} {json_text(shown.behind(reply.vote))}"
    parts.add(f"reply {reply.seq}: {_read(reply, shown)}{cost}", text, said)


def _cached_text(cached: Cached | None) -> str:
    """Write the tokens in a cache, to stand after a cost; empty for none."""
    if cached is None:
        return ""
    return f", {cached.read:,} tokens read from the cache, {cached.written:,} written"


def _remarks(shown: InspectedDecision) -> Iterator[str]:
    """Write the facts about a decision beside its votes."""
    if shown.right is not None:
        yield f"right is {json_text(shown.right)}"
    if shown.replies and shown.value is not None and shown.value not in [value for value, _ in shown.tally]:
        yield f"decided for {json_text(shown.behind(shown.value))}"
    if shown.person is not None:
        yield f"{decided_text(shown.person)}: {shown.person.value}"
    times = [("decided", shown.decided_at), ("a person decided it", shown.settled_at)]
    told = [f"{name} at {local_time(at)}" for name, at in times if at is not None]
    yield "; ".join([f"asked of {', '.join(shown.models)}", *told])
    if shown.outcome == "climbed":
        yield _left_to(shown)
    if any(reply.text is None and reply.rollout is None and not reply.shares for reply in shown.replies):
        yield "of replies that agree the journal keeps what was read from them; with --keep-texts all it keeps every text"


def _votes(shown: InspectedDecision) -> list[str]:
    if shown.cells:
        wrong = [f"wrong: {in_words(shown.wrong)} (right -> given)"]
        return cell_lines(shown.cells, shown.open_fields) + wrong * bool(shown.wrong)
    if not shown.tally and not shown.replies:
        return [json_text(shown.value)]
    return tally_lines([(shown.behind(value), votes) for value, votes in shown.tally])


def tally_lines(tally: Sequence[tuple[Any, int]]) -> list[str]:
    """Write the votes for each reply, such that replies that look alike are told apart."""
    named = told_apart([json_text(value) for value, _ in tally])
    return [f"{votes} x {value}" for value, (_, votes) in zip(named, tally, strict=True)] or ["no valid reply"]


def cell_lines(cells: Mapping[str, list[tuple[Any, int]]], open_fields: Sequence[str] = ()) -> list[str]:
    """Write the votes on each field of a row, the open ones first."""
    lines = []
    for name in sorted(cells, key=lambda each: each not in open_fields):
        votes = [f"{number} x {json_text(value)}" for value, number in cells[name]]
        lines.append(f"{'open: ' * (name in open_fields)}{name}: {', '.join(votes)}")
    return lines


def _likelihood(shown: InspectedDecision, votes: list[str]) -> list[str]:
    """Say where the probability of a decision comes from: orders in which options were weighed, or masses beside votes."""
    if any(reply.shares for reply in shown.replies):
        return [
            f"probability {shown.probability:.4f}, the mean of {len(shown.replies)} orders of the options, and no votes"
        ]
    return [
        *votes,
        f"certain: the model replies so with probability {shown.probability:.4f} at least, more often than otherwise",
    ]


def _read(reply: RecordedReply, shown: InspectedDecision) -> str:
    if reply.flag is not None:
        return flag_text(reply.flag, reply.why)
    if reply.agrees is False and shown.cells and isinstance(shown.value, dict):
        differing = [name for name, value in reply.vote.items() if value != shown.value.get(name)]
        return f"differs in {', '.join(differing)}"
    is_by_vote = shown.outcome != "climbed" and shown.settled_by is None
    return {None: "valid", True: "agrees", False: ("differs", "OUTVOTED")[is_by_vote]}[reply.agrees]


def flag_text(flag: str, why: str | None) -> str:
    """Write a red flag with the parser's reason."""
    return ": ".join(filter(None, [f"RED FLAG {flag}", why]))


def _left_to(shown: InspectedDecision) -> str:
    leads = ""
    if shown.value is not None:
        leads = f"; {json_text(shown.value)} leads"
    if shown.decided_by is None:
        return f"left to the next rung, and no rung decided{leads}"
    if shown.path.startswith(f"{shown.decided_by}/"):
        return f"its choice decides {shown.decided_by}"
    return f"left to the next rung{leads}; decided at {shown.decided_by}"
