"""Sentences on the fields in which the replies of an undecided election differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter

from microagents.base.foreign_text import told_apart
from microagents.replies.reply import CheckedReply, ProseByTool, Reply
from microagents.replies.reply_fields import voted_fields
from microagents.replies.reply_forms import encode_reply

MAX_SHOWN, MAX_SHOWN_CHARS = 4, 60
"""Number of fields, and of values of each, that a message lists, and the length of a value in it."""


def wordings(tally: Sequence[tuple[Reply, int]], prose: ProseByTool) -> str:
    """Say in which text most votes of an undecided election differ from each other, and in nothing else but declared prose.

    Empty if there is none.
    """
    leader, most = max(tally, key=itemgetter(1), default=(None, 0))
    if not isinstance(leader, CheckedReply):
        return ""
    voted, others = leader.without_prose(prose), Counter[str]()
    for reply, votes in tally:
        if reply is not leader and isinstance(reply, CheckedReply):
            others[voted.text_that_differs(reply.without_prose(prose))] += votes
    total, named = most + others.total(), [(text, most + votes) for text, votes in others.most_common() if text]
    if not named or 2 * named[0][1] <= total:
        return ""
    text, alike = named[0]
    return (
        f"{alike} of {total} votes differ only in the text {text}; if it is prose, whose wording does not matter, "
        f"declare it (`{text.partition(' ')[0]}: Prose`, or McpServer(prose=...)), and it casts no vote; with -s votes=semantic a declared "
        "text votes by its meaning"
    )


def disagreement(replies: Sequence[Reply]) -> str:
    """Describe in which fields replies with different votes agree and differ; empty if they differ in all fields."""
    names = voted_fields(type(replies[0]))
    differing = []
    for name in names:
        texts = {str(getattr(reply, name)) for reply in replies}
        if len(texts) > 1:
            differing.append(name)
    agreed = [name for name in names if name not in differing]
    if not agreed or not differing:
        return ""
    return (
        f"no two replies agree, though all agree in {', '.join(agreed)}: they differ in {', '.join(differing)}; "
        "mark a field that need not agree as Annotated[..., Unvoted]"
    )


def open_votes(tally: Sequence[tuple[Reply, int]], fields: Sequence[tuple[str, ...]]) -> str:
    """Count the values of fields without a decision, most frequent first; of many fields or values the first few."""
    counted = []
    for names in fields[:MAX_SHOWN]:
        votes = Counter[str]()
        for reply, number in tally:
            shown = [encode_reply(getattr(reply, name)).decode()[:MAX_SHOWN_CHARS] for name in names]
            votes[", ".join(shown)] += number
        common = votes.most_common(MAX_SHOWN)
        texts = told_apart([text for text, _ in common])
        values = [f"{number} x {text}" for text, (_, number) in zip(texts, common, strict=True)]
        counted.append(f"{' and '.join(names)} ({', '.join(values)})")
    more = f" and {len(fields) - MAX_SHOWN} more" if len(fields) > MAX_SHOWN else ""
    return f"open: {', '.join(counted)}{more}"
