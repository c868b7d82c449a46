"""Plans of tables: votes held on a pilot of rows beside the law of votes by field. Every statistical test fixes its seed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from microagents import InvalidUsage, RowTask
from microagents.studies.measure import measure
from microagents.studies.measured import ModelMeasurement
from microagents.studies.row_plans import PlannedTable, plan_rows
from microagents.tasks.hanoi import Hanoi
from tests.benchmarks.fields import ErrsByField, Setting, judged_task_of


def table_of(fields: int, rows: int) -> list[RowTask[Any]]:
    return judged_task_of(fields).rows([{"number": number} for number in range(rows)])


def measured(setting: Setting, tmp_path: Path, *, rows: int = 60, draws: int = 10, **given: Any) -> ModelMeasurement:
    tasks = table_of(setting.fields, rows)
    report = asyncio.run(measure(tasks, ErrsByField(setting), runs_dir=tmp_path, draws=draws, **given))
    (found,) = report.models
    return found


def planned(found: ModelMeasurement, rows: int = 60, **given: Any) -> PlannedTable:
    return plan_rows(table_of(len(found.fields), rows), found, **given)


@pytest.mark.slow
def test_a_pilot_holds_votes_on_rows_with_samples_of_their_own(tmp_path: Path) -> None:
    found = measured(Setting(fields=4, right=0.8, rivals=1), tmp_path, pilot=30)
    assert found.pilot is not None
    assert (found.pilot.rows, found.pilot.k) == (30, 3)
    assert found.calls == 60 * 10 + round(30 * found.pilot.calls.mid)
    assert not found.law_is_off


@pytest.mark.slow
def test_a_table_is_planned_in_fields_and_rows_and_equal_rows_count_once(tmp_path: Path) -> None:
    found = structs.replace(measured(Setting(fields=4, right=0.9, rivals=1), tmp_path), cost_usd=6.0)
    twice = [*table_of(4, 60), *table_of(4, 20)]
    plan = plan_rows(twice, found, k=3)
    assert (plan.rows, plan.asked, plan.fields) == (80, 60, 4)
    law, held = plan.votes
    assert (law.votes.rows, held.votes.rows) == (0, 20)
    assert held.calls == pytest.approx(60 * held.votes.calls.mid)
    assert held.row_usd is not None
    assert held.cost_usd == pytest.approx(60 * held.row_usd)
    assert law.votes.right is not None
    assert law.votes.fields is not None
    assert law.votes.fields.share**4 == pytest.approx(law.votes.right.share)


@pytest.mark.slow
def test_a_pilot_shows_that_the_law_is_off_where_samples_read_another_entity(tmp_path: Path) -> None:
    found = measured(Setting(fields=8, right=0.97, rivals=4, other_entity=0.3), tmp_path, rows=600, draws=2, pilot=60)
    plan = planned(found, k=3)
    law, held = plan.votes
    assert law.votes.calls.low > held.votes.calls.high
    assert "the law is off here" in " ".join(plan.notes)
    assert plan.best is None


@pytest.mark.slow
def test_votes_are_surely_enough_only_by_a_large_pilot_else_by_the_law(tmp_path: Path) -> None:
    setting = Setting(fields=3, right=0.95, rivals=1)
    few = planned(measured(setting, tmp_path, rows=100, pilot=10), 100)
    assert few.best is not None
    assert (few.best.votes.rows, few.is_sure) == (0, False)
    many = planned(measured(setting, tmp_path, rows=100, pilot=100), 100)
    assert many.best is not None
    assert (many.best.votes.rows, many.is_sure) == (100, True)
    assert planned(measured(setting, tmp_path, rows=100, pilot=100), 100, max_cost_usd=1.0).best is None


def test_without_an_oracle_calls_and_open_rows_are_those_of_the_pilot(tmp_path: Path) -> None:
    found = measured(Setting(fields=4, right=0.9, rivals=1), tmp_path)
    blind = structs.replace(found, steps=tuple([structs.replace(each, right=None) for each in found.steps]))
    (held,) = plan_rows(table_of(4, 60), blind).votes
    assert held.votes.right is None
    assert found.pilot is not None
    assert held.votes.calls == found.pilot.calls


@pytest.mark.slow
def test_a_run_is_promised_the_votes_that_were_held_else_those_of_the_law(tmp_path: Path) -> None:
    found = measured(Setting(fields=4, right=0.9, rivals=1), tmp_path)
    assert found.pilot is not None
    assert (found.promise(3, 1).calls, found.promise(3, 1).condition) == (
        found.pilot.calls.mid,
        "as votes on 20 rows were held",
    )
    by_law = found.law(2)
    assert by_law is not None
    assert found.promise(2, 1).calls == by_law.calls.mid


@pytest.mark.parametrize(
    ("fields", "changed", "said"),
    [
        (3, {}, "is of votes on field0, field1, field2, field3, and here they are on field0"),
        (4, {"held": None, "right": None}, "has neither an oracle nor a pilot"),
    ],
)
def test_a_measurement_of_something_else_is_refused(
    tmp_path: Path, fields: int, changed: dict[str, Any], said: str
) -> None:
    found = measured(Setting(fields=4, right=0.9, rivals=1), tmp_path, rows=10)
    other = structs.replace(found, steps=tuple([structs.replace(each, **changed) for each in found.steps]))
    with pytest.raises(InvalidUsage, match=said):
        plan_rows(table_of(fields, 10), other)


@pytest.mark.slow
def test_a_row_that_cannot_be_asked_fails_in_the_run_and_stops_no_plan(tmp_path: Path) -> None:
    found = measured(Setting(fields=2, right=0.9, rivals=1), tmp_path, rows=10)
    good = table_of(2, 10)
    plan = plan_rows([*good, *type(good[0]).rows([{"text": "without a number"}])], found)
    assert (plan.rows, plan.notes) == (11, plan_rows(good, found).notes)


def test_only_rows_have_a_plan_of_many_inputs_or_a_pilot(tmp_path: Path) -> None:
    found = measured(Setting(fields=2, right=0.9, rivals=1), tmp_path, rows=4, draws=2)
    with pytest.raises(InvalidUsage, match="is for a RowTask, unlike Hanoi"):
        plan_rows([Hanoi()], found)
    with pytest.raises(InvalidUsage, match="a pilot and its k are for the rows of a table"):
        asyncio.run(measure(Hanoi(), "sim:perfect", pilot=3))
