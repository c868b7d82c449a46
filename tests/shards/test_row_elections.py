"""Batches of rows by runs that share decided replies and one cap."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from microagents.journal.messages import Account
from microagents.runs.inspection.runs import inspect_run
from microagents.shards.capped_sittings import CAP
from microagents.shards.file_locks import locked
from microagents.shards.row_elections import RowElections
from microagents.shards.shared_cap import SharedCap
from tests.shards.towns import SPEC, Towns, asked


def elections(output: Path, latency_s: float = 0.0, **given: Any) -> RowElections:
    return RowElections(Towns, f"{SPEC.format(log=output / 'log')},latency={latency_s}", output, {"k": 2, **given})


def rows(first: int, number: int) -> list[dict[str, str]]:
    return [{"town": f"town {each}", "id": f"row {each}"} for each in range(first, first + number)]


def test_a_decided_question_is_asked_in_no_later_batch_however_it_is_cut(tmp_path: Path) -> None:
    found = elections(tmp_path).decide(rows(0, 6) + rows(0, 2))
    assert [each.state for each in found] == ["decided"] * 8
    assert found[:2] == found[6:]
    calls = asked(tmp_path / "log")
    again = elections(tmp_path).decide(rows(3, 6))
    assert again[:3] == found[3:6]
    assert {*asked(tmp_path / "log")[len(calls) :]} == {f"Which town is town {each}?" for each in (6, 7, 8)}


def test_rows_without_a_decision_say_why_and_stop_no_other(tmp_path: Path) -> None:
    given = [{"town": "town 1"}, {"town": "atlantis"}, {"town": "utopia"}, {"city": "nowhere"}]
    states = [(each.state, each.why is None) for each in elections(tmp_path, max_draws=6).decide(given)]
    assert states == [("decided", True), ("flagged", False), ("undecided", False), ("failed", False)]


def test_the_replies_of_a_dead_run_are_read_from_its_journal(tmp_path: Path) -> None:
    found = elections(tmp_path).decide(rows(0, 4))
    (replies,) = tmp_path.glob("*/*.replies")
    replies.unlink()  # as if its process had been killed at the end
    calls = len(asked(tmp_path / "log"))
    assert elections(tmp_path).decide(rows(1, 3)) == found[1:]
    assert len(asked(tmp_path / "log")) == calls


@pytest.mark.parametrize("written", [b"no msgpack", msgspec.msgpack.encode([(b"1" * 12, "{no JSON")])])
def test_a_damaged_file_of_replies_ends_no_job(written: bytes, tmp_path: Path) -> None:
    found = elections(tmp_path).decide(rows(0, 2))
    (replies,) = tmp_path.glob("*/*.replies")
    replies.write_bytes(written)
    assert elections(tmp_path).decide(rows(0, 2)) == found  # by its journal
    assert replies.parent.stat().st_mode & 0o077 == 0


def test_another_rule_shares_no_reply(tmp_path: Path) -> None:
    elections(tmp_path).decide(rows(0, 2))
    calls = len(asked(tmp_path / "log"))
    elections(tmp_path, k=3).decide(rows(0, 2))
    assert len(asked(tmp_path / "log")) >= calls + 6


def test_one_cap_bounds_all_runs_and_a_higher_one_continues_them(tmp_path: Path) -> None:
    first = elections(tmp_path, max_calls=20).decide(rows(0, 4))
    second = elections(tmp_path, max_calls=20).decide(rows(4, 20))
    assert len(asked(tmp_path / "log")) <= 20
    assert {each.state for each in first} == {"decided"}
    assert {(each.state, each.why) for each in second} >= {
        ("not done", "--max-calls 20 is reached over all runs that share it")
    }
    calls = len(asked(tmp_path / "log"))
    assert {each.state for each in elections(tmp_path, max_cost_usd=1.0).decide(rows(4, 20))} == {"decided"}
    assert asked(tmp_path / "log")[:calls] == asked(tmp_path / "log")[:20]


def test_a_shared_cap_is_named_by_all_its_digits(tmp_path: Path) -> None:
    cap = SharedCap(tmp_path / CAP, max_calls=1_234_567, max_cost_usd=0.5)
    reached = cap.reached("max_calls")
    assert str(reached.reason).startswith("--max-calls 1234567 is reached over all runs")


def test_marks_never_pass_the_cap_and_come_back_once_a_run_is_settled(tmp_path: Path) -> None:
    cap = SharedCap(tmp_path / CAP, max_calls=80, max_cost_usd=0.5)
    assert cap.take("a", Account()).limits["max_calls"] == 80
    assert cap.take("b", Account()).limits == {}  # nothing is free
    cap.settle("a", Account(calls=10))
    part = cap.take("b", Account())
    assert (part.limits["max_calls"], part.is_last) == (70, True)
    cap.settle("b", Account())
    third = SharedCap(tmp_path / CAP, max_calls=80, max_cost_usd=0.5).take("c", Account(calls=30))
    assert third.limits["max_calls"] == 70  # 10 of a are used, so c, which has used 30, may use 40 more


def test_the_part_of_a_dead_run_is_given_back_when_nothing_else_is_free(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    SharedCap(tmp_path / CAP, max_calls=40, max_cost_usd=None).take("folder/rows-of-a-dead-process", Account())
    found = elections(tmp_path, max_calls=40).decide(rows(0, 4))
    assert {each.state for each in found} == {"decided"}


def test_a_second_attempt_waits_for_the_first_and_asks_nothing(tmp_path: Path) -> None:
    given, found = rows(0, 4), list[Any]()

    def attempt() -> None:
        found.append(elections(tmp_path, latency_s=0.05).decide(given))

    attempts = [threading.Thread(target=attempt) for _ in range(2)]
    for each in attempts:
        each.start()
    for each in attempts:
        each.join()
    assert found[0] == found[1]
    assert {each.state for each in found[0]} == {"decided"}
    (journal,) = tmp_path.glob("*/*.sqlite")
    run = inspect_run(journal.parent, journal.stem)
    assert run.account.calls == len(asked(tmp_path / "log"))


def test_a_lock_ends_with_its_file_and_is_taken_by_one(tmp_path: Path) -> None:
    with locked(tmp_path / "a.lock"), locked(tmp_path / "a.lock", waits=False) as is_free:
        assert not is_free
    assert [*tmp_path.iterdir()] == []
    with locked(tmp_path / "a.lock", waits=False) as is_free:
        assert is_free
