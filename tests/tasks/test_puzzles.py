"""What the puzzles share: experts read the prompt alone, a rollout starts in the state of its prompt, and mistakes are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

from microagents import run
from microagents.replies.parsing import parse
from microagents.replies.reply import Reply
from microagents.replies.reply_forms import write
from microagents.tasks.checkers import Checkers
from microagents.tasks.drift import Drift
from microagents.tasks.hanoi import Hanoi

Puzzle = Any  # chains of different states and replies

NOTATIONS = [Checkers(n=4, numbered=numbered, positions=not numbered) for numbered in (False, True)]
PUZZLES: list[Puzzle] = [
    *NOTATIONS,
    Checkers(n=1),
    Checkers(n=9),
    *(Hanoi(disks=disks) for disks in (1, 5)),
]
by_puzzle = pytest.mark.parametrize("task", PUZZLES, ids=repr)


@pytest.mark.parametrize(
    ("kind", "option", "sizes"),
    [
        (Hanoi, "disks", [0, -1, 65, "many", 2.5]),
        (Checkers, "n", [0, -1, 100, "many", 2.5]),
        (Drift, "length", [0, -1, "far"]),
    ],
)
def test_a_size_out_of_range_is_refused(kind: Puzzle, option: str, sizes: list[object]) -> None:
    for size in sizes:
        with pytest.raises(ValidationError):
            kind.model_validate({option: size})


def walked(task: Puzzle) -> Iterator[tuple[Any, Reply]]:
    """Every state on the oracle's way, with its reply."""
    state = task.start()
    while not task.done(state):
        reply = task.oracle(state)
        yield state, reply
        state = task.advance(state, reply)


@by_puzzle
def test_the_oracle_solves_it_in_the_announced_number_of_steps(task: Puzzle) -> None:
    *_, (state, reply) = walked(task)
    assert task.result(task.advance(state, reply))["solved"]
    assert len([*walked(task)]) == task.steps()
    assert not task.result(state)["solved"]


@by_puzzle
@pytest.mark.parametrize("horizon", [1, 8])
def test_the_prompts_of_a_step_and_of_a_rollout_show_the_whole_state(task: Puzzle, horizon: int) -> None:
    for state, _ in walked(task):
        assert task.state_in(task.prompt(state)) == state
        assert task.state_in(task.rollout_prompt(state, horizon)) == state


@by_puzzle
def test_a_mistake_is_wrong_and_well_formed(task: Puzzle) -> None:
    for seed, (state, right) in enumerate(walked(task)):
        for again in range(5):
            wrong = task.mistake(task.prompt(state), right, Random(1000 * again + seed))
            assert wrong.vote() != right.vote()
            assert not task.correct(state, wrong)
            assert parse(write(wrong), type(right)) == wrong


@pytest.mark.slow_after(4)
@by_puzzle
def test_after_any_row_of_mistakes_there_is_a_next_prompt_and_a_reply_to_it(task: Puzzle) -> None:
    for seed in range(20):
        rng, state = Random(seed), task.start()
        while not task.done(state):
            asked = task.prompt(state)
            right = task.expert(asked, type(task.oracle(state)))
            assert right == task.oracle(state)
            assert task.correct(state, right)
            again = task.state_in(task.rollout_prompt(state, 3))
            assert again == state
            assert not task.done(task.state_in(asked))
            state = task.advance(state, task.mistake(asked, right, rng))
            if state.moves > 60:
                break


@pytest.mark.parametrize("task", [*NOTATIONS, Checkers(n=3)], ids=repr)
async def test_a_run_solves_it(task: Puzzle) -> None:
    result = await run(task, models="sim:perfect@error=0.05", k=3, seed=1, runs_dir=None)
    assert result.outcome == "completed"
    assert result.value["solved"]
    assert result.account.errors == 0
    assert result.calls > 3 * result.value["moves"]
