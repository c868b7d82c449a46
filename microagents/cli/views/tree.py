"""The tree of a problem and its sub-problems as text for the terminal: one or two lines for each problem."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Raw
from rich.cells import cell_len

from microagents.cli.views.lines import joined, one_line, shorten
from microagents.runs.words.money import money
from microagents.runs.words.summary import columns_of_stdout
from microagents.runs.words.verdict import counted
from microagents.systems.questions.tree import Branch, ProblemNode, TurnResult

MIN_COLUMNS = 60
"""Minimum width of a problem with its answer. If its turns leave less room on the line, they move to a second line."""
ANSWER_SHARE = 0.5
"""Minimum share of that width for a long answer."""
MAX_PICKED_COLUMNS = 20
"""Maximum width of an answer that the judge picked in place of that to the question of the line."""
BRANCHES = (
    "\N{BOX DRAWINGS LIGHT VERTICAL AND RIGHT}\N{BOX DRAWINGS LIGHT HORIZONTAL} ",
    "\N{BOX DRAWINGS LIGHT VERTICAL}  ",
)
LAST_BRANCHES = ("\N{BOX DRAWINGS LIGHT UP AND RIGHT}\N{BOX DRAWINGS LIGHT HORIZONTAL} ", "   ")


def draw_tree(tree: ProblemNode) -> str:
    """Draw the tree as text. Control characters and line breaks from models and tasks are replaced."""
    return joined(_lines(tree, "", "", columns_of_stdout()))


def _lines(node: ProblemNode, head: str, below: str, columns: int) -> Iterator[str]:
    """Draw a problem and its sub-problems. ``head`` is the prefix of the first line, ``below`` of all others."""
    is_parent = bool(node.children or node.folded)
    turns = f"{', '.join(map(_turn_text, node.turns)) or ('' if node.children else 'nothing recorded')}  {money(node.cost_usd)}"
    room = columns - cell_len(head) - cell_len(turns) - 2
    line = _problem_and_answer(node, max(MIN_COLUMNS, room))
    if cell_len(line) <= room:
        yield f"{head}{line}  {turns}"
    else:
        yield head + _problem_and_answer(node, max(MIN_COLUMNS // 2, columns - cell_len(head)))
        yield f"{below}{BRANCHES[1] if is_parent else LAST_BRANCHES[1]}  {turns}"
    for child in node.children:
        first, others = BRANCHES if child is not node.children[-1] else LAST_BRANCHES
        yield from _lines(child, below + first, below + others, columns)
    if node.folded is not None:
        folded = node.folded
        undecided = f", {folded.undecided:,} of them undecided" if folded.undecided else ""
        counts = f"{counted(folded.problems, 'problem')}{undecided}, {counted(folded.calls, 'call')}"
        yield f"{below}{LAST_BRANCHES[0]}+{counts}, {money(folded.cost_usd)}"


def _problem_and_answer(node: ProblemNode, columns: int) -> str:
    problem = one_line(node.problem if node.branch is None else f"{_branch_text(node.branch)} {node.problem}")
    if node.answer is None:
        return shorten(problem, columns)
    answer = shorten(
        one_line(_answer_text(node.answer)), max(int(columns * ANSWER_SHARE), columns - cell_len(problem) - 4)
    )
    return f"{shorten(problem, columns - cell_len(answer) - 4)} -> {answer}"


def _branch_text(branch: Branch) -> str:
    notes = [str(branch.number)]
    if branch.same_as is not None:
        notes.append(f"same as {branch.same_as}")
    if branch.ending == "not picked" and branch.answer is not None:
        notes.append(f"judge picked {shorten(one_line(_answer_text(branch.answer)), MAX_PICKED_COLUMNS)}")
    elif branch.ending not in (None, "transitions"):
        notes.append(branch.ending)
    if branch.chosen:
        notes.append("chosen")
    return f"[{', '.join(notes)}]"


def _answer_text(answer: Raw) -> str:
    """Write an answer as JSON; of a single field only the value, since its name is the same in the whole tree."""
    fields = msgspec.json.decode(answer, type=dict[str, Raw])
    if len(fields) == 1:
        only = next(iter(fields.values()))
    else:
        only = answer
    return bytes(only).decode()


def _turn_text(result: TurnResult) -> str:
    votes = [each.votes for each in result.candidates]
    if result.winner is not None:
        votes = [votes[result.winner], *sorted(votes[: result.winner] + votes[result.winner + 1 :], reverse=True)]
    match result.outcome:
        case "agreed" | "single":
            outcome = f"{result.outcome} {result.candidates[0].copies} of {result.calls}"
        case "none":
            outcome = f"none valid of {result.calls}"
        case "open" | "undecided" | "contested" | "refused":
            outcome = f"{result.outcome} after {result.calls}"
        case _:
            if any(votes):
                outcome = f"{':'.join(map(str, votes))} {result.outcome}"
            else:
                outcome = result.outcome
    return f"{result.turn} {outcome}{' by another model' if result.other_model else ''}"
