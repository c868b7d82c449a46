"""Checkers Jumping: a move is right if and only if the goal stays in reach, and errors are mostly of the board, not of the move."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from itertools import combinations
from random import Random
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microagents.replies.parsing import Malformed, parse
from microagents.replies.reply_forms import write
from microagents.tasks.checkers import Board, Checkers, CheckersStep, Colour

OPTIONS = [(False, False), (True, False), (False, True), (True, True)]
SMALL = (1, 5)


def task_of(n: int, options: tuple[bool, bool] = (False, False)) -> Checkers:
    numbered, positions = options
    return Checkers(n=n, numbered=numbered, positions=positions)


def row_of(cells: tuple[str, ...]) -> str:
    return "".join(cell.split(":")[-1][0] for cell in cells)


# -- an exact solver, which knows the rules and no patterns ----------------------------------------------------------------------------


def successors(row: str) -> dict[tuple[str, int, int], str]:
    """The rows after each move that the rules allow."""
    found: dict[tuple[str, int, int], str] = {}
    for source, colour in enumerate(row):
        way = {"R": 1, "B": -1, "_": 0}[colour]
        for cells in (1, 2):
            target = source + cells * way
            over = row[source + way] if cells == 2 and 0 <= source + way < len(row) else ""
            if 0 <= target < len(row) and row[target] == "_" and over in ("", "R" if colour == "B" else "B") and way:
                after = [*row]
                after[source], after[target] = "_", colour
                found[colour, source, target] = "".join(after)
    return found


@lru_cache
def winning(n: int) -> dict[str, int]:
    """Every position from which the goal can be reached, with its distance: a breadth-first search backwards over all positions."""
    before: dict[str, list[str]] = {}
    for empty in range(2 * n + 1):
        for reds in combinations([at for at in range(2 * n + 1) if at != empty], n):
            row = "".join("_" if at == empty else "R" if at in reds else "B" for at in range(2 * n + 1))
            for after in successors(row).values():
                before.setdefault(after, []).append(row)
    goal = "B" * n + "_" + "R" * n
    distance, layer = {goal: 0}, [goal]
    while layer:
        reached = {row for after in layer for row in before.get(after, ()) if row not in distance}
        distance |= dict.fromkeys(reached, distance[layer[0]] + 1)
        layer = sorted(reached)
    return distance


def right_states(task: Checkers) -> list[Board]:
    """All states that right moves lead to, except the last."""
    found: list[Board] = []
    todo = [task.start()]
    while todo:
        state = todo.pop()
        if state not in found and not task.done(state):
            found.append(state)
            todo += [task.advance(state, reply) for reply in replies(task, state) if task.correct(state, reply)]
    return found


def replies(task: Checkers, state: Board) -> list[CheckersStep]:
    """Every checker moved into the empty cell, allowed or not, with the board that follows."""
    contents = [cell.split(":")[-1] for cell in state.cells]
    target = contents.index("_")
    found = []
    for source in range(len(contents)):
        after = [*contents]
        after[source], after[target] = "_", contents[source]
        board = tuple(f"{at}:{content}" for at, content in enumerate(after)) if task.positions else tuple(after)
        found += [CheckersStep(move=(colour, source, target), board=board) for colour in get_args(Colour)]
    return found


@pytest.mark.parametrize("n", SMALL)
@pytest.mark.parametrize("options", OPTIONS)
def test_a_reply_is_right_if_its_move_leaves_the_goal_in_reach(n: int, options: tuple[bool, bool]) -> None:
    task, distance = task_of(n, options), winning(n)
    for state in right_states(task):
        allowed = successors(row_of(state.cells))
        for reply in replies(task, state):
            assert task.correct(state, reply) == (
                allowed.get(reply.move) == row_of(reply.board) and row_of(reply.board) in distance
            )


# -- the board and the prompt ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("board", ["[]", '["R", ""]', '["X"]', '["R", "__"]', '["0R"]', '["R12345"]'])
def test_a_cell_that_is_neither_a_checker_nor_empty_is_malformed(board: str) -> None:
    with pytest.raises(Malformed):
        parse(f'move = ["R", 1, 2]\nboard = {board}', CheckersStep)


# -- after a wrong decision ------------------------------------------------------------------------------------------------------------


cells = st.lists(
    st.sampled_from(["R", "B", "_", "R", "B", "R2", "B17", "0:R", "3:B", "7:_", "1:B1"]), min_size=1, max_size=12
).map(tuple)


@given(st.integers(1, 6), st.booleans(), cells, st.integers(0, 10**6))
def test_every_board_has_a_successor(n: int, positions: bool, board: tuple[str, ...], seed: int) -> None:  # noqa: FBT001
    task = Checkers(n=n, positions=positions)
    state = Board(cells=board)
    reply = task.expert(task.prompt(state), CheckersStep)
    assert reply == task.oracle(state)
    assert task.correct(state, reply)
    assert task.state_in(task.rollout_prompt(state, 8)) == state
    assert not task.done(task.state_in(task.prompt(state)))
    wrong = task.mistake(task.prompt(state), reply, Random(seed))
    assert wrong.vote() != reply.vote()
    assert parse(write(wrong), CheckersStep) == wrong


# -- mistakes and the screen -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS)
def test_nine_of_ten_mistakes_are_of_the_board_the_others_are_moves(options: tuple[bool, bool]) -> None:
    task = task_of(6, options)
    state = task.start()
    for _ in range(10):
        state = task.advance(state, task.oracle(state))
    asked, right = task.prompt(state), task.oracle(state)
    wrong = [task.mistake(asked, right, Random(seed)) for seed in range(2000)]
    of_the_board = [each for each in wrong if each.move == right.move]
    assert 0.88 < len(of_the_board) / 2000 < 0.92  # three standard deviations
    lengths = Counter(len(each.board) - len(right.board) for each in of_the_board)
    assert [*sorted(lengths)] == [-1, 0, 1]
    assert min(lengths.values()) > 500
    assert all(each in replies(task, state) for each in wrong if each.move != right.move)
