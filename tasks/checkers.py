"""Checkers Jumping, the puzzle of LEAD: each step is easy, but a long row of equal checkers is hard to copy (section 5.3)."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from operator import itemgetter
from random import Random
from typing import Annotated, Literal, TypedDict

from msgspec import Meta, Struct
from pydantic import Field

from microagents.replies.chat import Prompt, Sampling
from microagents.replies.reply import Reply
from microagents.task import ChainTask

MAX_N = 99
"""A longer board is not copied within the limits of a reply."""
EXECUTION_ERRORS = 0.9
"""Part of the simulated model's errors that are of the board and not of the move (LEAD, figure 10)."""

Colour = Literal["R", "B"]
Move = tuple[Colour, int, int]
"""Colour, from cell, to cell."""
Cell = Annotated[str, Meta(pattern="^([0-9]{1,3}:)?(_|[RB][0-9]{0,3})$")]
"""A checker or ``_``, behind its position if positions are enumerated."""


class Board(Struct, frozen=True, kw_only=True):
    """Cells from left to right, as the last reply wrote them."""

    cells: tuple[str, ...]
    moves: int = 0


class CheckersStep(Reply, frozen=True):
    """The next move, and the board after it. Both are voted on: a right move with a wrong board must not win."""

    move: Move
    board: Annotated[tuple[Cell, ...], Meta(min_length=1)]


class CheckersResult(TypedDict):
    """Result of all moves."""

    solved: bool
    """Whether the colours have changed sides."""
    moves: int
    board: list[str]


class Checkers(ChainTask[Board, CheckersStep, CheckersResult]):
    """Exchange n red and n blue checkers in a row with one empty cell, by slides and jumps that go only forward."""

    sampling = Sampling(max_output_tokens=4096, flag_above_tokens=2048)

    n: Annotated[int, Field(ge=1, le=MAX_N)] = 5
    """Checkers of each colour; they take (n + 1)^2 - 1 moves."""
    numbered: bool = False
    """Whether each checker has a name (R1, R2, ..., B1, B2, ...), so that no two cells look the same."""
    positions: bool = False
    """Whether each cell is written with its position (0:R 1:R 2:_ ...)."""

    def start(self) -> Board:
        return Board(cells=self._written([*self._side("R"), "_", *self._side("B")]))

    def steps(self) -> int:
        return (self.n + 1) ** 2 - 1

    def done(self, state: Board) -> bool:
        return state.moves == self.steps()

    def prompt(self, state: Board) -> Prompt:
        system = self._system(
            'Give that move as [colour, from cell, to cell], with the colour "R" or "B", and the whole board after it, written like the '
            "board that you are given."
        )
        return Prompt(system=system, user=f"Board: {json.dumps(state.cells)}")

    def rollout_prompt(self, state: Board, horizon: int) -> Prompt:
        system = self._system(
            f"Do this again and again, each time on the board after the move before. Number of moves to give: {horizon}, or fewer if fewer "
            'are left. Give each as [colour, from cell, to cell], with the colour "R" or "B", and with it the whole board after it, '
            "written like the board that you are given."
        )
        return Prompt(system=system, user=f"Board: {json.dumps(state.cells)}\nMoves left: {self.steps() - state.moves}")

    def state_in(self, prompt: Prompt) -> Board:
        shown = dict(re.findall(r"^(Board|Moves left): (.*)$", prompt.user, re.MULTILINE))
        cells = tuple(json.loads(shown["Board"]))
        left = int(shown["Moves left"]) if "Moves left" in shown else self._moves_left(_row(cells))
        return Board(cells=cells, moves=self.steps() - left)

    def advance(self, state: Board, reply: CheckersStep) -> Board:
        return Board(cells=reply.board, moves=state.moves + 1)

    def result(self, state: Board) -> CheckersResult:
        goal = self._written([*self._side("B"), "_", *self._side("R")])
        return CheckersResult(solved=state.cells == goal, moves=state.moves, board=[*state.cells])

    def oracle(self, state: Board) -> CheckersStep:
        return self._right(state)[0]

    def correct(self, state: Board, reply: CheckersStep) -> bool:
        """Return whether the move is valid and avoids the losing patterns, and the board follows from it."""
        return reply in self._right(state)

    def expert(self, prompt: Prompt, reply: type[Reply]) -> CheckersStep:  # noqa: ARG002 - it has one kind of reply
        return self.oracle(self.state_in(prompt))

    def mistake(self, prompt: Prompt, right: Reply, rng: Random) -> CheckersStep:
        """Make mostly the right move, with a checker too many or too few in the longest block or two exchanged."""
        assert isinstance(right, CheckersStep)
        state = self.state_in(prompt)
        allowed = self._right(state)
        others = [
            step for move in _into_the_empty(_row(state.cells)) if (step := self._step(state, move)) not in allowed
        ]
        if others and rng.random() >= EXECUTION_ERRORS:
            return rng.choice(others)
        contents, row = _contents(right.board), _row(right.board)
        start = _longest_block(row)
        unequal = [at for at, (one, two) in enumerate(pairwise(row)) if one != two]
        kind = rng.randrange(3)
        if kind == 0 and unequal:
            at = rng.choice(unequal)
            contents[at], contents[at + 1] = contents[at + 1], contents[at]
        elif kind == 1 and len(contents) > 1:
            del contents[start]
        else:
            contents.insert(start, contents[start])
        return CheckersStep(move=right.move, board=self._written(contents))

    def _system(self, wanted: str) -> str:
        if self.numbered:
            names = f'"R1" to "R{self.n}" are the red checkers, "B1" to "B{self.n}" the blue ones'
        else:
            names = '"R" is a red checker, "B" a blue one'
        written = f' Each cell is written as its number, a colon and its content, such as "{self.start().cells[0]}".'
        return (
            f"You play Checkers Jumping with {self.n} red and {self.n} blue checkers in a row of {2 * self.n + 1} cells. The cells are "
            f"numbered 0 to {2 * self.n} from left to right, and a board lists them in this order: {names}, "
            f'"_" the empty cell.{written if self.positions else ""}\n'
            "Red starts on the left, blue on the right, and the two must change sides.\n"
            "Rules: red checkers move only to the right, blue ones only to the left. A checker slides into the empty cell if that is the "
            "next one, or jumps into it over exactly one checker of the other colour.\n"
            "A blue checker is home if every cell to its left holds a blue one, a red checker if every cell to its right holds a red one.\n"
            "A board is lost if, next to the empty cell,\n"
            "P1: the two cells to the right hold red checkers that are not home; or\n"
            "P2: the two cells to the left hold blue checkers that are not home; or\n"
            "P3: the cell to the left holds a blue checker and the cell to the right a red one, and neither is home.\n"
            "Procedure: let e be the number of the empty cell. Go through these moves in order: a red checker in e-1 slides; a blue one in "
            "e+1 slides; a red one in e-2 jumps over a blue one in e-1; a blue one in e+2 jumps over a red one in e+1. Make the first that "
            "is possible and does not lead to a lost board.\n"
            f"{wanted}"
        )

    def _side(self, colour: Colour) -> list[str]:
        return [f"{colour}{number}" if self.numbered else colour for number in range(1, self.n + 1)]

    def _written(self, contents: list[str]) -> tuple[str, ...]:
        if self.positions:
            return tuple(f"{at}:{content}" for at, content in enumerate(contents))
        return tuple(contents)

    def _step(self, state: Board, move: Move) -> CheckersStep:
        contents = _contents(state.cells)
        _, source, target = move
        contents[source], contents[target] = contents[target], contents[source]
        return CheckersStep(move=move, board=self._written(contents))

    def _right(self, state: Board) -> list[CheckersStep]:
        """List the right steps: if every move loses, all valid ones, and without any a step that moves nothing."""
        valid = [self._step(state, move) for move in _valid_moves(_row(state.cells))]
        return (
            [step for step in valid if not _lost(_row(step.board))]
            or valid
            or [CheckersStep(move=("R", 0, 0), board=state.cells)]
        )

    def _moves_left(self, row: str) -> int:
        """Count the moves to the goal: the cells to cross, less one for each jump. Estimated on an impossible board."""
        reds = [at for at, colour in enumerate(row) if colour == "R"]
        blues = [at for at, colour in enumerate(row) if colour == "B"]
        jumps = sum(row.count("R", 0, at) for at in blues)
        return min(max(self.n * (self.n + 1) + sum(blues) - sum(reds) - jumps, 1), self.steps())


def _contents(cells: tuple[str, ...]) -> list[str]:
    return [cell.rpartition(":")[2] for cell in cells]


def _row(cells: tuple[str, ...]) -> str:
    """Write the colours in one text, such as ``RR_BB``."""
    return "".join(content[0] for content in _contents(cells))


def _valid_moves(row: str) -> list[Move]:
    """List the moves that the rules allow, in the order of the prompt's procedure."""
    left, empty, right = row.partition("_")
    at = len(left)
    possible: list[tuple[bool, Move]] = [
        (left.endswith("R"), ("R", at - 1, at)),
        (right.startswith("B"), ("B", at + 1, at)),
        (left.endswith("RB"), ("R", at - 2, at)),
        (right.startswith("RB"), ("B", at + 2, at)),
    ]
    return [move for allowed, move in possible if empty and allowed]


def _lost(row: str) -> bool:
    """Return whether one of the patterns P1 to P3 stands around the empty cell."""
    left, _, right = row.partition("_")
    reds_home, blues_home = not right.strip("R"), not left.strip("B")
    return (
        (right.startswith("RR") and not reds_home)
        or (left.endswith("BB") and not blues_home)
        or (left.endswith("B") and right.startswith("R") and not blues_home and not reds_home)
    )


def _into_the_empty(row: str) -> list[Move]:
    """List the moves of checkers at most two cells away, allowed or not."""
    at = row.find("_")
    near = [
        source
        for source in (at - 2, at - 1, at + 1, at + 2)
        if at >= 0 and 0 <= source < len(row) and row[source] != "_"
    ]
    return [("R" if row[source] == "R" else "B", source, at) for source in near]


def _longest_block(row: str) -> int:
    """Start of the longest block of equal checkers; 0 if there is none."""
    blocks = [(len(found[0]), found.start()) for found in re.finditer("R+|B+", row)]
    return max(blocks, key=itemgetter(0), default=(0, 0))[1]
