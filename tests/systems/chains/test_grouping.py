"""Several steps of a chain in one election: the paper's m (MAKER, figure 5)."""

from __future__ import annotations

import math

import pytest

from microagents import ChainTask, Prompt, Reply, run, run_sync
from microagents.runtimes.virtual import run_virtual
from microagents.systems import Maker
from microagents.tasks.drift import Drift
from tests.cli.commands import microagents

ERRING = "sim:perfect@error=0.05,flag=0.05,alternatives=3,latency=1.0"
LENGTH = 22


@pytest.mark.parametrize("steps", [4, 30])
def test_groups_lead_to_the_result_of_single_steps(steps: int) -> None:
    result = run_sync(Drift(length=LENGTH), models="sim:perfect@error=0.05", strategy=Maker(steps=steps), runs_dir=None)
    assert (result.outcome, result.account.steps) == ("completed", math.ceil(LENGTH / steps))
    assert (result.account.errors, result.value) == (0, run_sync(Drift(length=LENGTH), models="sim:perfect").value)


@pytest.mark.slow
def test_a_group_is_right_where_all_of_its_steps_are() -> None:
    error, size, groups = 0.05, 5, 400
    strategy = Maker(k=1, steps=size, known_inputs=True)
    models = f"sim:perfect@error={error}"
    found = run_sync(Drift(length=groups * size), models=models, strategy=strategy, runs_dir=None)
    assert found.account.steps == groups
    expected = 1 - (1 - error) ** size
    assert abs((found.account.errors or 0) / groups - expected) < 3 * math.sqrt(expected * (1 - expected) / groups)


class Odd(Reply, frozen=True):
    number: int


class Odds(ChainTask[int, Odd]):
    """Counts up; a number that the state does not lead to is flagged."""

    def start(self) -> int:
        return 0

    def done(self, state: int) -> bool:
        return state == 12

    def prompt(self, state: int) -> Prompt:
        return Prompt(user=str(state))

    def advance(self, state: int, reply: Odd) -> int:  # noqa: ARG002 - a wrong one leads nowhere else
        assert state < 12, "a step behind the end"
        return state + 1

    def flag(self, state: int, reply: Odd) -> str | None:
        return None if reply.number == state + 1 else "skipped"

    def state_in(self, prompt: Prompt) -> int:
        return int(prompt.user.split("\n")[0])

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Odd:  # noqa: ARG002 - it has one kind of reply
        return Odd(number=self.state_in(prompt) + 1)


def test_one_step_that_is_flagged_flags_its_group() -> None:
    result = run_sync(Odds(), models="sim:perfect@error=0.2", strategy=Maker(k=1, steps=5), runs_dir=None)
    assert (result.outcome, result.account.steps) == ("completed", 3)
    assert set(result.account.flagged) == {"skipped"}


@pytest.mark.slow
def test_a_resumed_run_and_any_order_of_events_decide_the_same() -> None:
    task, strategy = Drift(length=LENGTH), Maker(steps=3)
    whole = run_sync(task, models=ERRING.replace("1.0", "0"), strategy=strategy, run_id="whole")
    run_sync(task, models=ERRING.replace("1.0", "0"), strategy=strategy, run_id="cut", max_calls=10)
    resumed = run_sync(task, models=ERRING.replace("1.0", "0"), strategy=strategy, run_id="cut", max_calls=1_000)
    assert resumed.account.decisions_sha256 == whole.account.decisions_sha256
    digests = {
        run_virtual(run(task, models=ERRING, strategy=strategy, runs_dir=None), seed=seed).account.ballots_sha256
        for seed in range(5)
    }
    assert len(digests) == 1


def test_show_rebuilds_and_judges_a_group() -> None:
    microagents("run", "drift", "-o", f"length={LENGTH}", "-s", "steps=4", "--run-id", "r")
    shown = microagents("show", "r", "step/5", "--json").json
    assert (len(shown["value"]["steps"]) >= 2, shown["correct"]) == (True, True)
    assert "Give the next 2 steps" in shown["user"]


def test_a_ladder_climbs_single_steps() -> None:
    with pytest.raises(ValueError, match="give steps or a ladder"):
        Maker(steps=2, ladder="judge")
