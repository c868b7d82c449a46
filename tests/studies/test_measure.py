"""Measurements of simulated models whose error rates are known. Every statistical test fixes its seed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from microagents import AgentTask, InvalidUsage, Problem, Reply, plan, run
from microagents.studies.compare import variants_of
from microagents.studies.measure import measure, measured_from
from microagents.studies.measured import RIGHT_WAY
from microagents.studies.measuring import MeasuredStep
from microagents.studies.trials import margins_of
from microagents.systems import Maker
from microagents.systems.agents.act import Act
from microagents.task import Task
from microagents.tasks.desk import Desk
from microagents.tasks.drift import Drift, Place
from microagents.tasks.hanoi import Hanoi
from microagents.tasks.multiplication import Multiplication
from tests.studies.measured import EASY, HARD, TASK, WRONG, hard_steps, made, measured, only, planted

pytestmark = pytest.mark.usefixtures("plans_by_few_simulated_steps")


class Over(Drift):
    """A chain without steps."""

    def done(self, state: Place) -> bool:  # noqa: ARG002 - a task
        """Always."""
        return True


class Unchecked(AgentTask):
    """An agent whose work code cannot judge."""

    def statement(self) -> str:
        return "Do something."


class Answer(Reply, frozen=True):
    text: str


class Essay(Problem[Answer]):
    """A problem whose answers code cannot judge."""

    def statement(self) -> str:
        return "Write something."


@pytest.mark.slow
def test_hard_steps_are_those_that_the_model_finds_hard() -> None:
    found, hard = only(HARD, steps=1_000), hard_steps(HARD, TASK)
    assert hard
    assert len(set(found.hard) - hard) <= 0.05 * len(found.hard)
    assert len(hard & set(found.hard)) >= 0.75 * len(hard)
    assert found.rates().correlation > 0.3
    independent, measured = found.chances(3).independent, found.chances(3).measured
    assert independent > 0.9
    assert measured.high < 0.01


@pytest.mark.parametrize(
    ("model", "steps", "verdict"),
    [
        pytest.param(HARD, 400, "hard-steps", marks=pytest.mark.slow),
        (WRONG, 100, "voting-hurts"),
        ("sim:perfect", 10, "too-few"),
    ],
)
def test_the_verdict_is_of_a_closed_list(model: str, steps: int, verdict: str) -> None:
    assert only(model, steps=steps).verdict()[0] == verdict


@pytest.mark.slow
@pytest.mark.usefixtures("few_simulated_steps")
def test_the_verdict_is_whether_the_right_reply_is_the_likeliest_one() -> None:
    apart, coin = [made(total=40, steps=40) for _ in range(2)]
    replies = (0,) * 8 + tuple(number for number in range(1, 11) for _ in range(1)) + (1, 2)
    steps = [MeasuredStep(at, 20, 2, replies, (True, *[False] * 10), {}) for at in range(40)]
    apart = structs.replace(apart, steps=tuple(steps))
    assert apart.p.high < 0.5
    assert apart.verdict()[0] != "voting-hurts"
    assert plan(TASK, [apart], steps=40, k=5).runs[0].chance.share > 0.01
    even = [structs.replace(each, votes=(0, 1) * 5, drawn=10, right=(True, False)) for each in steps]
    assert structs.replace(coin, steps=tuple(even)).verdict()[0] == "not-sure"


@pytest.mark.slow
def test_right_replies_that_differ_need_votes_by_meaning_and_few_samples_say_how_many_more() -> None:
    assert [made(right=kinds).verdict()[0] for kinds in (3, 2)] == ["too-many-answers", "votes-help"]
    said = "too few samples for a promise: {} more are needed, by `measure` with --steps or --repeat"
    assert made(steps=20).verdict() == ("too-few", said.format(78))
    assert made(steps=3, total=3, drawn=2).verdict() == ("too-few", said.format(24))


@pytest.mark.slow
def test_all_steps_of_a_small_task_leave_no_condition_and_a_hundred_clean_ones_three_percent_of_hard_ones() -> None:
    found = only("sim:perfect", task=Drift(length=30))
    assert found.condition(30) == "all 30 steps of the run were sampled"
    more = only("sim:perfect", steps=100)
    assert more.condition(10**6).startswith(
        "if the other 1,000,000 steps are of the kinds of the 100 that were sampled: 0"
    )
    assert more.rates(10**6).hard.high == pytest.approx(3e4, rel=0.1)


@pytest.mark.slow
def test_errors_that_change_along_the_chain_are_reported_and_a_plan_for_another_size_says_what_it_assumes() -> None:
    found = planted(lambda number: 0.001 + 0.2 * number / 300)
    assert found.trend is not None
    assert found.trend.startswith("errors change along the chain: ")
    assert found.trend not in found.condition(300)
    assumed = ": a run of another size is taken to have the same mix of positions"
    assert f"; {found.trend}{assumed}" in found.condition(3_000)
    even = planted(lambda _: 0.02)
    assert (even.trend, even.by_length) == (None, None)
    said = f"; up to {even.most_at_end:.2%} may be wrong in the last third of the chain (95 %){assumed}"
    assert said in even.condition(3_000)
    assert 0.02 < even.most_at_end < 0.08


@pytest.mark.slow
def test_errors_that_go_with_the_length_of_the_prompt_are_reported_and_longer_prompts_than_measured_are_told() -> None:
    found = planted(lambda number: 0.001 + 0.2 * (number * 7 % 300) / 300)
    assert found.by_length is None
    lengths = tuple([structs.replace(each, length=1 + each.number * 7 % 300) for each in found.steps])
    longer = structs.replace(found, steps=lengths)
    assert longer.trend is None
    assert longer.by_length is not None
    assert longer.by_length.startswith("errors change with the length of the prompt: ")
    assert [found.longer(10**6), longer.longer(320)] == [None, None]
    assert longer.longer(400) is not None

    small = only("sim:perfect", task=Hanoi(disks=3), steps=7)
    said = "prompts have up to "
    assert said not in str(plan(Hanoi(disks=3), [small], target=0.5).notes)
    assert said in str(plan(Hanoi(disks=40), [small], target=0.5, k=1).notes)


@pytest.mark.slow
@pytest.mark.parametrize(("error", "spared"), [(0.05, 0.5), pytest.param(0.6, 0.0, marks=pytest.mark.slow)])
async def test_the_calls_of_a_certified_run_are_at_most_those_that_the_probabilities_of_samples_say(
    error: float, spared: float
) -> None:
    model = f"sim:gpt-4.1-mini@error={error}"
    found = (await measure(Drift(length=300), model, steps=150)).models[0]
    assert found.certified == pytest.approx(1 - error if spared else 0.0, abs=0.05)
    fewer, voted = found.spared_of(3, 300), found.chances(3).calls
    assert (fewer > 0) == (spared > 0)
    if spared:
        certain = await run(
            Drift(length=300), models=model, strategy=Maker(certain="on", speculate=False), runs_dir=None
        )
        assert certain.calls < voted - fewer < (1 - spared) * voted
    assert made().spared_of(3, 400) == 0


@pytest.mark.slow
def test_calls_are_promised_of_the_right_way_where_a_run_probably_leaves_it() -> None:
    errs, clean = planted(lambda number: 0.95 * (number == 7), steps=60), planted(lambda _: 0.0, steps=60)
    assert errs.hard == [7]
    assert errs.promise(3, 60).condition.endswith(f"; {RIGHT_WAY}")
    assert RIGHT_WAY not in clean.promise(3, 60).condition


@pytest.mark.slow
def test_a_measurement_continues_and_more_of_it_buys_only_the_rest() -> None:
    stopped = measured(EASY, max_calls=300)
    assert (stopped.outcome, stopped.models) == ("stopped", ())
    whole, again = only(EASY), measured(EASY)
    assert again.recorded_at is not None
    assert again.models[0].steps == whole.steps == only(EASY, run_id="anew").steps
    more = only(EASY, steps=500)
    assert more.run_id == whole.run_id
    assert more.calls == more.draws, "each sample is bought once"
    assert {*map(repr, whole.steps)} < {*map(repr, more.steps)}
    drawn = only(EASY, steps=500, draws=12)
    assert (drawn.draws, drawn.calls) == (6_000, 6_000)
    assert [each.votes[:2] for each in drawn.steps] == [each.votes[:2] for each in more.steps]


@pytest.mark.slow
def test_a_rollout_that_comes_from_before_gets_a_hard_step_right() -> None:
    ahead, task = "sim:perfect@hard=0.1,hard_error=0.8,hard_ahead=0", Drift(length=60)
    (found,) = measured(ahead, task=task, draws=40, rollouts=20, horizon=4).models
    alone, first, *_ = found.lookahead
    assert len(found.lookahead) == 5
    hard = len(hard_steps(ahead, task))
    for position, rate in ((alone, 0.8), (first, 0.8)):
        assert position is not None
        assert position.share == pytest.approx(1 - rate * hard / 60, abs=0.04)
    assert max(found.ahead) < 0.4, "a hard step is wrong in .8 by itself"


@pytest.mark.slow
def test_an_agent_is_measured_by_trials_that_are_runs_with_given_margins() -> None:
    model, few = "sim:gpt-4.1-mini@error=0.25,flag=0,alternatives=1", {f"k_{kind}": 1 for kind in margins_of(Act())}
    (alone,), (found,) = [measured(model, task=Desk(), steps=12, options=each).agents for each in (few, {})]
    for each, options in ((alone, few), (found, {})):
        act = Act.model_validate(options)
        done = asyncio.run(run(variants_of(Desk(), 12), models=model, strategy=act, runs_dir=None))
        right = sum(bool(value and value["correct"]) for value in done.value)
        assert (each.succeeded, each.calls) == (right, done.calls)
    assert alone.succeeded < found.succeeded
    assert alone.unseen == alone.trials - alone.succeeded, "no other vote dissents from a single one"
    assert measured_from(Path("runs"), found.run_id, Desk()) == found
    planned = plan(Desk(), [found, alone])
    assert planned.unit == "trial"
    assert planned.runs[0].options == {"k_read": "1", "k_write": "2", "k_destructive": "4", "k_end": "3"}
    assert [each.chance for each in planned.runs] == [found.success, alone.success]
    assert "only 73 trials or more can tell 0.95: microagents measure TASK --steps 73" in planned.notes[found.models]
    with pytest.raises(InvalidUsage, match="so k_read cannot be planned; measure with others"):
        plan(Desk(), [found], options={"k_read": 2})
    with pytest.raises(InvalidUsage, match="voted on as in a run; leave out --repeat"):
        measured(model, task=Desk(), draws=5)
    with pytest.raises(InvalidUsage, match="for the trials of an agent, and the horizon for --rollouts N"):
        measured(model, options={"k_read": 2})
    with pytest.raises(InvalidUsage, match="has no method `check`"):
        measured(model, task=Unchecked())


@pytest.mark.slow
def test_an_answer_to_a_problem_is_a_step_that_its_check_judges() -> None:
    problems = [Multiplication(digits=1, by=1, instance=number) for number in range(150)]
    model = "sim:gpt-4.1-mini@error=0.1,flag=0,alternatives=1"
    report = measured(model, task=problems, steps=100)
    (found,) = report.models
    assert (found.total, len(found.steps), report.source) == (150, 100, "150 inputs, each one step")
    assert set(found.mistakes) == {"answer"}
    few = {each.number for each in only(model, task=problems, steps=30).steps}
    assert few < {each.number for each in found.steps}
    planned = plan(problems[0], report, target=0.9)
    assert (planned.unit, planned.steps) == ("input", 1)
    assert planned.best is not None
    done = asyncio.run(run(problems, models=model, strategy="maker", k=3, measurement=found, runs_dir=None))
    assert done.account.promise is not None
    assert done.account.promise.calls * 150 == pytest.approx(done.calls, rel=0.1)


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ([Drift(length=1), Drift(length=2)], "input 1 of Drift is not one step"),
        ([Essay()], "Essay has no method `correct`, so its answers cannot be judged"),
        ([], "there are no inputs"),
    ],
)
def test_inputs_that_are_not_one_judged_question_are_refused(tasks: list[Task], said: str) -> None:
    with pytest.raises(InvalidUsage, match=said):
        measured("sim:perfect", task=tasks)


@pytest.mark.parametrize(
    ("models", "task", "options", "said"),
    [
        ([], TASK, {}, "a measurement needs at least one model"),
        (["sim:perfect"], TASK, {"draws": 1}, "draws must be"),
        (["sim:perfect"], Multiplication(), {"rollouts": 1}, "rollouts belong to one chain of steps"),
        (["sim:perfect"], Over(length=3), {}, "Over is done before its first step, so there is nothing to measure"),
        (["sim:perfect@flag=1"], TASK, {"steps": 4, "draws": 2}, "gave no valid reply to 4 steps"),
    ],
)
def test_what_cannot_be_measured_is_refused(models: list[str], task: Any, options: Any, said: str) -> None:
    with pytest.raises(InvalidUsage, match=said):
        assert measured(*models, task=task, **options).models[0].p.share
