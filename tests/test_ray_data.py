"""Elected columns of datasets of Ray Data: types stay, no row ends the job, and deaths of actors buy nothing twice."""

from __future__ import annotations

import datetime as dt
import os
import signal
import threading
from collections import Counter
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from microagents import InvalidUsage, Prompt, Reply, RowTask
from microagents.ray_data import Elected, elect
from tests.benchmarks.harness import until
from tests.shards.towns import SPEC, Towns, asked

pa = pytest.importorskip("pyarrow", reason="the extra `data` is not installed")


pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of Ray Data itself


class Fact(Reply, frozen=True):
    when: dt.date
    tags: tuple[str, ...]
    share: float | None
    number: int


class Facts(RowTask[Fact]):
    def prompt(self, row: dict[str, Any]) -> Prompt:
        return Prompt(user=f"{row['number']}")

    def expert(self, prompt: Prompt, _: type[Reply]) -> Fact:
        return Fact(when=dt.date(2026, 1, 2), tags=("a", "b"), share=None, number=10 ** int(prompt.user))


def test_columns_are_appended_and_those_that_are_there_keep_their_types(tmp_path: Path) -> None:
    given = pa.table(
        {
            "number": pa.array([3, 30], pa.int8()),
            "price": pa.array([Decimal("1.50"), None], pa.decimal128(8, 2)),
            "raw": [b"\xff", b""],
        }
    )
    elected = Elected(Facts, models="sim:gpt-4.1-mini@error=0,flag=0", output=str(tmp_path), columns=["number"], k=1)
    found = elected(given)
    assert found.select(given.column_names).equals(given)
    own = found.select(found.column_names[3:])
    kinds = {"state": pa.string(), "why": pa.string(), "when": pa.date32(), "tags": pa.string(), "share": pa.float64()}
    assert dict(zip(own.column_names, own.schema.types, strict=True)) == {**kinds, "number_reply": pa.int64()}
    first, second = own.to_pylist()
    assert first["when"] == dt.date(2026, 1, 2)
    assert (first["tags"], first["number_reply"], first["why"]) == ('["a","b"]', 1000, None)
    assert (second["number_reply"], second["why"]) == (None, "number: more than 64 bits; the journal has the number")
    assert elected(given.slice(0, 0)).schema == found.schema


@pytest.mark.usefixtures("ray_here")
@pytest.mark.parametrize(
    ("task", "given", "said"),
    [
        (Towns, {"columns": ["twon"]}, "did you mean 'town'?"),
        (Towns, {"columns": "town"}, "elect takes a dataset of Ray Data, such as"),
        (Towns, {"columns": ["id"]}, "Towns.prompt needs a column 'town', and gets id"),
        (Towns, {"models": "nowhere:gpt"}, "nowhere"),
        (Towns, {"output": "s3://bucket/towns"}, "a folder that all nodes see"),
        (Towns, {"max_time_s": 5.0}, "elect takes no max_time_s"),
        (Path, {}, "is not a class of RowTask"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_starts(
    task: Any, given: dict[str, Any], said: str, tmp_path: Path
) -> None:
    import ray.data  # noqa: PLC0415

    dataset = ray.data.from_items([{"town": "rome", "id": 1}])
    arguments: dict[str, Any] = {"models": SPEC.format(log=tmp_path / "log"), "output": tmp_path / "out", **given}
    with pytest.raises(InvalidUsage) as refused:
        elect(dataset, task, **arguments)
    assert said in str(refused.value)
    assert not (tmp_path / "log").exists()


def test_a_reply_of_the_main_program_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fact, "__module__", "__main__")
    with pytest.raises(InvalidUsage, match="Fact is defined in the program that was started"):
        elect(None, Facts, models="sim:gpt-4.1-mini", output=tmp_path)


def without_why(row: dict[str, Any]) -> dict[str, Any]:
    """A row without its reason, which names its run."""
    return {name: value for name, value in row.items() if name not in ("why", "id")}


@pytest.mark.usefixtures("ray_here")
@pytest.mark.timeout(200)
def test_killed_actors_change_no_reply_pass_no_cap_and_buy_little_again(tmp_path: Path) -> None:
    import ray.data  # noqa: PLC0415

    towns = ["town 0", "atlantis", *[f"town {number * 3 // 4}" for number in range(398)]]
    table = pa.table({"id": range(400), "town": towns})
    alone = Elected(Towns, models=SPEC.format(log=tmp_path / "log of one"), output=str(tmp_path / "one"), k=2)
    expected = alone(table).to_pylist()
    log = tmp_path / "log"
    undisturbed = len(asked(tmp_path / "log of one"))
    found = elect(
        ray.data.from_arrow(table).repartition(4),
        Towns,
        models=f"{SPEC.format(log=log.name)},latency=0.2",
        output=tmp_path / "out",
        columns=["town"],
        batch_size=50,
        num_cpus=0.5,
        k=2,
        concurrency=20,
        max_calls=undisturbed + 150,
    )
    killed = list[int]()

    def has_asked(calls: int) -> bool:
        return len(asked(log)) > calls

    def kill_two() -> None:
        for calls in (150, 400):
            until(partial(has_asked, calls), f"{calls} calls")
            killed.append(int(log.read_text().splitlines()[-1].split()[0]))
            os.kill(killed[-1], signal.SIGKILL)

    killer = threading.Thread(target=kill_two)
    killer.start()
    rows = found.take_all()
    killer.join()
    assert len(killed) == 2
    assert [row.pop("id") for row in rows] == list(range(400))
    assert [without_why(row) for row in rows] == [without_why(row) for row in expected]
    assert Counter(row["state"] for row in rows) == {"decided": 399, "flagged": 1}
    most = 2 * 40 + 30  # in flight or not committed at a kill, and rows alike in two batches at once
    assert len(asked(log)) <= undisturbed + most
    calls = len(asked(log))
    assert [without_why(row) for row in found.take_all()] == [without_why(row) for row in rows]  # another execution
    assert len(asked(log)) - calls <= 20  # of the flagged row alone
