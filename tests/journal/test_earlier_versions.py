"""Journals of version 0.1.0, and runs that it made: they are read, resumed and decided as before.

The journals in ``version_0_1_0`` are dumps of files that version 0.1.0 wrote, cut short by a limit unless they are complete. The
digests are those to which version 0.1.0 itself came.
"""

from __future__ import annotations

import sqlite3
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from microagents import JournalMismatch, Result, resume, run, run_sync
from microagents.journal.reading import Reader
from microagents.runs.inspection.runs import decide
from microagents.runs.plan import plan_of
from microagents.systems import Maker, Recursive
from microagents.tasks.drift import Drift
from microagents.tasks.hanoi import Hanoi
from microagents.tasks.multiplication import Multiplication
from microagents.tasks.sorting import Sorting

DUMPS = Path(__file__).parent / "version_0_1_0"
RUNS = Path("runs")
NOISY = "sim:perfect@error=0.4,flag=0.1"


def restored(name: str) -> str:
    """Write a journal from its dump; gives the run's name."""
    RUNS.mkdir(exist_ok=True)
    db = sqlite3.connect(RUNS / f"{name}.sqlite")
    db.executescript((DUMPS / f"{name}.sql").read_text(encoding="utf-8"))
    db.close()
    with Reader(RUNS / f"{name}.sqlite") as reader:
        reader.trust()
    return name


def came_to(result: Result) -> tuple[str, int, str, str]:
    account = result.account
    used = account.calls - account.wasted_calls  # how many calls wrong guesses waste depends on timing
    return result.outcome, used, account.decisions_sha256[:16], account.ballots_sha256[:16]


@pytest.mark.parametrize(
    ("name", "changed", "end"),
    [
        ("chain", {"max_calls": 1000}, ("completed", 101, "7c737365a44c0da5", "88c5c3356f1280fc")),
        ("known", {}, ("completed", 54, "8378581b826a6fe0", "82601600ba0a1847")),
        ("problem", {"max_calls": 1000}, ("completed", 209, "dd3547f7a413fd5b", "9eb25f9ef4926273")),
        ("many", {"max_calls": 1000}, ("completed", 43, "54f22e50efb7a5ba", "49bd8813d1f0ec27")),
        ("undecided", {"on_undecided": "sim:perfect"}, ("completed", 72, "f79784837df6010e", "0bd0475620891e49")),
        ("chain", {"max_calls": 1000, "speculate": False}, ("completed", 101, "7c737365a44c0da5", "88c5c3356f1280fc")),
    ],
)
async def test_a_journal_of_before_is_resumed_to_the_end_that_its_own_version_came_to(
    name: str, changed: dict[str, Any], end: tuple[str, int, str, str]
) -> None:
    assert came_to(await resume(restored(name), **changed)) == end


async def test_another_setting_that_decisions_depend_on_is_refused_in_a_journal_of_before() -> None:
    restored("chain")
    with pytest.raises(JournalMismatch, match=r"strategy\.known_inputs=false"):
        await run(
            Drift(length=30), models="sim:perfect@error=0.3,flag=0.1", k=2, seed=5, run_id="chain", known_inputs=True
        )


async def test_a_journal_of_before_draws_no_candidates_again_and_says_so_to_a_run_that_would() -> None:
    restored("problem")
    with Reader(RUNS / "problem.sqlite") as reader:
        before = plan_of(reader)
    assert isinstance(before.strategy, Recursive)
    assert (before.strategy.min_candidates, before.strategy.show_copies) == (1, False)
    for at_least, refused in ((2, True), (1, False)):
        strategy = before.strategy.model_copy(update={"min_candidates": at_least})
        with (
            pytest.raises(JournalMismatch, match=r"strategy\.min_candidates=1, now it is 2")
            if refused
            else nullcontext()
        ):
            await run(
                before.tasks[0],
                models=dict(before.settings.models),
                strategy=strategy,
                seed=before.settings.seed,
                run_id="problem",
            )


async def test_what_a_journal_of_before_left_undecided_is_decided_by_a_person() -> None:
    restored("undecided")
    assert decide(RUNS, "undecided", "0/step/0", '{"number": 3}').reply.number == 3
    assert (await resume("undecided", on_undecided="stop")).account.settled_at == {"0/step/0": "person"}


@pytest.mark.parametrize(
    ("task", "options", "decisions", "ballots"),
    [
        (Drift(length=50), {"models": NOISY, "k": 2, "seed": 3}, "9047709cd0cd8347", "823160e4a3855785"),
        (
            Drift(length=50),
            {"models": NOISY, "strategy": Maker(k=2, rule="first-to"), "seed": 3},
            "3f13959bf2ef9a1b",
            "4016f99df7e4bade",
        ),
        (Hanoi(disks=5), {"models": "sim:gpt-4.1-mini", "k": 3}, "beac5d98861f2aa0", "a6f0f0ce59f6079e"),
        ([Drift(length=5), Drift(length=9)], {"models": NOISY, "k": 2}, "cdc6a692dd54dfa8", "0ae72cd1a84a41c1"),
        (
            Multiplication(digits=4),
            {"models": "sim:perfect@error=0.2,alternatives=3", "k": 3},
            "b8b91931a52080bc",
            "dc0aa9d6f6ae881d",
        ),
        (Sorting(), {"models": "sim:gpt-4.1-mini", "k": 2}, "e6645d37eea154e9", "72f05ae31253341d"),
        (
            Multiplication(digits=4),
            {"models": "sim:gpt-4.1-mini", "strategy": "self-consistency"},
            "33830b5d5092ff23",
            "ac171e700422448b",
        ),
        (
            Multiplication(digits=3),
            {"models": "sim:gpt-4.1-mini", "strategy": "single-shot"},
            "55ce4ac632c7549f",
            "b622c74a3359c99f",
        ),
    ],
    ids=["ahead-by", "first-to", "hanoi", "many", "recursive", "sorting", "self-consistency", "single-shot"],
)
def test_a_new_run_decides_as_version_0_1_0_did(
    task: Any, options: dict[str, Any], decisions: str, ballots: str
) -> None:
    account = run_sync(task, **options, runs_dir=None).account
    assert (account.decisions_sha256[:16], account.ballots_sha256[:16]) == (decisions, ballots)
