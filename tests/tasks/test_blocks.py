"""The block world: the procedure rebuilds every arrangement by legal moves, in as few as it says."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microagents.tasks.blocks import TABLE, Arrangement, Blocks, BlocksStep, Table


@st.composite
def tables(draw: st.DrawFn) -> tuple[Blocks, Table]:
    """Any stacks of all blocks: what right and wrong decisions lead to."""
    task = Blocks(blocks=draw(st.integers(2, 9)), instance=draw(st.integers(0, 3)))
    stacks: list[tuple[int, ...]] = []
    for block in draw(st.permutations(range(1, task.blocks + 1))):
        if not stacks or draw(st.booleans()):
            stacks.append((block,))
        else:
            stacks[-1] += (block,)
    return task, Table(stacks=tuple(stacks))


def moved(stacks: Arrangement, block: int, onto: int) -> list[tuple[int, ...]]:
    """The stacks after a legal move."""
    (source,) = [stack for stack in stacks if stack[-1] == block]
    after = [stack[:-1] if stack is source else stack for stack in stacks]
    if onto == TABLE:
        assert len(source) > 1, "the block stood on another"
        after.append((block,))
    else:
        (target,) = [stack for stack in after if stack and stack[-1] == onto]
        after = [(*stack, block) if stack is target else stack for stack in after]
    return [stack for stack in after if stack]


@given(tables())
def test_the_procedure_leads_from_any_stacks_to_the_goal_in_the_number_shown(case: tuple[Blocks, Table]) -> None:
    task, state = case
    goal = {*task.arrangements[1]}
    if {*state.stacks} == goal:
        assert task.oracle(state) == BlocksStep(move=(TABLE, TABLE), stacks=state.stacks)
        return
    left = 0
    while {*state.stacks} != goal:
        reply = task.oracle(state)
        assert task.expert(task.prompt(state), BlocksStep) == reply
        assert [*reply.stacks] == moved(state.stacks, *reply.move)
        assert task.flag(state, reply) is None
        assert task.state_in(task.prompt(state)).stacks == state.stacks
        state, left = task.advance(state, reply), left + 1
    assert left <= 2 * (task.blocks - 1)


def test_instances_differ_and_are_never_solved_at_the_start() -> None:
    tasks = [Blocks(blocks=3, instance=instance) for instance in range(50)]
    assert len({task.arrangements for task in tasks}) > 10
    assert all(task.steps() > 0 and not task.result(task.start())["solved"] for task in tasks)
    assert Blocks(blocks=3).variant(4) == tasks[4]
    assert tasks[0].arrangements == Blocks(blocks=3).arrangements


def test_most_mistakes_are_other_legal_moves_with_the_stacks_that_follow() -> None:
    task = Blocks(blocks=12)
    state, right = task.start(), task.oracle(task.start())
    wrong = [task.mistake(task.prompt(state), right, Random(seed)) for seed in range(2000)]
    other_moves = [each for each in wrong if each.move != right.move]
    assert 0.72 < len(other_moves) / 2000 < 0.78  # three standard deviations
    assert all([*each.stacks] == moved(state.stacks, *each.move) for each in other_moves)
    assert all(task.flag(state, each) is None for each in wrong)


@pytest.mark.parametrize("stacks", [((1, 2),), ((1, 2), (3, 3)), ((1, 2, 3, 4),), ((1, 2), (0,)), ()])
def test_stacks_with_a_block_missing_or_twice_are_flagged(stacks: Arrangement) -> None:
    task = Blocks(blocks=3)
    reply = BlocksStep(move=(1, 0), stacks=stacks)
    assert task.flag(task.start(), reply) == "blocks_missing_or_twice"
    assert task.oracle(Table(stacks=stacks)).stacks is not None  # a person may decide so
