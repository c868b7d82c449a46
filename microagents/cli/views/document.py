"""A document that is written subtask by subtask, as a tree for the terminal: states, authors, and the objections to segments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.tree import Tree

from microagents.cli.views.lines import branch, draw
from microagents.models.model import without_options
from microagents.runs.words.summary import number_of
from microagents.runs.words.verdict import counted
from microagents.systems.documents.notes import DocumentRecord
from microagents.systems.documents.records import SegmentOutcome, SegmentRecord, SubtaskRecord, ValidationRecord

MAX_OBJECTED = 12
"""Maximum number of segments with objections that are shown of one subtask."""
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
    names = short_names(document.agents)
    drawings = [draw(_subtask(each, names)) for each in document.subtasks]
    return "\n".join(drawings)


def short_names(agents: Sequence[str]) -> list[str]:
    """Leave provider and options out of the names of agents, unless names would be equal."""
    short = []
    for name in agents:
        spec, copy, number = name.partition(" (")
        model = without_options(spec).partition(":")[2]
        short.append(f"{model or spec}{copy}{number}")
    # An agent that draws from a pool has its specs.
    is_clear = len(set(short)) == len(agents) and not any(", " in name for name in agents)
    if is_clear:
        return short
    return list(agents)


def _subtask(record: SubtaskRecord, names: Sequence[str]) -> Tree:
    head, facts = f"{record.state}  {number_of(record.at)}  {record.objective}", "; ".join(_facts(record, names))
    return branch(head, told=facts, below=[*_segments(record, names), *map(branch, _notes(record, names))])


def _facts(record: SubtaskRecord, names: Sequence[str]) -> Iterator[str]:
    yield f"depth {record.depth}"
    if record.parents:
        yield f"after {', '.join(map(number_of, record.parents))}"
    if record.rounds:
        yield counted(len(record.rounds), "round")
    written = [draft for drafts in record.rounds for draft in drafts if draft.segment is not None]
    discarded = sum(draft.outcome == "failed" for draft in written)
    if discarded:
        yield f"{discarded} of {len(written)} segments discarded"
    if record.state == "writing" and record.rounds:
        yield from [_state(draft, names) for draft in record.rounds[-1]]
    if record.author is not None:
        said = f"by {names[record.author]}"
        approvals = [str(draft.approvals) for draft in _taken(record, record.author) if draft.validations]
        if approvals:
            said += f", approved by {', '.join(approvals)} of {len(names)}"
        yield said
    marks = {"NOT AGREED": not record.agreed, "INCOMPLETE": not record.complete}
    marks["summarized for later authors"] = record.summary is not None
    yield from [mark for mark, is_so in marks.items() if is_so]


def _taken(record: SubtaskRecord, author: int) -> list[SegmentRecord]:
    """List the segments of an agent that make up its version."""
    taken: list[SegmentRecord] = []
    for draft in (draft for drafts in record.rounds for draft in drafts):
        if draft.agent == author and draft.outcome in ("passed", "forced") and draft.segment is not None:
            if draft.segment.mode == "override":
                taken = []
            taken.append(draft)
    return taken


def _state(draft: SegmentRecord, names: Sequence[str]) -> str:
    """Write the state of a segment, and the number of agents that approve."""
    if draft.outcome == "open" and draft.segment is None:
        return f"{names[draft.agent]} writes"
    said = f"{names[draft.agent]} {OUTCOMES[draft.outcome]}"
    if not draft.validations:
        return said
    return f"{said}, {draft.approvals} of {len(names)} approve"


def _segments(record: SubtaskRecord, names: Sequence[str]) -> Iterator[Tree]:
    """Draw the segments that met with objections, the last ones of too many, and these."""
    found = []
    for number, drafts in enumerate(record.rounds, 1):
        found += [(number, draft) for draft in drafts if draft.objections or draft.outcome not in ("open", "passed")]
    for number, draft in found[-MAX_OBJECTED:]:
        against = [each for each in draft.validations if each.passes is False or each.missing == "flagged"]
        below = [branch(f"{names[each.agent]}: {_reason(each)}") for each in against]
        yield branch(f"round {number}: {_state(draft, names)}", below=below)
    if (more := len(found) - MAX_OBJECTED) > 0:
        yield branch(f"and {more} earlier segments with objections; --json has them all")


def _reason(validation: ValidationRecord) -> str:
    if validation.missing:
        return "no valid judgement"
    return validation.reason.strip() or "no reason given"


def _notes(record: SubtaskRecord, names: Sequence[str]) -> Iterator[str]:
    """Write the refused splits, and the version that each ranker calls best."""
    for fault, times in Counter(record.refused_splits).items():
        again = f" {times} times" * (times > 1)
        yield f"split refused{again}: {fault}"
    best: dict[str, list[str]] = {}
    for each in record.rankings:
        ranking, by = "no valid ranking", "the neutral ranker"
        if each.best is not None:
            ranking = f"ranked best: {names[each.best]}"
        if each.agent is not None:
            by = names[each.agent]
        best.setdefault(ranking, []).append(by)
    for ranking, rankers in best.items():
        yield f"{ranking} by {', '.join(rankers)}"
