"""The recorded state of a document: a `Writing` that is sent the replies of a journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from microagents.documents.document import Document
from microagents.documents.questions import REPLIES
from microagents.documents.records import SubtaskRecord
from microagents.documents.writing import Answer, Ask, Missing, NothingWritten, NotRecorded, Turn, Writing
from microagents.elections.election import Ballot, total_usd
from microagents.journal.messages import OpenElection, Recalled
from microagents.replies.chat import Reply, decoder_of
from microagents.user_code import called, mistyped
from microagents.work.absence import ABSENT


class DocumentRecord(Struct, frozen=True, kw_only=True):
    """A document as far as a journal records it."""

    agents: tuple[str, ...]
    """Names of the agents."""
    subtasks: tuple[SubtaskRecord, ...]
    """All subtasks: those that are not split in the order of the text, each behind the ones that were split to get it."""
    text: str
    """The text of finished subtasks, and the longest verified text of the one in work."""
    calls: int
    """Number of recorded samples."""
    cost_usd: float | None


def replay(
    of_input: int, writing: Writing, rows: Mapping[str, Recalled], open_elections: Sequence[OpenElection], agents: tuple[str, ...]
) -> DocumentRecord:
    """Send the recorded replies to a writing until one is missing.

    Args:
        of_input: number of the input.
        writing: the writing from its start.
        rows: decisions and answers by path.
        open_elections: elections without a verdict, with their paid samples.
        agents: names of the agents.
    """
    ended = [True]
    while any(ended):
        ended = [_follow(of_input, writing, record, rows) for record in writing.ready()]
    paid = [each for each in rows.values() if each.ballots]
    samples = [ballot for each in open_elections for ballot in each.ballots]
    return DocumentRecord(
        agents=agents,
        subtasks=tuple(_listed(writing)),
        text=writing.text(),
        calls=sum(len(each.ballots) for each in paid) + len(samples),
        cost_usd=total_usd([*(each.cost_usd for each in paid), *(each.cost_usd for each in samples)]),
    )


def checked_results(document: Document, text: str) -> dict[str, bool | None]:
    """Check the hard requirements on a text by the document's own code.

    Raises:
        TaskFailed: ``checks()`` raised, or gave something else than results by name.
    """
    results = called(document.checks, text)
    try:
        return msgspec.convert(results, dict[str, bool | None])
    except msgspec.ValidationError as error:
        raise mistyped(document.checks, results, f"True, False or None by name ({error})") from None


def _follow(of_input: int, writing: Writing, record: SubtaskRecord, rows: Mapping[str, Recalled]) -> bool:
    """Follow the writing of one subtask; returns whether it has ended, so that others may begin."""
    turns = writing.begin(record)
    try:
        turn = next(turns)
        while True:
            turn = turns.send([_recorded(of_input, turn, ask, rows) for ask in turn.asks])
    except StopIteration as ended:
        writing.end(record, ended.value)
        return True
    except (NotRecorded, NothingWritten):
        return False


def _recorded(of_input: int, turn: Turn, ask: Ask, rows: Mapping[str, Recalled]) -> Answer:
    absent = rows.get(f"{of_input}/{turn.at}/{ABSENT}")
    if absent is not None and absent.value is not None and ask.agent in msgspec.json.decode(absent.value):
        return Missing.ABSENT
    row = rows.get(f"{of_input}/{ask.at}")
    if row is None:
        return Missing.OPEN
    valid = [ballot.value for ballot in row.ballots if isinstance(ballot, Ballot)]
    kind: type[Reply] = REPLIES[type(ask.asked)]
    return decoder_of(kind).decode(valid[0]) if valid else Missing.FLAGGED


def _listed(writing: Writing) -> list[SubtaskRecord]:
    """List all subtasks: split ones before their parts."""
    listed: dict[str, SubtaskRecord] = {}
    for record in writing.in_order:
        for each in writing.records.values():
            if record.at.startswith(f"{each.at}/"):
                listed.setdefault(each.at, each)
        listed[record.at] = record
    return list(listed.values())
