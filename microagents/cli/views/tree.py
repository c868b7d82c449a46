"""The tree of a problem and its sub-problems for the terminal: a line for each problem, and one for its answer and turns."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Raw
from rich.tree import Tree

from microagents.cli.views.lines import branch, draw, one_line, shorten
from microagents.runs.words.money import Price
from microagents.runs.words.verdict import counted
from microagents.systems.questions.tree import Branch, ProblemNode, TurnResult

MAX_ANSWER_COLUMNS, MAX_PICKED_COLUMNS = 50, 20
"""Maximum width of an answer, and of one that the judge picked in place of that to the question of the line."""


def draw_tree(tree: ProblemNode, price: Price) -> str:
    """Draw the tree as text. Control characters and line breaks from models and tasks are replaced."""
    return draw(_tree(tree, price))


def _tree(node: ProblemNode, price: Price) -> Tree:
    """Draw a problem, its answer with the turns that led to it, and its sub-problems."""
    turns = list(map(_turn_text, node.turns)) or ["nothing recorded"] * (not node.children)
    problem, told = node.problem, f"{', '.join(turns)}  {price(node.cost_usd)}"
    if node.answer is not None:
        told = f"-> {_answer_text(node.answer, MAX_ANSWER_COLUMNS)}  {told}"
    if node.branch is not None:
        problem = f"{_branch_text(node.branch)} {problem}"
    below = [_tree(each, price) for each in node.children]
    return branch(problem, told=told, below=[*below, *_folded(node, price)])


def _folded(node: ProblemNode, price: Price) -> Iterator[Tree]:
    if (folded := node.folded) is not None:
        counts = counted(folded.problems, "problem")
        if folded.undecided:
            counts += f", {folded.undecided:,} of them undecided"
        yield branch(f"+{counts}, {counted(folded.calls, 'call')}, {price(folded.cost_usd)}")


def _branch_text(branch: Branch) -> str:
    notes = [str(branch.number)]
    if branch.same_as is not None:
        notes.append(f"same as {branch.same_as}")
    if branch.ending == "not picked" and branch.answer is not None:
        notes.append(f"judge picked {_answer_text(branch.answer, MAX_PICKED_COLUMNS)}")
    elif branch.ending not in (None, "transitions"):
        notes.append(branch.ending)
    if branch.chosen:
        notes.append("chosen")
    return f"[{', '.join(notes)}]"


def _answer_text(answer: Raw, columns: int) -> str:
    """Write an answer as JSON, on one line; of a single field only the value, since its name is the same in the whole tree."""
    fields = msgspec.json.decode(answer, type=dict[str, Raw])
    if len(fields) == 1:
        (answer,) = fields.values()
    written = bytes(answer).decode()
    return shorten(one_line(written), columns)


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
    return f"{result.turn} {outcome}{' by another model' * result.other_model}"
