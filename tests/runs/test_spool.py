"""Very many texts that are kept in a file, and what a run keeps in memory for each of its inputs."""

from __future__ import annotations

import pickle
import resource
import sqlite3
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microagents.base.errors import InvalidUsage
from microagents.journal.books import Books
from microagents.journal.messages import InputEnding
from microagents.runs.driver import shared_questions
from microagents.runs.result import Results, results_of
from microagents.runs.spool import Spool, temporary_table
from microagents.runs.task_list import TaskList, compact_options
from microagents.tasks.drift import Drift
from tests.models.batch_rows import table

INPUTS = 10_000
KEPT_BYTES = 160
"""Of each input; with room for an ending that is under way."""


@pytest.mark.slow
@given(st.lists(st.text(max_size=20)), st.sampled_from([1, 100_000]))
def test_a_spool_reads_like_the_list_of_its_texts_in_memory_and_in_its_file(short: list[str], times: int) -> None:
    texts = [text * times for text in short[:1]] + short[1:]  # a long one stands in its file
    spool = Spool(texts)
    for each in (spool, pickle.loads(pickle.dumps(spool))):
        assert (list(each), [each[number] for number in range(len(each))], each[-2:]) == (texts, texts, texts[-2:])


def test_where_the_disk_is_full_one_sentence_says_so() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.raises(InvalidUsage, match="set TMPDIR to another one"):
            Spool("x" * 10_000 for _ in range(1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_where_no_room_is_left_for_the_questions_of_rows_the_same_sentence_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def small(owner: object, made: str) -> sqlite3.Connection:
        found = temporary_table(owner, made)
        found.execute("PRAGMA max_page_count = 2")
        return found

    monkeypatch.setattr(shared_questions, "temporary_table", small)
    questions = shared_questions.SharedQuestions(table(500))
    with pytest.raises(InvalidUsage, match="set TMPDIR to another one"):
        any(map(questions.note, range(500)))


def test_results_compare_like_a_list_and_show_the_first() -> None:
    endings = [InputEnding(input=number, outcome="completed", result=f"{number}") for number in (0, 1, 3)]
    results, _ = results_of(iter(endings), 15)
    right = [0, 1, None, 3, *[None] * 11]
    assert (results == right, right == results, results == right[:-1], results[1:4]) == (
        True,
        True,
        False,
        [1, None, 3],
    )
    assert repr(results).endswith("] and 5 more")
    assert isinstance(results, Results)


@pytest.mark.slow
def test_of_an_input_that_has_ended_a_hundred_bytes_stay_in_memory_and_neither_its_options_nor_its_result() -> None:
    walks = (Drift(length=1 + number) for number in range(INPUTS))
    tracemalloc.start()
    try:
        tasks = TaskList(Drift, *compact_options(walks))
        books = Books(len(tasks))
        for number in range(INPUTS):
            books.take_in(f"{number}/step/0", "decided", b"7", ())
        endings = (InputEnding(input=number, outcome="completed", result="1" * 100) for number in range(INPUTS))
        results, _ = results_of(endings, INPUTS)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (tasks[INPUTS - 1], results[0]) == (Drift(length=INPUTS), int("1" * 100))
    assert kept < KEPT_BYTES * INPUTS
