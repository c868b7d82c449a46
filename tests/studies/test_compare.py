"""Strategies compared from Python: what a row is, what counts as solved, what limits hold for, and how a comparison goes on."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from microagents import Call, InvalidUsage, MicroagentsError, Problem, Reply, Strategy, compare, run_sync
from microagents.elections.laws import wilson_interval
from microagents.journal.messages import Account
from microagents.journal.sharded import reader_of
from microagents.replies.chat import Prompt
from microagents.replies.reply_forms import write
from microagents.runs.inspection.runs import recorded_result
from microagents.studies.comparison import Comparison, row_of
from microagents.systems.chains.single_shot import SingleShot
from microagents.systems.questions.questions import ToSolve, asked_in
from microagents.systems.questions.recursive import Recursive
from microagents.tasks.drift import Drift
from microagents.tasks.hanoi import Hanoi
from microagents.tasks.multiplication import Multiplication
from microagents.tasks.reasoning import MultiHop, ShortAnswer

MODEL = "sim:gpt-4.1-mini"
SMALL = Multiplication(digits=3)
THREE = ("single-shot", "self-consistency", "recursive")
CHEAP = ("single-shot", "self-consistency")
FIVE = {"samples": 5}
"""Self-consistency takes five calls then, single-shot one."""


class Word(Reply, frozen=True):
    word: str


class Riddle(Problem[Word]):
    """No code can tell whether an answer is right."""

    def statement(self) -> str:
        return "What is it?"

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Word:  # noqa: ARG002 - it has one kind of reply
        assert isinstance(asked_in(prompt), ToSolve)
        return Word(word="nothing")


class Easy(Multiplication):
    """The simulated model errs as its own profile says."""

    def difficulty(self, prompt: Prompt, reply: type[Reply]) -> None:  # type: ignore[override]
        """That of the model's profile."""


def compared(task: Any = SMALL, **options: Any) -> Comparison:
    return asyncio.run(compare(task, **{"models": MODEL, "strategies": THREE, "repeat": 8, **options}))


# -- rows --------------------------------------------------------------------------------------------------------------------------------


def test_there_is_a_row_for_each_strategy_and_each_k_that_it_can_have_in_the_order_given() -> None:
    given = ["recursive", "single-shot", Recursive(depth=1), "recursive"]
    rows = compared(strategies=given, k=[2, 1, 2], repeat=1).rows
    assert [(row.strategy, row.k, row.options.get("depth")) for row in rows] == [
        ("recursive", 2, 5),
        ("recursive", 1, 5),
        ("single-shot", None, None),
        ("recursive", 2, 1),
        ("recursive", 1, 1),
    ]
    assert len({row.run_id for row in rows}) == 5


@pytest.mark.slow
def test_all_rows_solve_the_same_problems() -> None:
    seen = []
    for row in compared(k=[1, 2], repeat=5).rows:
        with reader_of(Path("runs"), row.run_id) as reader:
            seen.append([options["instance"] for options in reader.options()])
    assert seen == [[0, 1, 2, 3, 4]] * 4


# -- what is solved --------------------------------------------------------------------------------------------------------------------


def test_an_input_that_is_undecided_is_unsolved_and_stops_nothing() -> None:
    """A single reply that is flagged leaves nothing to take; all others are right."""
    comparison = compared(
        Easy(digits=1), models="sim:perfect@flag=0.3", strategies=["single-shot", "recursive"], repeat=20
    )
    first, second = comparison.rows
    assert (comparison.outcome, first.outcome, second.outcome, second.solved) == (
        "completed",
        "undecided",
        "completed",
        20,
    )
    assert first.solved == first.completed == 20 - first.undecided
    assert 0 < first.undecided < 20
    assert first.rate == first.completed / 20


def test_where_code_cannot_tell_nothing_is_said_of_solved() -> None:
    (row,) = compared(Riddle(), models="sim:perfect", strategies=["single-shot"], repeat=3).rows
    assert (row.solved, row.rate, row.low, row.high) == (None, None, None, None)
    assert (row.completed, row.calls_per_input, row.argmax) == (3, 1.0, 0)


def test_a_chain_is_solved_if_its_result_says_so() -> None:
    (row,) = compared(Hanoi(disks=3), strategies=(), repeat=4, models="sim:perfect").rows
    assert (row.strategy, row.k, row.solved, row.argmax) == ("maker", 3, 4, None)


@pytest.mark.slow
def test_a_chain_whose_result_does_not_tell_is_solved_where_none_of_its_decisions_is_wrong() -> None:
    right, wrong = compared(
        Drift(length=9), strategies=["maker"], k=[5, 1], models="sim:perfect@error=0.1,alternatives=9"
    ).rows
    assert (right.solved, right.completed) == (8, 8)
    with reader_of(Path("runs"), wrong.run_id) as reader:
        ends = [value["number"] for value in recorded_result(reader).recorded]
    right_end = run_sync(Drift(length=9), models="sim:perfect").value.number
    assert (wrong.solved, wrong.completed) == (ends.count(right_end), 8)
    assert 0 < ends.count(right_end) < 8
    assert wrong.rate == ends.count(right_end) / 8


def test_of_a_row_that_has_not_ended_nothing_is_said_per_input_and_an_unknown_cost_is_not_zero() -> None:
    result = run_sync([SMALL, SMALL], models=MODEL, strategy="single-shot", runs_dir=None)
    cut = Account(inputs=2, inputs_done=1, calls=1)
    part = structs.replace(result, outcome="interrupted", recorded=[result.value[0], None], account=cut)
    row = row_of(SingleShot(), "", part, [SMALL, SMALL])
    assert (row.completed, row.repeat, row.calls) == (1, 2, 1)
    assert (row.rate, row.low, row.high, row.calls_per_input, row.cost_per_input) == (None,) * 5
    unpriced = structs.replace(result, account=structs.replace(result.account, cost_usd=None))
    row = row_of(SingleShot(), "", unpriced, [SMALL, SMALL])
    assert (row.cost_usd, row.cost_per_input, row.calls_per_input) == (None, None, 1.0)


# -- going on ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [{"seed": 1}, {"models": "sim:perfect"}, {"on_undecided": "leader"}],
    ids=lambda each: next(iter(each)),
)
def test_whatever_would_change_the_results_makes_another_comparison(changed: dict[str, Any]) -> None:
    usual = {"strategies": ["single-shot"], "repeat": 3}
    first, other = compared(**usual), compared(**{**usual, **changed})
    assert other.rows[0].run_id.startswith("compare-multiplication-")
    assert other.rows[0].run_id != first.rows[0].run_id


def test_the_name_of_a_row_says_what_it_is() -> None:
    plain, unusual = compared(strategies=[Recursive(), Recursive(max_draws=50)], repeat=1, k=[3], run_id="mine").rows
    assert plain.run_id == "mine-recursive-k3"
    assert unusual.run_id.startswith("mine-recursive-k3-")


def test_a_name_that_another_comparison_has_is_refused_before_anything_is_done() -> None:
    compared(strategies=["self-consistency"], repeat=2, run_id="mine")
    before = {path: path.read_bytes() for path in Path("runs").iterdir()}
    with pytest.raises(InvalidUsage, match="this run was started with seed=0, now it is 1") as refused:
        compared(strategies=CHEAP, repeat=2, run_id="mine", seed=1)
    assert "give another --run-id" in str(refused.value)
    assert {path: path.read_bytes() for path in Path("runs").iterdir()} == before


def test_an_interrupt_before_a_row_begins_none() -> None:
    interrupt = asyncio.Event()
    interrupt.set()
    comparison = compared(interrupt=interrupt)
    assert (comparison.outcome, comparison.rows) == ("interrupted", ())
    assert not Path("runs").exists()


# -- limits ------------------------------------------------------------------------------------------------------------------------------


def limited(**limits: Any) -> Comparison:
    return compared(strategies=CHEAP, options=FIVE, repeat=10, concurrency=1, **limits)


def test_a_row_is_not_begun_where_the_others_have_used_up_the_limit() -> None:
    comparison = limited(max_calls=10)
    assert (comparison.outcome, comparison.reason) == (
        "stopped",
        "--max-calls 10 is reached before self-consistency (row 2 of 2)",
    )
    assert len(comparison.rows) == 1


@pytest.mark.slow
def test_a_limit_of_cost_holds_for_all_rows_together() -> None:
    costs = [row.cost_usd or 0.0 for row in limited(runs_dir="whole").rows]
    part = limited(max_cost_usd=costs[0] + costs[1] / 2)
    assert (part.outcome, part.rows[0].outcome, part.rows[1].outcome) == ("stopped", "completed", "stopped")
    assert str(part.reason).endswith("is reached in self-consistency (row 2 of 2)")
    assert 0 < (part.rows[1].cost_usd or 0.0) <= costs[1] / 2


def test_a_limit_of_time_holds_for_all_rows_together() -> None:
    comparison = limited(max_time_s=1e-9)
    assert (comparison.outcome, comparison.reason) == (
        "stopped",
        "--max-time 1e-09 is reached before single-shot (row 1 of 2)",
    )


# -- what is refused ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"repeat": -3}, "repeat must be at least 1, not -3"),
        (
            {"strategies": ["single-shot"], "k": [2]},
            "no option of the compared strategies named 'k'; known: votes, certain, temperature",
        ),
        ({"strategies": ["recursiv"]}, "there is no strategy 'recursiv'; did you mean 'recursive'"),
        ({"strategies": ["single-shot", "sequential"]}, "sequential solves documents, and multiplication is a problem"),
        ({"options": {"samples": 0}}, "samples must be .*, not 0"),
        ({"models": []}, "names no model"),
        ({"max_calls": 0}, "max_calls .*must be .*, not 0"),
        ({"address": "auto"}, "add --runtime ray"),
    ],
    ids=str,
)
def test_what_cannot_be_compared_is_refused_before_anything_is_done(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidUsage, match=said):
        compared(**options)
    assert not Path("runs").exists()


def test_what_ends_a_run_names_the_row_that_it_ended() -> None:
    class Unprepared(SingleShot):
        def deployments(self) -> list[Any]:
            return []

    strategies: Sequence[Strategy] = [SingleShot(), Unprepared()]
    with pytest.raises(MicroagentsError) as ended:
        compared(strategies=strategies, repeat=2)
    assert (
        "this happened in Unprepared (row 2 of 2); the results of the runs before it are kept" in ended.value.__notes__
    )
    assert len(compared(strategies=strategies[:1], repeat=2).rows) == 1


def test_a_list_of_tasks_is_compared_as_it_is_and_has_a_comparison_of_its_own() -> None:
    problems = [Multiplication(digits=2), Multiplication(a=12, b=34), Multiplication(digits=3)]
    found = compared(problems, repeat=None, models="sim:perfect", strategies=("single-shot", "maker"))
    assert [(row.strategy, row.repeat, row.completed) for row in found.rows] == [("single-shot", 3, 3), ("maker", 3, 3)]
    assert (found.repeat, found.options) == (3, {"by": None, "instance": 0})
    with reader_of(Path("runs"), found.rows[0].run_id) as reader:
        assert [Multiplication(**each) for each in reader.options()] == problems


def test_a_row_has_the_mean_f1_where_the_task_has_one_and_an_input_without_an_answer_counts_as_nothing() -> None:
    async def says(call: Call) -> str:
        return "?" if call.id.election.input == 2 else write(ShortAnswer(answer="the old water mill"), "json")

    tasks = [
        MultiHop(question="Where?", answers=(right,), least_f1=0.5)
        for right in ("the old mill", "the old water mill", "a mill")
    ]
    comparison = compared(tasks, models=says, strategies=["single-shot"], repeat=None)
    (row,) = comparison.rows
    assert row.solved == 2
    assert row.f1 == pytest.approx((0.8 + 1 + 0) / 3)
    assert compared(SMALL, strategies=["single-shot"]).rows[0].f1 is None


# -- trials ------------------------------------------------------------------------------------------------------------------------------


def test_inputs_that_are_done_several_times_tell_the_chance_that_all_of_k_trials_succeed() -> None:
    (row,) = compared([SMALL.variant(number) for number in range(6)], strategies=["single-shot"], repeat=4).rows
    alone = run_sync(
        [SMALL.variant(number) for number in range(6) for _ in range(4)],
        models=MODEL,
        strategy="single-shot",
        runs_dir=None,
    )
    right = [sum(each["correct"] for each in alone.value[at : at + 4]) for at in range(0, 24, 4)]
    assert 0 < sum(right) < 24
    assert [*row.pass_k] == [2, 4]
    twice, four_times = row.pass_k.values()
    assert twice.share == pytest.approx(sum(math.comb(each, 2) / 6 for each in right) / 6)
    assert four_times.share == right.count(4) / 6
    assert (four_times.low, four_times.high) == wilson_interval(right.count(4), 6)
