"""The towers of Hanoi: the procedure solves every height, the expert reads only the prompt, and mistakes are wrong but well formed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microagents.replies.parsing import parse
from microagents.replies.reply_forms import write
from microagents.tasks.hanoi import Hanoi, HanoiResult, HanoiStep, Move, Pegs, Towers

HEIGHTS = range(1, 11)
LOW = range(1, 8)


def walked(task: Hanoi) -> Iterator[tuple[Towers, HanoiStep, Towers]]:
    """Every step as the oracle takes it: the state before, the reply, the state after."""
    state = task.start()
    while not task.done(state):
        reply = task.oracle(state)
        after = task.advance(state, reply)
        yield state, reply, after
        state = after


def pegs_of(places: tuple[int, ...]) -> Pegs:
    """The pegs when disk i + 1 stands on ``places[i]``, in legal order."""
    one, two, three = (tuple(disk for disk in range(len(places), 0, -1) if places[disk - 1] == peg) for peg in range(3))
    return one, two, three


def last_moves(disks: int) -> list[Move | None]:
    """No move, one of disk 1, one of another disk: the procedure asks for no more."""
    other: list[Move | None] = [(disks, 2, 0)] if disks > 1 else []
    return [None, (1, 0, 1), (1, 2, 1), *other]


def legal_states(disks: int) -> Iterator[Towers]:
    """Every legal distribution of the disks, after every kind of move."""
    for places in product(range(3), repeat=disks):
        for last in last_moves(disks):
            yield Towers(pegs=pegs_of(places), last=last)


@st.composite
def corrupted(draw: st.DrawFn) -> tuple[Hanoi, Towers]:
    """Any distribution of the disks, in any order, after any move: what a wrong decision may lead to."""
    disks = draw(st.integers(1, 8))
    pegs: tuple[list[int], list[int], list[int]] = ([], [], [])
    for disk in draw(st.permutations(range(1, disks + 1))):
        pegs[draw(st.integers(0, 2))].append(disk)
    numbers = st.integers(-1, disks + 1)
    last = draw(st.none() | st.tuples(numbers, numbers, numbers))
    one, two, three = map(tuple, pegs)
    return Hanoi(disks=disks), Towers(pegs=(one, two, three), last=last)


# -- the procedure -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("disks", HEIGHTS)
def test_the_oracle_moves_the_tower_to_the_third_peg_in_the_least_number_of_legal_moves(disks: int) -> None:
    task, state, moves = Hanoi(disks=disks), Hanoi(disks=disks).start(), 0
    for before, reply, after in walked(task):
        disk, source, target = reply.move
        assert before.pegs[source][-1] == disk, "only the top disk of a peg moves"
        assert not before.pegs[target] or before.pegs[target][-1] > disk, "no disk lies on a smaller one"
        expected = [list(peg) for peg in before.pegs]
        expected[target].append(expected[source].pop())
        assert [list(peg) for peg in reply.next_state] == expected, "the state follows from the move"
        state, moves = after, moves + 1
    assert moves == task.steps() == 2**disks - 1
    assert state.pegs == ((), (), tuple(range(disks, 0, -1)))
    assert task.result(state) == HanoiResult(solved=True, moves=moves, pegs=[[], [], [*range(disks, 0, -1)]])


# -- the prompt --------------------------------------------------------------------------------------------------------


def test_the_system_prompt_is_the_same_for_every_state_so_that_providers_can_cache_it() -> None:
    task = Hanoi(disks=5)
    assert len({task.prompt(state).system for state in legal_states(5)}) == 1


# -- the expert --------------------------------------------------------------------------------------------------------


@given(corrupted())
def test_after_wrong_decisions_oracle_and_expert_agree_and_lose_no_disk(case: tuple[Hanoi, Towers]) -> None:
    task, state = case
    reply = task.oracle(state)
    assert task.expert(task.prompt(state), HanoiStep) == reply
    assert task.flag(state, reply) is None
    disk, source, target = reply.move
    assert disk in state.pegs[source]
    assert source != target
    assert reply.next_state[target][-1] == disk


# -- mistakes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("disks", [1, 4])
def test_a_mistake_casts_another_vote_and_passes_the_screen(disks: int) -> None:
    task = Hanoi(disks=disks)
    for seed, state in enumerate(legal_states(disks)):
        right = task.oracle(state)
        wrong = task.mistake(task.prompt(task.start()), right, Random(seed))
        assert wrong.vote() != right.vote()
        assert not task.correct(state, wrong)
        assert parse(write(wrong), HanoiStep) == wrong
        assert task.flag(state, wrong) is None


# -- the screen --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pegs",
    [((3, 2), (), ()), ((3, 2, 1), (1,), ()), ((4, 3, 2, 1), (), ()), ((3, 2, 0), (), ()), ((), (), ())],
)
def test_a_state_with_a_disk_missing_or_twice_is_flagged(pegs: Pegs) -> None:
    task = Hanoi(disks=3)
    assert task.flag(task.start(), HanoiStep(move=(1, 0, 2), next_state=pegs)) == "disks_missing_or_twice"
