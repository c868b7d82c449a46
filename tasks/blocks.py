"""The block world, a puzzle on which reasoning models were tested (Shojaee et al. 2025): stacks are rebuilt, one block at a time."""

from __future__ import annotations

import json
import re
from functools import cached_property
from itertools import chain, pairwise, permutations
from random import Random
from typing import Annotated, ClassVar, Self, TypedDict

from msgspec import Meta, Struct
from pydantic import Field

from microagents.replies.chat import Prompt, Reply, Sampling
from microagents.task import ChainTask

TABLE = 0
Move = tuple[int, int]
"""A block, and the block that it is put on, or `TABLE`."""
MAX_BLOCKS = 200
"""More blocks are not copied within the limits of a reply."""
NEW_STACK = 0.25
"""Probability with which the next block of a random arrangement begins a stack."""
MOVE_ERRORS = 0.75
"""Part of the simulated model's errors that are of the move and not of the state."""

Arrangement = tuple[Annotated[tuple[int, ...], Meta(min_length=1)], ...]
"""The stacks on the table, each from bottom to top."""


class Table(Struct, frozen=True, kw_only=True):
    """Stacks on the table."""

    stacks: Arrangement
    moves: int = 0


class BlocksStep(Reply, frozen=True):
    """The next move, and the stacks after it. Both are voted on: a right move with wrong stacks must not win."""

    move: Move
    stacks: Arrangement


class BlocksResult(TypedDict):
    """Result of all moves."""

    solved: bool
    """Whether the goal is reached."""
    moves: int
    stacks: list[list[int]]


class Blocks(ChainTask[Table, BlocksStep, BlocksResult]):
    """Rebuild random stacks of blocks into others: first put on the table what is not in place, then build from the bottom up."""

    sampling: ClassVar[Sampling] = Sampling(max_output_tokens=4096, flag_above_tokens=2048)

    blocks: Annotated[int, Field(ge=2, le=MAX_BLOCKS)] = 12
    """Number of blocks."""
    instance: Annotated[int, Field(ge=0)] = 0
    """Number of the random arrangement; each gives other stacks and another goal."""

    @cached_property
    def arrangements(self) -> tuple[Arrangement, Arrangement]:
        """Stacks at the start, and at the goal."""
        rng = Random(f"blocks {self.blocks} {self.instance}")  # noqa: S311 - seeded on purpose
        start = goal = _random_stacks(self.blocks, rng)
        while set(goal) == set(start):
            goal = _random_stacks(self.blocks, rng)
        return start, goal

    def start(self) -> Table:
        return Table(stacks=self.arrangements[0])

    def steps(self) -> int:
        return _moves_left(*self.arrangements)

    def done(self, state: Table) -> bool:
        return state.moves == self.steps()

    def prompt(self, state: Table) -> Prompt:
        wanted = "Give that move as [block, the block that it is put on, or 0 for the table], and the stacks after it."
        return Prompt(system=self._system(wanted), user=self._user(state))

    def rollout_prompt(self, state: Table, horizon: int) -> Prompt:
        wanted = (
            f"Do this again and again, each time with the stacks after the move before. Number of moves to give: {horizon}, or fewer if "
            "fewer are left. Give each as [block, the block that it is put on, or 0 for the table], and with it the stacks after it."
        )
        return Prompt(
            system=self._system(wanted), user=f"{self._user(state)}\nMoves left: {self.steps() - state.moves}"
        )

    def state_in(self, prompt: Prompt) -> Table:
        goal, stacks, left = _shown(prompt)
        steps = self.steps()
        left = left or min(max(_moves_left(stacks, goal), 1), steps)
        return Table(stacks=stacks, moves=steps - left)

    def advance(self, state: Table, reply: BlocksStep) -> Table:
        return Table(stacks=reply.stacks, moves=state.moves + 1)

    def result(self, state: Table) -> BlocksResult:
        solved = sorted(state.stacks) == sorted(self.arrangements[1])
        return BlocksResult(solved=solved, moves=state.moves, stacks=[*map(list, state.stacks)])

    def flag(self, state: Table, reply: BlocksStep) -> str | None:  # noqa: ARG002 - the reply itself shows it
        """Flag stacks that lack a block or repeat one. Votes decide whether the move is right."""
        if sorted(chain.from_iterable(reply.stacks)) == [*range(1, self.blocks + 1)]:
            return None
        return "blocks_missing_or_twice"

    def oracle(self, state: Table) -> BlocksStep:
        return _next(state.stacks, self.arrangements[1])

    def variant(self, number: int) -> Self:
        """Return other stacks of as many blocks, and another goal."""
        return type(self)(blocks=self.blocks, instance=self.instance + number)

    def expert(self, prompt: Prompt, reply: type[Reply]) -> BlocksStep:  # noqa: ARG002 - it has one kind of reply
        goal, stacks, _ = _shown(prompt)
        return _next(stacks, goal)

    def mistake(self, prompt: Prompt, right: Reply, rng: Random) -> BlocksStep:
        """Make mostly another legal move with its stacks; else the right move with one more block moved."""
        assert isinstance(right, BlocksStep)
        _, stacks, _ = _shown(prompt)
        others = [move for move in _legal_moves(stacks) if move != right.move]
        if others and rng.random() < MOVE_ERRORS:
            return _step(stacks, *rng.choice(others))
        move = rng.choice(_legal_moves(right.stacks))
        return BlocksStep(move=right.move, stacks=_step(right.stacks, *move).stacks)

    def _system(self, wanted: str) -> str:
        return (
            f"You rebuild stacks of {self.blocks} numbered blocks on a table. Each stack is a list from bottom to top; its last block is "
            "the one that can be moved. A block put on the table becomes the last stack in the list of stacks; the other stacks keep their "
            "order, and a stack that is empty is left out.\n"
            "A block is in place if the blocks under it are, from the table up, exactly those under it in a stack of the goal.\n"
            "Procedure: go through the stacks in order. If one of more than one block has a top block that is not in place, put the top "
            "block of the first such stack on the table. If there is none, go through the stacks of the goal in order, take the first that "
            "is not complete, and put the lowest of its blocks that is not in place onto the block under it in the goal.\n"
            f"{wanted}"
        )

    def _user(self, state: Table) -> str:
        return f"Goal: {json.dumps(self.arrangements[1])}\nStacks: {json.dumps(state.stacks)}"


def _random_stacks(blocks: int, rng: Random) -> Arrangement:
    stacks: list[tuple[int, ...]] = []
    for block in rng.sample(range(1, blocks + 1), blocks):
        if not stacks or rng.random() < NEW_STACK:
            stacks.append((block,))
        else:
            stacks[-1] += (block,)
    return tuple(stacks)


def _shown(prompt: Prompt) -> tuple[Arrangement, Arrangement, int | None]:
    """Write the goal, the stacks, and the number of moves left if the prompt gives it."""
    shown = dict(re.findall(r"^(Goal|Stacks|Moves left): (.*)$", prompt.user, re.MULTILINE))
    goal, stacks = (tuple(map(tuple, json.loads(shown[name]))) for name in ("Goal", "Stacks"))
    return goal, stacks, int(shown["Moves left"]) if "Moves left" in shown else None


def _in_place(stacks: Arrangement, goal: Arrangement) -> set[int]:
    wanted = {stack[0]: stack for stack in goal}
    placed: set[int] = set()
    for stack in stacks:
        for block, right in zip(stack, wanted.get(stack[0], ()), strict=False):
            if block != right:
                break
            placed.add(block)
    return placed


def _moves_left(stacks: Arrangement, goal: Arrangement) -> int:
    """Count the moves: to the table for each misplaced block on another, and onto its block in the goal."""
    placed = _in_place(stacks, goal)
    return sum(block not in placed for arrangement in (stacks, goal) for stack in arrangement for block in stack[1:])


def _next(stacks: Arrangement, goal: Arrangement) -> BlocksStep:
    """Apply the procedure. If the goal is reached too early, or a block is missing, a step may move nothing."""
    placed = _in_place(stacks, goal)
    for stack in stacks:
        if len(stack) > 1 and stack[-1] not in placed:
            return _step(stacks, stack[-1], TABLE)
    for below, block in chain.from_iterable(map(pairwise, goal)):
        if block not in placed:
            return _step(stacks, block, below)
    return BlocksStep(move=(TABLE, TABLE), stacks=stacks)


def _legal_moves(stacks: Arrangement) -> list[Move]:
    tops = [stack[-1] for stack in stacks]
    to_table = [(stack[-1], TABLE) for stack in stacks if len(stack) > 1]
    return [*to_table, *permutations(tops, 2)]


def _step(stacks: Arrangement, block: int, onto: int) -> BlocksStep:
    without = [tuple(other for other in stack if other != block) for stack in stacks]
    after = [(*stack, block) if stack[-1] == onto else stack for stack in without if stack]
    return BlocksStep(move=(block, onto), stacks=(*after, *([(block,)] if onto == TABLE else [])))
