"""The tree of a problem and its sub-problems in the terminal: a line for each, or two."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator

import msgspec
from msgspec import Raw
from rich.cells import cell_len, set_cell_size

from microagents.cli.display import money
from microagents.cli.reporting import printable
from microagents.problems.tree import ProblemNode, TurnResult

COLUMNS = 100
"""Where the output is no terminal."""
LEAST_COLUMNS = 60
"""Longer problems and answers get as many at least of a line, or one of their own, be it only half as wide."""
ANSWER_SHARE = 0.5
"""Of a line: a long answer gets as much at least."""
BRANCHES = ("\N{BOX DRAWINGS LIGHT VERTICAL AND RIGHT}\N{BOX DRAWINGS LIGHT HORIZONTAL} ", "\N{BOX DRAWINGS LIGHT VERTICAL}  ")
LAST_BRANCHES = ("\N{BOX DRAWINGS LIGHT UP AND RIGHT}\N{BOX DRAWINGS LIGHT HORIZONTAL} ", "   ")


def drawn(tree: ProblemNode) -> str:
    """The tree as text. What models and tasks wrote in it cannot move the cursor, nor end a line."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    text = "\n".join(_lines(tree, "", "", shutil.get_terminal_size().columns if is_terminal else COLUMNS))
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def _lines(node: ProblemNode, head: str, below: str, columns: int) -> Iterator[str]:
    """Lines of a problem and of those under it; ``head`` leads its first line, ``below`` all that follow."""
    is_parent = bool(node.children or node.folded)
    went = f"{', '.join(map(_went, node.turns)) or 'nothing recorded'}  {money(node.cost_usd)}"
    room = columns - cell_len(head) - cell_len(went) - 2
    line = _asked_and_answered(node, max(LEAST_COLUMNS, room))
    if cell_len(line) <= room:
        yield f"{head}{line}  {went}"
    else:
        yield head + _asked_and_answered(node, max(LEAST_COLUMNS // 2, columns - cell_len(head)))
        yield f"{below}{BRANCHES[1] if is_parent else LAST_BRANCHES[1]}  {went}"
    for child in node.children:
        first, others = BRANCHES if child is not node.children[-1] else LAST_BRANCHES
        yield from _lines(child, below + first, below + others, columns)
    if node.folded is not None:
        less = node.folded
        undecided = f", {less.undecided:,} of them undecided" if less.undecided else ""
        yield f"{below}{LAST_BRANCHES[0]}+{less.problems:,} problems{undecided}, {less.calls:,} calls, {money(less.cost_usd)}"


def _asked_and_answered(node: ProblemNode, columns: int) -> str:
    problem = _one_line(node.problem)
    if node.answer is None:
        return _cut(problem, columns)
    answer = _cut(_one_line(_shown(node.answer)), max(int(columns * ANSWER_SHARE), columns - cell_len(problem) - 4))
    return f"{_cut(problem, columns - cell_len(answer) - 4)} -> {answer}"


def _shown(answer: Raw) -> str:
    """A reply; of one with a single field only that, since all have the same."""
    fields = msgspec.json.decode(answer, type=dict[str, Raw])
    only = next(iter(fields.values())) if len(fields) == 1 else answer
    return bytes(only).decode()


def _went(taken: TurnResult) -> str:
    """How a turn went, in a few words."""
    votes = [each.votes for each in taken.candidates]
    if taken.winner is not None:
        votes = [votes[taken.winner], *sorted(votes[: taken.winner] + votes[taken.winner + 1 :], reverse=True)]
    match taken.outcome:
        case "agreed":
            how = f"agreed {taken.candidates[0].copies} of {taken.calls}"
        case "none":
            how = f"none valid of {taken.calls}"
        case "open" | "undecided":
            how = f"{taken.outcome} after {taken.calls}"
        case _:
            how = f"{':'.join(map(str, votes))} {taken.outcome}" if any(votes) else taken.outcome
    return f"{taken.turn} {how}{' by another model' if taken.other_model else ''}"


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()))


def _cut(text: str, columns: int) -> str:
    """The beginning of a text, in so many columns."""
    text = text[: columns + 1]
    return text if cell_len(text) <= columns else set_cell_size(text, max(0, columns - 3)).rstrip() + "..."
