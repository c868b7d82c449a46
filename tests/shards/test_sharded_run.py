"""A run in shards: what it decides and shows is what one process decides and shows, whoever dies meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from msgspec import structs

from microagents import InvalidUsage, Result, resume, run_sync
from microagents.base.errors import PeerLost
from microagents.cli.commands import view
from microagents.journal import sitting
from microagents.journal.seals import broken_seals, seal
from microagents.journal.sharded import reader_of, shard_journal
from microagents.runs.inspection.decision import inspect_decision
from microagents.runs.inspection.runs import decide, inspect_run
from microagents.shards import sharded_run
from microagents.shards.one_shard import ShardEnding, do_shard
from microagents.studies.audits import drawn
from tests.cli.commands import microagents
from tests.shards.towns import SPEC, Seller, Towns, asked


class InTurns:
    """Does shards in this process, one at a time; the first ones die before they begin."""

    def __init__(self, deaths: int = 0) -> None:
        self._ended = threading.Event()
        self._deaths = deaths
        self._turn = asyncio.Lock()

    async def do(self, whole: Path, shard: int) -> ShardEnding:
        self._deaths -= 1
        if self._deaths >= 0:
            raise PeerLost(f"shard {shard}", "its process was killed")
        async with self._turn:
            return await asyncio.to_thread(do_shard, whole, shard, self._ended)

    def interrupt(self) -> None:
        self._ended.set()


def towns(number: int, *, equal: int = 0) -> list[Towns]:
    return Towns.rows([{"town": f"town {each % (number - equal)}", "id": str(each)} for each in range(number)])


def sharded(tasks: Any, folder: Path, shards: int, pool: InTurns | None = None, **given: Any) -> Result[Any]:
    named: Any = {"k": 2, "run_id": "whole", "runs_dir": folder, **given}
    with patch.object(sharded_run, "ShardProcesses", lambda: pool or InTurns()):
        return run_sync(tasks, models=SPEC.format(log=folder / "log"), shards=shards, **named)


def again(folder: Path, **given: Any) -> Result[Any]:
    with patch.object(sharded_run, "ShardProcesses", InTurns):
        return asyncio.run(resume("whole", runs_dir=folder, **given))


def alone(tasks: Sequence[Towns], folder: Path, **given: Any) -> Result[Any]:
    return run_sync(tasks, models=SPEC.format(log=folder / "log"), k=2, run_id="one", runs_dir=folder, **given)


def decided(result: Result[Any]) -> tuple[str, list[Any]]:
    return result.account.decisions_sha256, list(result.rows(as_json=True))


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("shards", [3, 1])
def test_shards_decide_and_write_as_one_process(shards: int, tmp_path: Path) -> None:
    one = alone(towns(12, equal=4), tmp_path, output=tmp_path / "one.csv")
    folder = tmp_path / "shards"
    folder.mkdir()
    found = sharded(towns(12, equal=4), folder, shards, output=folder / "out.csv")
    assert decided(found) == decided(one)
    assert found.account.shared == 4
    assert (folder / "out.csv").read_bytes() == (tmp_path / "one.csv").read_bytes()
    assert len(asked(folder / "log")) == found.calls == one.calls


def test_a_run_in_shards_is_shown_as_one_by_its_journal(tmp_path: Path) -> None:
    found = sharded(towns(8), tmp_path, 2)
    shown = inspect_run(tmp_path, "whole")
    assert shown.as_json() == found.as_json()
    assert [each.path for each in shown.decisions()] == [f"{number}/step/0" for number in range(8)]
    assert len(microagents("show", "whole", "--live", "--runs-dir", str(tmp_path)).out.splitlines()) == 8


def test_a_decision_has_one_time_wherever_it_is_shown_also_if_its_shard_began_after_the_whole(tmp_path: Path) -> None:
    began = [f"2026-01-01T00:00:{second:02}+00:00" for second in (0, 20, 40)]
    with patch.object(sitting, "now", lambda: began.pop(0)):
        found = sharded(towns(2), tmp_path, 2)
    with reader_of(tmp_path, "whole") as reader:
        shown = [inspect_decision(reader, each.path).decided_at for each in found.decisions()]
    assert shown == [each.decided_at for each in found.decisions()]


def test_the_steps_of_the_first_input_are_read_while_the_server_of_pages_begins(tmp_path: Path) -> None:
    sharded(towns(2), tmp_path, 2)
    with patch.object(view, "browse") as browse:
        microagents("view", "whole", "--runs-dir", str(tmp_path))
    with reader_of(tmp_path, "whole") as reader:
        assert browse.call_args.kwargs["strips"]["whole"].result() == reader.holding("0").overview(0) != b""


def test_a_shard_whose_process_dies_is_begun_again(tmp_path: Path) -> None:
    assert sharded(towns(4), tmp_path, 2, InTurns(deaths=2)).outcome == "completed"


def test_a_shard_that_dies_without_a_call_again_and_again_ends_the_run(tmp_path: Path) -> None:
    found = sharded(towns(4), tmp_path, 1, InTurns(deaths=9))
    assert found.outcome == "failed"
    assert "3 times without a call between" in str(found.reason)


@pytest.mark.slow
def test_one_cap_bounds_all_shards_and_resume_goes_on_with_a_higher_one(tmp_path: Path) -> None:
    found = sharded(towns(12), tmp_path, 3, max_calls=9)
    assert (found.outcome, found.reason) == ("stopped", "--max-calls 9 is reached over all runs that share it")
    assert found.calls == len(asked(tmp_path / "log")) <= 9
    assert found.go_on == f"microagents resume whole --runs-dir {tmp_path} --max-calls 18"
    assert sharded(towns(12), tmp_path, 3).outcome == "stopped"  # it keeps its cap
    done = again(tmp_path, max_calls=1000)
    assert decided(done) == decided(alone(towns(12), tmp_path))
    assert len(asked(tmp_path / "log")) == 2 * done.calls


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"runs_dir": None}, "each shard has a journal"),
        ({"max_tokens": 100}, "--max-tokens does not go with --shards"),
        ({"reuse": "earlier"}, "--reuse does not go with --shards"),
        ({"batch": "file"}, "--batch and @batch do not go with --shards"),
        ({"shards": 0}, "a number from 1 to 1,024"),
        ({"inputs": [0]}, "shards do all inputs"),
        ({"on_decision": print}, "on_decision"),
    ],
)
def test_options_of_one_process_are_refused(given: dict[str, Any], said: str, tmp_path: Path) -> None:
    named: Any = {"runs_dir": tmp_path, "shards": 2, **given}
    with pytest.raises(InvalidUsage, match=said):
        run_sync(towns(2), models="sim:perfect", **named)


def test_a_model_that_cannot_be_asked_is_refused_before_inputs_are_dealt(tmp_path: Path) -> None:
    named: Any = {"runs_dir": tmp_path}
    with pytest.raises(InvalidUsage, match="no option of a simulated model called 'delay'"):
        run_sync(towns(2), models="sim:perfect@delay=1", shards=2, **named)
    assert list(tmp_path.iterdir()) == []


def test_models_are_closed_after_the_driver_has_tried_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = list[Seller]()

    async def close(seller: Seller) -> None:
        closed.append(seller)

    monkeypatch.setattr(Seller, "close", close)
    sharded(towns(1), tmp_path, 1)
    assert len(closed) == 2  # one is the shard's


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--wrong-at-most", "0.05"), "leave out --strategy, --no-journal, --detach and --shards"),
        (("--label", "terminal"), "--label goes with --wrong-at-most"),
    ],
)
def test_a_promise_for_a_table_is_refused_in_shards(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    (tmp_path / "towns.csv").write_text("id,town\n1,Bern\n2,Basel\n")
    given = ("run", "tests.shards.towns:Towns", "--inputs", "towns.csv", "--model", "sim:perfect", "--shards", "2")
    refused = microagents(*given, *words, "--yes")
    assert (refused.code, said in refused.err) == (2, True)


def test_a_random_part_of_the_output_of_shards_is_judged(tmp_path: Path) -> None:
    sharded(towns(8), tmp_path, 2, output=tmp_path / "out.csv")
    _, rows = drawn(tmp_path / "out.csv", 3, tmp_path, of_cells=False)
    assert len(rows) == 3


def test_one_task_is_not_dealt(tmp_path: Path) -> None:
    with pytest.raises(InvalidUsage, match="give --inputs FILE"):
        sharded(towns(1)[0], tmp_path, 2)


def test_a_run_in_shards_is_continued_in_its_shards_only(tmp_path: Path) -> None:
    sharded(towns(3), tmp_path, 2)
    with pytest.raises(InvalidUsage, match="was begun in 2 shards"):
        run_sync(towns(3), models=SPEC.format(log=tmp_path / "log"), k=2, run_id="whole", runs_dir=tmp_path)
    assert shard_journal(tmp_path / "whole.sqlite", 1).exists()


@pytest.mark.slow
def test_a_shard_that_is_done_is_sealed_and_verified_and_goes_to_an_address(tmp_path: Path) -> None:
    found = sharded(towns(6), tmp_path / "runs", 2)
    assert {*found.shards.values()} == {"sealed"}
    assert (
        microagents(
            "export", "whole", "--format", "sealed", "--output", f"file://{tmp_path}/away", "--runs-dir", "runs"
        ).code
        == 0
    )
    there = ("--runs-dir", f"file://{tmp_path}/away")
    assert "verified" in microagents("show", "whole", "--verify", *there).out
    assert len(microagents("export", "whole", *there).out.splitlines()) == 6
    shard = tmp_path / "away/whole.shards/whole-1.sqlite"
    shard.chmod(0o600)
    shard.write_bytes(shard.read_bytes() + b"1")
    shown = microagents("show", "whole", "--verify", *there)
    assert (shown.code, "shard whole-1: whole-1.sqlite is missing, or differs" in shown.err) == (1, True)


def test_media_of_a_sealed_journal_are_packed_beside_it(tmp_path: Path) -> None:
    journal = tmp_path / "a.sqlite"
    journal.write_bytes(b"rows")
    (tmp_path / "a.files").mkdir()
    (tmp_path / "a.files/digest").write_bytes(b"a picture")
    seal(journal)
    seal(journal)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.media.zip", "a.seal", "a.sqlite"]
    assert list(broken_seals(journal)) == []
    (tmp_path / "a.media.zip").write_bytes(b"")
    assert list(broken_seals(journal)) == ["a.media.zip is missing, or differs from the digest of its seal"]


def test_what_is_not_sealed_is_not_written_to_an_address(tmp_path: Path) -> None:
    sharded(towns(12), tmp_path / "runs", 2, max_calls=5)
    refused = microagents("export", "whole", "--format", "sealed", "--output", "away", "--runs-dir", "runs")
    assert (refused.code, "is not done; nothing was written" in refused.err) == (2, True)
    away = microagents("show", "whole", "--runs-dir", f"file://{tmp_path}/nowhere")
    assert (away.code, "cannot be copied to" in away.err) == (2, True)


@pytest.mark.slow
def test_each_page_of_a_run_in_shards_is_the_page_of_one_process(tmp_path: Path) -> None:
    alone(towns(9, equal=3), tmp_path)
    sharded(towns(9, equal=3), tmp_path, 3)
    found = dict[str, list[Any]]()
    for run in ("one", "whole"):
        with reader_of(tmp_path, run) as reader:
            found[run] = [
                reader.inputs_overview(),
                reader.input_sums()[: 2 * 4 * 9],
                [reader.holding(str(number)).overview(number) for number in range(9)],
                [(path, row.value, row.ballots) for path, row in reader.decisions()],
                [row.value for _, row in reader.decisions(4)],
                sorted((number, row and row.value) for number, row in reader.row_elections()),
                reader.rows_with("town 4"),
                [structs.replace(each, reason=None) for each in reader.input_endings()],
                [(number, options) for number, options, _ in reader.inputs([2, 7])],
                [ending is None for _, _, ending in reader.inputs()],
                sum(decisions for _, decisions, _, _ in reader.series(10)),
                inspect_decision(reader, "4/step/0").value,
                list(reader.holding("4").differences(reader, 4)),
            ]
    assert found["whole"] == found["one"]


@pytest.mark.slow
def test_a_person_decides_in_the_shard_that_waits(tmp_path: Path) -> None:
    rows = Towns.rows([{"town": f"utopia {number}", "id": str(number)} for number in range(3)])
    waits = sharded(rows, tmp_path, 2, max_draws=4)
    assert (waits.outcome, waits.account.inputs_failed) == ("undecided", 3)
    assert "of 3 inputs 3 undecided; input 0: " in str(waits.reason)
    for number in range(3):
        said = decide(tmp_path, "whole", f"{number}/step/0", '{"name": "Utopia", "inhabitants": 1}')
        assert said.go_on is not None
    done = again(tmp_path, output=tmp_path / "out.csv")
    assert [row["name"] for row in done.rows(as_json=True)] == ["Utopia"] * 3
    with pytest.raises(InvalidUsage, match="no row that a run decided"):  # all are a person's
        drawn(tmp_path / "out.csv", 2, tmp_path, of_cells=False)


def test_a_shard_is_resumed_with_its_run_only(tmp_path: Path) -> None:
    sharded(towns(6), tmp_path, 2, max_calls=5)
    with pytest.raises(
        InvalidUsage, match="whole-0 is a shard, and has some of the inputs of a run; resume that run: whole"
    ):
        asyncio.run(resume("whole-0", runs_dir=tmp_path / "whole.shards"))
