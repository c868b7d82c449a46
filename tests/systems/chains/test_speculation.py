"""Guessing ahead in a chain: it may change how long a run takes and what it wastes, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import pytest

from microagents import FirstToAheadBy, Prompt, Result, Sampling, run
from microagents.base.errors import TaskFailed
from microagents.elections.election import Ballot, Question
from microagents.replies.reply_forms import write
from microagents.systems.chains.chain import ChainStep
from microagents.systems.chains.maker import Maker
from microagents.systems.chains.speculation import OpenStep
from microagents.tasks.drift import Drift, Onward, Place

ERRING = "sim:perfect@error=0.4,flag=0.1"


def ballot(number: int, seq: int = 0) -> Ballot:
    return Ballot(seq=seq, value=json.dumps({"number": number}).encode())


def opened() -> OpenStep:
    question = Question(
        prompts=(Prompt(user="?"),),
        reply="",
        form=b"",
        rule=FirstToAheadBy(3),
        sampling=Sampling(),
        models=("sim:perfect",),
        max_draws=9,
    )
    return OpenStep(ChainStep(number=0, state=Place(), election=question.id_at("0/step/0"), question=question), Onward)


@pytest.mark.slow
async def test_decisions_and_ballots_are_the_same_with_guesses_and_without() -> None:
    ahead, step_by_step = [
        await run(Drift(length=80), models=ERRING, k=2, seed=5, runtime="linked", speculate=speculate)
        for speculate in (True, False)
    ]
    assert ahead.account.decisions_sha256 == step_by_step.account.decisions_sha256
    assert ahead.account.ballots_sha256 == step_by_step.account.ballots_sha256
    assert ahead.account.errors == step_by_step.account.errors
    assert (ahead.account.votes_per_step, ahead.value) == (step_by_step.account.votes_per_step, step_by_step.value)
    assert step_by_step.account.wasted_calls == 0
    assert ahead.account.wasted_calls > 0, "what wrong guesses cost"
    assert ahead.calls == step_by_step.calls + ahead.account.wasted_calls


def test_a_ballot_that_takes_the_place_of_its_seq_moves_the_guess() -> None:
    step = opened()
    assert step.arrive(ballot(1, seq=0))
    assert step.arrive(ballot(2, seq=0)), "the reply 1 failed the verification"
    assert step.guess == Onward(number=2)
    assert not step.arrive(ballot(1, seq=1))


class OnTheOrbit(Drift):
    """A walk that cannot go on from where the right walk never is."""

    orbit: ClassVar[set[int]] = set()

    def advance(self, state: Place, reply: Onward) -> Place:
        if reply.number not in self.orbit:
            raise ValueError(f"{reply.number} is off the orbit")
        return super().advance(state, reply)


@pytest.fixture
def on_the_orbit() -> OnTheOrbit:
    task = OnTheOrbit(length=60)
    state = task.start()
    OnTheOrbit.orbit = {state.number}
    for _ in range(task.length):
        state = Drift.advance(task, state, task.oracle(state))
        OnTheOrbit.orbit.add(state.number)
    return task


async def test_what_user_code_raises_on_a_wrong_guess_is_nobodys_trouble(on_the_orbit: OnTheOrbit) -> None:
    result = await run(on_the_orbit, models="sim:perfect@error=0.2", k=6)
    assert (result.outcome, result.account.errors) == ("completed", 0)


async def test_what_user_code_raises_on_a_decision_ends_the_run(on_the_orbit: OnTheOrbit) -> None:
    with pytest.raises(TaskFailed, match=r"^OnTheOrbit\.advance raised .* is off the orbit.* at step \d+ \("):
        await run(on_the_orbit, models="sim:perfect@error=0.7,alternatives=1", k=2)


async def scripted(tmp_path: Path, replies: dict[tuple[int, int], int], length: int, strategy: Maker) -> Result:
    """A run on given replies; a reply that is not given is the right one, and a number below zero is malformed."""
    task = Drift(length=length)
    lines, state = [], task.start()
    for step in range(length):
        right = task.oracle(state)
        lines += [
            {"path": f"0/step/{step}", "seq": seq, "text": write(Onward(number=replies.get((step, seq), right.number)))}
            for seq in range(9)
        ]
        state = task.advance(state, right)
    script = tmp_path / "script.jsonl"
    script.write_text("\n".join(map(json.dumps, lines)))
    return await run(task, models=f"scripted:{script}", strategy=strategy)


async def test_a_guess_that_the_vote_overrules_is_dropped_for_the_decision(tmp_path: Path) -> None:
    result = await scripted(tmp_path, {(3, 0): 700, (3, 1): 700}, length=8, strategy=Maker(k=3))
    assert (result.outcome, result.account.errors) == ("completed", 0)
    assert result.account.wasted_calls > 0


async def test_an_election_that_stays_undecided_stops_the_run_there_and_not_before(tmp_path: Path) -> None:
    tie = {(2, seq): 500 + seq for seq in range(9)}
    result = await scripted(tmp_path, tie, length=6, strategy=Maker(k=9, max_draws=9))
    assert result.outcome == "undecided"
    assert result.account.undecided_at == ("0/step/2",)
    assert result.account.steps == 2


def test_the_guess_is_the_first_to_arrive_and_moves_only_for_more_ballots() -> None:
    step = opened()
    assert step.arrive(ballot(7))
    assert not step.arrive(ballot(8, 1))
    assert step.guess == Onward(number=7)
    assert step.arrive(ballot(8, 2))
    assert step.guess == Onward(number=8)
    assert not step.arrive(ballot(7, 3))
    assert step.arrived == 4
