"""A document that is written subtask by subtask, as text for the terminal: its subtasks with their states, and why parts were discarded."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.cells import cell_len

from microagents.cli.views.lines import joined, one_line, shorten
from microagents.runs.words.summary import columns_of_stdout, number_of
from microagents.systems.documents.notes import DocumentRecord
from microagents.systems.documents.records import SegmentOutcome, SegmentRecord, SubtaskRecord, ValidationRecord

MAX_OBJECTIONS = 12
"""Maximum number of objections that are shown of one subtask."""
MIN_OBJECTIVE = 20
"""Minimum width of an objective."""
INDENT = " " * 9
"""Before the details of a subtask: its state is as wide."""
OUTCOMES: Mapping[SegmentOutcome, str] = {
    "open": "in work",
    "passed": "passed",
    "failed": "discarded",
    "forced": "taken, NOT AGREED",
    "flagged": "wrote no valid segment",
    "absent": "absent",
}


def draw_document(document: DocumentRecord) -> str:
    """Draw the subtasks in the order of the text, with the events in each.

    Control characters from models and tasks are replaced.
    """
    columns = columns_of_stdout()
    lines: list[str] = []
    heads = _heads(document.subtasks)
    for record in document.subtasks:
        lines.append(_line(heads[record.at], record.objective, columns))
        lines += [INDENT + detail for detail in _details(document, record, columns - len(INDENT))]
    return joined(lines)


def short_names(agents: Sequence[str]) -> list[str]:
    """Leave provider and options out of the names of agents, unless names would be equal."""
    short = [f"{name.partition(' (')[0].partition(':')[2].partition('@')[0] or name}{_copy(name)}" for name in agents]
    is_clear = len(set(short)) == len(agents) and not any(
        ", " in name for name in agents
    )  # an agent that draws from a pool has its specs
    return [one_line(name) for name in (short if is_clear else agents)]


def _copy(name: str) -> str:
    """Read the number behind the name of an agent that shares its model with others."""
    if name.endswith(")") and " (" in name:
        return f" ({name.rpartition(' (')[2]}"
    return ""


def _heads(subtasks: Sequence[SubtaskRecord]) -> dict[str, str]:
    """Write the state and number of each subtask, all of the same width."""
    width = max((len(number_of(each.at)) for each in subtasks), default=0)
    return {each.at: f"{each.state:<7}  {number_of(each.at):<{width}}  " for each in subtasks}


def _line(head: str, text: str, columns: int) -> str:
    return head + shorten(one_line(text), max(MIN_OBJECTIVE, columns - len(head)))


def _details(document: DocumentRecord, record: SubtaskRecord, columns: int) -> Iterator[str]:
    names = short_names(document.agents)
    yield from _wrapped(_facts(document, record, names), columns)
    yield from _objections(record, names, columns)
    for fault, times in Counter(record.refused_splits).items():
        yield shorten(f"split refused{f' {times} times' if times > 1 else ''}: {one_line(fault)}", columns)
    if record.rankings:
        best: dict[int | None, list[str]] = {}
        for each in record.rankings:
            best.setdefault(each.best, []).append("the neutral ranker" if each.agent is None else names[each.agent])
        ranked = [f"{'no valid ranking' if one is None else names[one]} by {', '.join(by)}" for one, by in best.items()]
        ranked[0] = f"ranked best: {ranked[0]}"
        yield from _wrapped(ranked, columns)


def _facts(document: DocumentRecord, record: SubtaskRecord, names: Sequence[str]) -> Iterator[str]:
    yield f"depth {record.depth}"
    if record.parents:
        yield f"after {', '.join(map(number_of, record.parents))}"
    if record.rounds:
        yield f"{len(record.rounds)} {'round' if len(record.rounds) == 1 else 'rounds'}"
        written = [draft for drafts in record.rounds for draft in drafts if draft.segment is not None]
        discarded = sum(draft.outcome == "failed" for draft in written)
        if discarded:
            yield f"{discarded} of {len(written)} segments discarded"
    if record.state == "writing":
        yield from _states_now(document, record)
    if record.author is not None:
        approvals = ", ".join(str(draft.approvals) for draft in _taken(record, record.author) if draft.validations)
        yield f"by {names[record.author]}" + (f", approved by {approvals} of {len(names)}" if approvals else "")
    yield from _marks(record)


def _marks(record: SubtaskRecord) -> Iterator[str]:
    if not record.agreed:
        yield "NOT AGREED"
    if not record.complete:
        yield "INCOMPLETE"
    if record.summary is not None:
        yield "summarized for later authors"


def _taken(record: SubtaskRecord, author: int) -> list[SegmentRecord]:
    """List the segments of an agent that make up its version."""
    taken: list[SegmentRecord] = []
    for draft in (draft for drafts in record.rounds for draft in drafts):
        if draft.agent == author and draft.outcome in ("passed", "forced") and draft.segment is not None:
            taken = [*([] if draft.segment.mode == "override" else taken), draft]
    return taken


def _states_now(document: DocumentRecord, record: SubtaskRecord) -> Iterator[str]:
    names = short_names(document.agents)
    for draft in record.rounds[-1] if record.rounds else ():
        name, approvals = names[draft.agent], f"{draft.approvals} of {len(names)}" if draft.validations else ""
        if draft.outcome == "open":
            yield f"{name} writes" if draft.segment is None else f"{name} {approvals or 'none'} so far"
        else:
            yield f"{name} {OUTCOMES[draft.outcome]} {approvals}".rstrip()


def _objections(record: SubtaskRecord, names: Sequence[str], columns: int) -> Iterator[str]:
    """Write the segments that met with objections, and these; of too many, taken and early ones are left out."""
    found = [
        (number, draft, [each for each in draft.validations if each.passes is False or each.missing == "flagged"])
        for number, drafts in enumerate(record.rounds, 1)
        for draft in drafts
    ]
    found = [
        (number, draft, against)
        for number, draft, against in found
        if against or draft.outcome not in ("open", "passed")
    ]
    shown, left = [], MAX_OBJECTIONS
    for each in sorted(found, key=lambda each: (each[1].outcome not in ("open", "passed"), each[0]), reverse=True):
        left -= max(1, len(each[2]))
        if left >= 0:
            shown.append(each)
    for number, draft, against in [each for each in found if each in shown]:
        head = f"round {number}: "
        approvals = f", {draft.approvals} of {len(names)} approve" if draft.validations else ""
        yield shorten(f"{head}{names[draft.agent]} {OUTCOMES[draft.outcome]}{approvals}", columns)
        yield from (shorten(f"{' ' * len(head)}{names[each.agent]}: {_reason(each)}", columns) for each in against)
    if more := len(found) - len(shown):
        yield f"and {more} more segments with objections; --json has them all"


def _reason(validation: ValidationRecord) -> str:
    if validation.missing:
        return "no valid judgement"
    return one_line(validation.reason) or "no reason given"


def _wrapped(clauses: Iterable[str], columns: int) -> list[str]:
    """Wrap clauses to lines of at most this number of columns, broken between clauses where possible."""
    lines: list[str] = []
    for clause in clauses:
        if lines and cell_len(lines[-1]) + 2 + cell_len(clause) <= columns:
            lines[-1] += f"; {clause}"
        else:
            lines += textwrap.wrap(clause, columns)
    return lines
