"""Runs from Python: what a caller is told while they run, and what their results show."""

from __future__ import annotations

import asyncio
import itertools
import signal
import sys
import threading
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from microagents import Call, InvalidUsage, resume, run, run_sync
from microagents.base.errors import TaskFailed
from microagents.journal.messages import Account, RecordedDecision
from microagents.runs.inspection.runs import inspect_run
from microagents.systems import Maker
from microagents.tasks.drift import RING, Drift
from tests.cli.commands import microagents

DRIFT = Drift(length=3)
MODELS = "sim:perfect@error=0.2,flag=0.1,alternatives=1"


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["linked", "ray"])
async def test_every_decision_is_told_in_its_order_and_equals_the_recorded_one(runtime: str, tmp_path: Path) -> None:
    told: list[RecordedDecision] = []
    result = await run(
        Drift(length=30), models=MODELS, k=2, on_decision=told.append, runtime=runtime, runs_dir=tmp_path
    )
    assert told == list(result.decisions())
    assert [each.path for each in told] == [f"0/step/{step}" for step in range(30)]
    assert sum(number for each in told for _, number in each.votes) == result.account.valid
    assert sum(number for each in told for number in each.flags.values()) == sum(result.account.flagged.values()) > 0
    path, value = told[0]
    assert (path, value) == ("0/step/0", {"number": value["number"]}), "a decision unpacks"


def test_an_error_of_run_sync_is_shown_as_the_only_one() -> None:
    with pytest.raises(InvalidUsage) as refused:
        run_sync(DRIFT, models="sim:perfect", k=0, runs_dir=None)
    assert "During handling of the above exception" not in "".join(traceback.format_exception(refused.value))


def test_a_run_without_a_journal_does_not_promise_that_anything_is_kept() -> None:
    said = "; nothing is kept, since it ran without a journal"
    stopped = run_sync(DRIFT, models="sim:perfect", runs_dir=None, max_calls=1)
    assert stopped.reason == f"--max-calls 1 is reached{said}; begin it again with a higher limit"
    numbers = itertools.count()

    async def never_twice(call: Call) -> str:  # noqa: ARG001 - it replies alike to any
        return f"number = {next(numbers)}"

    undecided = run_sync([DRIFT, DRIFT], models=never_twice, runs_dir=None, options={"max_draws": 4})
    assert undecided.failed_inputs is not None
    for reason in (undecided.reason, *[each.reason for each in undecided.failed_inputs]):
        assert reason is not None
        assert f"0 flagged){said}; begin it again with --on-undecided and `leader`" in reason


async def test_an_async_callback_is_awaited_one_decision_after_the_other_and_to_the_last() -> None:
    told: list[str] = []

    async def tell(decision: RecordedDecision) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        told.append(decision.path)

    await run(Drift(length=10), models="sim:perfect", on_decision=tell, runs_dir=None)
    assert told == [f"0/step/{step}" for step in range(10)]


@pytest.mark.parametrize(("listed", "runtime"), [(False, "linked"), (True, "local"), (True, "ray")])
async def test_a_run_asks_in_the_form_that_its_settings_name(runtime: str, *, listed: bool, tmp_path: Path) -> None:
    asked = set[str]()

    async def model(call: Call) -> str:
        asked.add(call.prompt.system)
        return '{"number": 22}' if "one JSON object" in call.prompt.system else "number = 22"

    task: Any = [DRIFT, Drift(length=2)] if listed else DRIFT
    given: dict[str, Any] = {"models": "sim:perfect" if runtime == "ray" else model, "runtime": runtime}
    result = await run(task, **given, k=2, format="json", reasoning=False, max_calls=2, runs_dir=tmp_path)
    assert runtime == "ray" or all("Write no reasoning. Answer with one JSON object" in each for each in asked)
    assert result.account.valid == 2
    with pytest.raises(InvalidUsage, match="format"):
        await run(task, **given, k=2, runs_dir=tmp_path, run_id=result.run_id)
    if runtime == "ray":
        assert (await resume(result.run_id, runs_dir=tmp_path, max_calls=100)).outcome == "completed"
    assert Drift.format == DRIFT.format == "lines"


async def test_a_decision_tells_how_it_was_settled_and_a_resumed_run_tells_only_new_ones(tmp_path: Path) -> None:
    told: list[RecordedDecision] = []
    options: dict[str, Any] = {
        "models": "sim:perfect@error=0.5,alternatives=1",
        "k": 40,
        "run_id": "a",
        "runs_dir": tmp_path,
    }
    stuck = await run(Drift(length=3), **options, on_decision=told.append)
    assert (stuck.outcome, told) == ("undecided", [])
    led = await run(Drift(length=3), **options, on_undecided="leader", on_decision=told.append)
    assert [each.settled_at for each in told] == ["leader"] * 3
    assert [*led.decisions()] == [*inspect_run(tmp_path, "a").decisions()] == told


@pytest.mark.parametrize(
    ("length", "runs_dir", "error"), [(1, "runs", KeyError), (500, None, SystemExit), (1, None, GeneratorExit)]
)
async def test_what_the_callback_raises_ends_the_run(
    length: int, runs_dir: str | None, error: type[BaseException]
) -> None:
    def tell(decision: RecordedDecision) -> None:
        raise error(decision.path)

    with pytest.raises(TaskFailed, match=rf"on_decision\(\) raised {error.__name__}\('0/step/0'\)"):
        await run(Drift(length=length), models="sim:perfect", on_decision=tell, runs_dir=runs_dir)


class Odd(BaseException):
    """No `Exception`, as what test frameworks raise to end a test."""


class Breaks:
    """Code of a user that raises one the first time it is called."""

    is_mended = False

    def decided(self, _: RecordedDecision) -> None:
        """Fail as a callback."""
        self.fail()

    async def model(self, _: Call) -> str:
        """Fail as a model."""
        await asyncio.sleep(0)
        self.fail()
        return "number: 1"

    def fail(self) -> None:
        """Fail as any code."""
        if not self.is_mended:
            self.is_mended = True
            raise Odd("seventeen")


@pytest.mark.parametrize(("where", "inputs"), [("on_decision", 1), ("models", 3), ("prompt", 1)])
async def test_what_is_no_exception_ends_a_run_that_can_go_on_at_once(
    where: str, inputs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks = Breaks()
    if where == "prompt":
        prompt = Drift.prompt

        def breaking(task: Drift, state: Any) -> Any:
            breaks.fail()
            return prompt(task, state)

        monkeypatch.setattr(Drift, "prompt", breaking)
    options = (
        {"on_decision": breaks.decided}
        if where == "on_decision"
        else {"models": breaks.model}
        if where == "models"
        else {}
    )
    given: dict[str, Any] = {"models": "sim:perfect", "run_id": "a", "runs_dir": tmp_path, **options}
    async with asyncio.timeout(60):
        with pytest.raises(Odd, match="seventeen") as caught:
            await run([Drift(length=20)] * inputs, **given)
        assert where == "prompt" or "resume run a" in "".join(
            caught.value.__notes__
        )  # before the first step there is nothing to keep
        if where != "models":
            assert (await run([Drift(length=20)] * inputs, **given)).outcome == "completed"
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize(
    ("task", "options", "said"),
    [
        (3, {}, "3 is not a task: give an instance of a task, or a list of them"),
        (Drift, {}, r"is not a task: write Drift\(\.\.\.\)"),
        (DRIFT, {"models": 3}, r"a model must be a spec, .* client_model\(CLIENT, NAME\), not 3"),
        (DRIFT, {"k": "x"}, "k must be an integer .*, not 'x'"),
        (DRIFT, {"concurrency": -1}, "concurrency must be .*, not -1"),
        (DRIFT, {"strategy": Maker}, "strategy must be a name, or an instance such as .*, not <class"),
        (DRIFT, {"accept_changes": "k"}, "accept_changes='k': 'str' instances are not allowed"),
        (DRIFT, {"on_progress": 3}, "on_progress must be callable, not 3"),
        (DRIFT, {"interrupt": True}, "interrupt must be an instance of Event, not True"),
        (DRIFT, {"inputs": [0]}, r"inputs must be numbers of a list of tasks, counted from 0, not \[0\]"),
        ([DRIFT], {"inputs": [False]}, r"inputs must be a valid integer, not \[False\]"),
        ([DRIFT], {"inputs": [0.0]}, r"inputs must be a valid integer, not \[0.0\]"),
        (DRIFT, {"runs_dir": b"runs"}, "runs_dir must be a valid string, not b'runs'"),
        ([DRIFT], {"inputs": [1]}, r"inputs must be numbers of a list of tasks, counted from 0, not \[1\]"),
    ],
)
async def test_an_argument_of_a_wrong_type_is_refused_in_one_sentence(
    task: Any, options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidUsage, match=said) as caught:
        await run(task, **{"models": "sim:perfect", "runs_dir": tmp_path, **options})
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())  # noqa: ASYNC240 - a folder in memory


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"run_id": "a", "runs_dir": None}, "runs_dir must be .*, not None"),
        ({"run_id": "a", "inputs": 3}, "inputs must be an instance of Sequence, not 3"),
    ],
)
async def test_an_argument_of_a_resume_of_a_wrong_type_is_refused_in_one_sentence(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidUsage, match=said):
        await resume(**options)


async def test_run_sync_works_inside_a_running_loop_and_raises_as_run_does() -> None:
    result = run_sync(DRIFT, models="sim:perfect", runs_dir=None)
    assert (result.outcome, result.account.errors) == ("completed", 0)
    with pytest.raises(InvalidUsage, match=r"k must be .*, not 0"):
        run_sync(DRIFT, models="sim:perfect", k=0)


def test_an_interrupted_script_is_told_which_run_to_resume(tmp_path: Path) -> None:
    """A run of a million steps, and Ctrl-C at its sixth: what is decided is kept, and the error says where."""

    def interrupt(decision: RecordedDecision) -> None:
        if decision.path == "0/step/5":
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # the loop of asyncio.run has one of its own
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            run_sync(Drift(length=10**6), models="sim:perfect", on_decision=interrupt, runs_dir=tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)
    (journal,) = tmp_path.glob("*.sqlite")
    left = inspect_run(tmp_path, journal.stem)
    assert left.outcome == "interrupted"
    assert left.account.steps > 5
    assert caught.value.__notes__ == [f"all decisions so far are kept; resume run {journal.stem}"]


async def test_a_result_that_did_not_complete_names_the_command_to_continue_with(tmp_path: Path) -> None:
    result = await run(Drift(length=9), models="sim:perfect", max_calls=3, run_id="a", runs_dir=tmp_path)
    assert str(result).splitlines()[-1] == f"go on    microagents resume a --runs-dir {tmp_path} --max-calls 6"
    many = await run([DRIFT, DRIFT], models="sim:perfect", runs_dir=None)
    assert str(many).startswith("completed  drift: 2 of 2 inputs, 6 of 6 steps")


class Own(Drift):
    """A task of the program itself."""


async def count_on(call: Call) -> str:
    """A model of the program itself."""
    return f"number = {(int(call.prompt.user.removeprefix('Number: ')) * 17 + 5) % RING}"


async def test_a_program_resumes_a_run_of_its_own_task_and_model_and_another_program_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in (Own, count_on):
        monkeypatch.setattr(each, "__module__", "__main__")
        monkeypatch.setattr(sys.modules["__main__"], each.__name__, each, raising=False)
    stopped = await run(Own(length=9), models=count_on, k=1, max_calls=3, run_id="a", runs_dir=tmp_path)
    assert stopped.outcome == "stopped"
    assert (
        str(stopped).splitlines()[-1]
        == f"go on    start the program again with run_id='a', runs_dir='{tmp_path}', max_calls=6"
    )
    assert microagents("show", "a", "--runs-dir", str(tmp_path)).rows["go on"] == str(stopped).splitlines()[
        -1
    ].removeprefix("go on    ")
    for name, said in (
        ("Own", "the task of run a, __main__:Own, cannot be imported"),
        ("count_on", "was given as an object"),
    ):
        with monkeypatch.context() as elsewhere:
            elsewhere.delattr(sys.modules["__main__"], name)
            with pytest.raises(InvalidUsage, match=said):
                await resume("a", runs_dir=tmp_path)
    resumed = await resume("a", runs_dir=tmp_path, max_calls=99)
    assert (resumed.outcome, resumed.account.errors) == ("completed", 0)


class Line:
    """A line that a notebook displays and changes."""

    def __init__(self, shown: list[str]) -> None:
        self._shown = shown

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        assert raw
        self._shown.append(data["text/plain"])


@pytest.mark.parametrize("kernel", [object(), None], ids=["notebook", "IPython in a terminal"])
async def test_a_notebook_shows_the_progress_and_no_other_place_does(
    kernel: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for IPython, which is no dependency."""
    shown: list[str] = []

    def display(data: dict[str, str], *, raw: bool, display_id: bool) -> Line:
        line = Line(shown)
        line.update(data, raw=raw and display_id)
        return line

    ipython = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=kernel))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    await run(DRIFT, models="sim:perfect", runs_dir=None)
    own: list[Account] = []
    await run(DRIFT, models="sim:perfect", runs_dir=None, on_progress=own.append)
    if kernel is None:
        assert shown == []
    else:
        first, *_, last = shown
        assert first == "drift: starting"
        assert last.startswith("drift: 3 of 3 steps   3.000 votes a step")


async def test_on_decision_that_raises_cancelled_error_ends_the_run() -> None:
    def cancelled(_: RecordedDecision) -> None:
        raise asyncio.CancelledError

    with pytest.raises(TaskFailed, match=r"on_decision\(\) raised CancelledError"):
        await run(Drift(length=3), models="sim:perfect", runs_dir=None, on_decision=cancelled)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kk": 3}, r"no argument of run\(\) called 'kk'.*known: .*strategy"),
        ({"window": 3}, r"'window' is an option of the strategy: give it as strategy=Maker\(window=3\)"),
    ],
)
async def test_an_unknown_argument_of_run_is_told_with_those_that_there_are(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidUsage, match=said):
        await run(Drift(length=1), models="sim:perfect", runs_dir=None, **given)
