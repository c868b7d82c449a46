"""Mistakes of a beginner in a task of their own: each gives one sentence that names class and method, and the line."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from microagents import ChainTask, InvalidUsage, MicroagentsError, Prompt, Reply, RowTask, run_sync
from microagents.actors.registry import TASKS
from microagents.base.errors import TaskFailed
from microagents.base.user_code import MAX_TRACEBACK_CHARS, traceback_of
from microagents.journal.reading import Reader
from microagents.models.model import Call
from microagents.systems import Maker
from microagents.task import Task

DATES = """\
from msgspec import Struct

from microagents import ChainTask, Prompt, Reply


class Answer(Reply, frozen=True):
    day: int


class Page(Struct, frozen=True):
    number: int = 0


class Dates(ChainTask[Page, Answer]):
    broken_at: int = -1

    def start(self):
        return Page()

    def steps(self):
        return 5

    def done(self, state):
        return state.number == 5

    def prompt(self, state):
        return Prompt(user=f"Day {state.number}" + {self.broken_at: None}.get(state.number, ""))

    def advance(self, state, reply):
        return Page(state.number + 1)

    def correct(self, state, reply):
        return reply.day == state.number

    def expert(self, prompt, reply):
        return Answer(day=int(prompt.user[4:]))
"""
MODEL = "sim:perfect@error=0.2"


class Sizes(Reply, frozen=True):
    total: int
    parts: list[int]
    even: bool


@pytest.fixture(autouse=True)
def importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("dates", None)


def dates(old: str = "", new: str = "", **options: int) -> Task:
    """A task of a file of the user's, with one change."""
    assert old in DATES
    Path("dates.py").write_text(DATES.replace(old, new, 1) if old else DATES, encoding="utf-8")
    importlib.invalidate_caches()
    return TASKS.find("dates.py:Dates", Task)(**options)


def failure(old: str, new: str) -> str:
    with pytest.raises(MicroagentsError) as raised:
        run_sync(dates(old, new), models=MODEL, k=2, runs_dir=None, max_time_s=10)
    return str(raised.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "return Page()",
            "return Page(1, 2)",
            "Dates.start raised TypeError('Extra positional arguments provided') (dates.py:18)",
        ),
        ("return Page()", "return {'number': 0}", "Dates.start must give a Page, not {'number': 0} (dates.py:17)"),
        (
            "return state.number == 5",
            "state.number == 5",
            "Dates.done must give True or False, not None at step 0 (dates.py:23)",
        ),
        (
            "return state.number == 5",
            "return state.nr == 5",
            "Dates.done raised AttributeError(\"'Page' object has no attribute 'nr'\") at step 0 (dates.py:24)",
        ),
        ("return Prompt(user=", "return str(", "Dates.prompt must give a Prompt, not 'Day 0' at step 0 (dates.py:26)"),
        (
            "return Page(state.number + 1)",
            "raise GeneratorExit",
            "Dates.advance raised GeneratorExit() at step 0 (dates.py:30)",
        ),
        (
            "return Answer(day=int(prompt.user[4:]))",
            "raise SystemExit(3)",
            "Dates.expert raised SystemExit(3) (dates.py:36)",
        ),
        ("return Page(state.number + 1)", "pass", "Dates.advance must give a Page, not None at step 0 (dates.py:29)"),
        (
            "return reply.day ==",
            "return reply.tag ==",
            "Dates.correct raised AttributeError(\"'Answer' object has no attribute 'tag'\") at step 0 (dates.py:33)",
        ),
        (
            "return Answer(day=int(prompt.user[4:]))",
            "return 7",
            "Dates.expert must give an Answer, not 7 (dates.py:35)",
        ),
        (
            "    broken_at",
            "    def flag(self, reply): return reply.colour\n    broken_at",
            "Dates.flag raised AttributeError(\"'Answer' object has no attribute 'colour'\") at 0/step/0 (dates.py:15)",
        ),
        (
            "    broken_at",
            "    def mistake(self, prompt, right, rng): return 5\n    broken_at",
            "Dates.mistake must give an Answer, not 5 (dates.py:15)",
        ),
        (
            "    day: int\n",
            "    day: int\n    def vote(self): return [self.day]\n",
            "Answer.vote must give a value that has a hash, not [0] (dates.py:8)",
        ),
    ],
)
def test_a_failure_of_a_tasks_method_names_class_method_step_and_line(old: str, new: str, said: str) -> None:
    assert failure(old, new) == said


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("def prompt(", "async def prompt(",
         "Dates.prompt is an `async def`, but a task's methods wait for nothing; write `def prompt(self, state)`"),
        ("def done(self, state)", "def done(self)", "Dates.done cannot be called with (state); write `def done(self, state)`"),
        ("def advance(self, state, reply)", "def advance(self, state)",
         "Dates.advance cannot be called with (state, reply); write `def advance(self, state, reply)`"),
        ("def steps(", "@property\n    def steps(", "Dates.steps must be a method, not a property; write `def steps(self)`"),
        ("day: int", "day: Day", "NameError: name 'Day' is not defined in Answer (dates.py:7)"),
    ],
)  # fmt: skip
def test_a_class_that_cannot_work_is_refused_when_its_file_is_imported(old: str, new: str, said: str) -> None:
    with pytest.raises(InvalidUsage) as raised:
        dates(old, new)
    assert str(raised.value).endswith(said)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "ChainTask[Page, Answer]",
            "ChainTask",
            "write class Dates(ChainTask[YourState, YourReply]): Dates names no types",
        ),
        (
            "Answer(Reply, frozen=True)",
            "Answer(Struct, frozen=True)",
            "Dates names Answer as its reply, which is not a class of replies; write class Answer(Reply, frozen=True), and name that",
        ),
        (
            "    day: int\n",
            "    day: int\n    more: dict[str, object] = {}\n",
            "the field Answer.more has the type dict[str, object], which has no JSON schema; use JSON's own types",
        ),
        (
            "    day: int\n",
            "    day: int\n    more: object = None\n",
            "the field Answer.more has the type object, which has no JSON schema; use JSON's own types",
        ),
        ("def start(", "def begin(", "Dates lacks start(), which every task of its kind needs"),
    ],
)
def test_a_class_that_no_run_can_use_is_refused_before_the_first_call(old: str, new: str, said: str) -> None:
    assert failure(old, new) == said


def test_numbers_of_numpy_and_texts_of_other_classes_are_taken_as_those_of_python() -> None:
    numpy = pytest.importorskip("numpy")

    class Doubled(RowTask[Sizes]):
        def prompt(self, row: dict[str, Any]) -> Prompt:
            return Prompt(user=numpy.str_(row["x"]))

        def steps(self) -> int:
            return numpy.int64(1)  # type: ignore[no-any-return]

        def flag(self, state: dict[str, Any], reply: Sizes) -> str | None:  # noqa: ARG002
            return numpy.str_("too_large") if reply.total > 9 else None

        def oracle(self, state: dict[str, Any]) -> Sizes:
            number = numpy.int64(state["x"])
            return Sizes(total=number, parts=numpy.array([number, number]), even=number % 2 == 0)

        def correct(self, state: dict[str, Any], reply: Sizes) -> bool | None:
            right = super().correct(state, reply)
            return None if right is None else numpy.bool_(right)

        def expert(self, prompt: Prompt, reply: type[Reply]) -> Sizes:  # noqa: ARG002
            return self.oracle({"x": prompt.user})

    result = run_sync(Doubled.rows([{"x": "7"}, {"x": "12"}]), models="sim:perfect", k=1, options={"max_draws": 2})
    small, large = result.rows()
    assert small == {"x": "7", "state": "decided", "why": None, "total": 7, "parts": [7, 7], "even": False}
    assert large["state"] == "flagged"
    assert result.account.errors == 0


def test_a_state_with_numbers_and_arrays_of_numpy_goes_on_as_values_of_python() -> None:
    numpy = pytest.importorskip("numpy")

    class Growing(ChainTask[dict[str, Any], Sizes]):
        def start(self) -> dict[str, Any]:
            return {"all": numpy.arange(1), "last": numpy.int64(0)}

        def done(self, state: dict[str, Any]) -> bool:
            return len(state["all"]) == 3

        def prompt(self, state: dict[str, Any]) -> Prompt:
            return Prompt(user=repr(state))

        def advance(self, state: dict[str, Any], reply: Sizes) -> dict[str, Any]:
            grown = numpy.array([*state["all"], reply.total])
            return {"all": grown, "last": grown[-1]}

        def expert(self, prompt: Prompt, reply: type[Reply]) -> Sizes:  # noqa: ARG002
            parts = msgspec.json.decode(prompt.user.replace("'", '"'))["all"]  # no word of numpy
            return Sizes(total=numpy.int64(len(parts)), parts=numpy.array(parts), even=numpy.bool_(len(parts) == 2))

    result = run_sync(Growing(), models=MODEL)
    assert result.value == {"all": [0, 1, 2], "last": 2}
    assert result.account.flagged == {}


def test_a_generator_as_the_result_of_a_task_keeps_its_values() -> None:
    returned = "    def result(self, state): return (number for number in range(state.number))\n    broken_at"
    assert run_sync(dates("    broken_at", returned), models="sim:perfect", k=1).value == [0, 1, 2, 3, 4]


def test_a_failed_run_keeps_the_traceback_in_its_journal_and_in_its_error() -> None:
    with pytest.raises(TaskFailed) as raised:
        run_sync(dates(broken_at=3), models=MODEL, run_id="broken")
    assert str(raised.value) == (
        "Dates.prompt raised TypeError('can only concatenate str (not \"NoneType\") to str') at step 3 (dates.py:27)"
    )
    with Reader(Path("runs/broken.sqlite")) as reader:
        ending = reader.ending()
    assert ending is not None
    assert (ending.reason, ending.traceback) == (str(raised.value), raised.value.traceback)
    assert ending.traceback.startswith("Traceback (most recent call last):\n")
    assert 'dates.py", line 27, in prompt\n' in ending.traceback


def test_of_a_long_traceback_both_ends_are_kept() -> None:
    def deep(level: int) -> None:
        if level == 0:
            raise ValueError("x" * MAX_TRACEBACK_CHARS)
        deep(level - 1)

    with pytest.raises(ValueError, match="xxx") as raised:
        deep(100)
    text = traceback_of(raised.value)
    assert len(text) < MAX_TRACEBACK_CHARS + 20
    assert text.startswith("Traceback (most recent call last):\n")
    assert text.endswith("xxx\n")


@pytest.mark.parametrize("options", [{}, {"speculate": False}])
def test_an_advance_that_changes_the_state_it_was_given_is_said(options: dict[str, Any]) -> None:
    sys.modules.pop("changing", None)
    dates("    number: int = 0", "    number: int = 0\n    days: list[int] = []")
    changed = Path("dates.py").read_text(encoding="utf-8")
    changing = "        state.days.append(reply.day)\n        return Page(state.number + 1, state.days)"
    Path("changing.py").write_text(changed.replace("        return Page(state.number + 1)", changing), encoding="utf-8")
    with pytest.raises(
        TaskFailed, match=r"Dates\.advance changed the state that it was given at step 0; return a new state"
    ):
        run_sync(TASKS.find("changing.py:Dates", Task)(), models=MODEL, runs_dir=None, **options)


def test_replies_that_never_agree_because_of_one_field_name_it() -> None:
    free = dates("    day: int", "    day: int\n    note: str = ''")

    async def wordy(call: Call) -> str:
        return f'day = 1\nnote = "{call.id.seq}"'

    result = run_sync(free, models=wordy, strategy=Maker(max_draws=8), runs_dir=None)
    assert result.outcome == "undecided"
    said = "no two replies agree, though all agree in day: they differ in note; mark a field that need not agree as Annotated[..., Unvoted]"
    assert said in str(result.reason)


@pytest.mark.slow
def test_a_chain_that_never_ends_is_stopped_and_said() -> None:
    said = failure("return Page(state.number + 1)", "return Page(state.number)")
    assert said.startswith(
        "Dates.done is False after 150 steps, where Dates.steps gives 5; perhaps advance leads to the same state"
    )
