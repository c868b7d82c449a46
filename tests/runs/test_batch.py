"""Many inputs from Python: what a run takes, how many are open at a time, and which failures end more than one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from microagents import (
    Conductor,
    InvalidUsage,
    MicroagentsError,
    ModelUnavailable,
    Strategy,
    Task,
    Work,
    resume,
    run,
    run_sync,
)
from microagents.base.errors import Interrupted, JournalMismatch, TaskFailed, Undecided
from microagents.journal.messages import Account, InputEnding
from microagents.runtimes.virtual import run_virtual
from microagents.tasks.drift import Drift
from microagents.tasks.hanoi import Hanoi

MODEL = "sim:perfect"


class Item(Task):
    number: int

    def expert(self, prompt: Any, reply: Any) -> Any:
        raise NotImplementedError


class Crowd:
    """How many are inside at a time, each for some iterations of the loop."""

    def __init__(self) -> None:
        self.order: list[int] = []
        self.now = self.most = 0

    async def visit(self, number: int) -> None:
        self.order.append(number)
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(20):
            await asyncio.sleep(0)
        self.now -= 1


crowd = Crowd()
raised: dict[int, MicroagentsError] = {}
"""What inputs fail with."""


class VisitConductor(Conductor[Item, "Visit"]):
    async def conduct(self, work: Work[Item, Visit]) -> int:
        number = work.task.number
        if number in raised:
            raise raised[number]
        await crowd.visit(number)
        return number * 10


class Visit(Strategy):
    solves = (Item,)
    conductor = VisitConductor


@pytest.fixture(autouse=True)
def empty() -> None:
    crowd.__init__()  # type: ignore[misc]
    raised.clear()


def visits(numbers: Sequence[int], **options: Any) -> Any:
    return run_sync(
        [Item(number=number) for number in numbers], **{"models": MODEL, "strategy": Visit(), "run_id": "r", **options}
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "there are no inputs"),
        (
            [Drift(length=1), Hanoi(disks=3)],
            "input 1 is a Hanoi, input 0 a Drift; the inputs of a run are of one class",
        ),
        ("drift", "'drift' is not a task: give an instance of a task, or a list of them"),
    ],
    ids=["none", "two classes", "only a word"],
)
def test_what_is_no_list_of_tasks_is_refused(given: Any, said: str) -> None:
    with pytest.raises(InvalidUsage, match=said):
        run_sync(given, models=MODEL)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Undecided("1/step/0", 9, "1 x a"), "undecided"),
        (TaskFailed("prompt()", "must give a Prompt"), "failed"),
        (ModelUnavailable("refused", "the prompt is too long", 400), "failed"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, MicroagentsError) else each,
)
def test_what_one_input_fails_with_ends_that_input_alone(error: MicroagentsError, outcome: str) -> None:
    raised[1] = error
    result = visits([0, 1, 2])
    assert (result.outcome, result.value) == (outcome, [0, None, 20])
    assert [(each.input, each.outcome, each.reason) for each in result.failed_inputs] == [
        (1, outcome, str(error).replace("decide RUN", "decide r"))  # the reason of a run knows its name
    ]
    raised.clear()
    again = asyncio.run(resume("r"))
    assert (again.outcome, again.value, again.account.inputs_failed) == ("completed", [0, 10, 20], 0)
    assert crowd.order == [0, 2, 1]


@pytest.mark.parametrize(
    "error",
    [ModelUnavailable("refused", "no such key", 401), JournalMismatch("question", "one", "another")],
    ids=lambda each: type(each).__name__,
)
def test_what_every_input_would_fail_with_ends_the_run(error: MicroagentsError) -> None:
    raised[1] = error
    with pytest.raises(type(error)):
        visits(range(5), concurrency=1)
    assert crowd.order == [0]
    raised.clear()
    assert asyncio.run(resume("r")).value == [0, 10, 20, 30, 40]
    assert crowd.order == [0, 1, 2, 3, 4]


async def test_a_run_that_is_interrupted_before_its_first_record_started_nothing() -> None:
    interrupt = asyncio.Event()
    interrupt.set()
    with pytest.raises(Interrupted, match="nothing was started, and the same command begins anew"):
        await run([Drift(length=1)], models=MODEL, run_id="r", interrupt=interrupt)


@pytest.mark.parametrize("error", [KeyError, GeneratorExit, SystemExit])
async def test_what_the_callback_of_endings_raises_ends_the_run_by_name(error: type[BaseException]) -> None:
    def tell(_: InputEnding) -> None:
        raise error("x")

    with pytest.raises(TaskFailed, match=rf"tell raised {error.__name__}\('x'\) \(test_batch.py:\d+\)") as caught:
        await run([Drift(length=1)] * 2, models=MODEL, run_id="r", on_ending=tell)
    assert "resume run r" in "".join(caught.value.__notes__)


def test_an_input_with_an_undecided_step_stays_undecided_through_an_interrupt() -> None:
    async def interrupted_at_the_first() -> list[str]:
        interrupt = asyncio.Event()
        await run(
            [Drift(length=3), Drift(length=3)],
            models="sim:perfect@error=0.5,alternatives=100",
            options={"k": 2, "max_draws": 2, "known_inputs": True},
            run_id="r",
            concurrency=1,
            interrupt=interrupt,
            on_ending=lambda _: interrupt.set(),
        )
        resumed = await resume("r")
        return [each.outcome for each in resumed.failed_inputs or ()]

    assert run_virtual(interrupted_at_the_first()) == ["undecided", "undecided"]


@pytest.mark.slow
def test_an_interrupted_run_goes_on_with_what_is_left() -> None:
    run_virtual(interrupted_and_resumed())


async def interrupted_and_resumed() -> None:
    interrupt = asyncio.Event()
    seen: list[Account] = []

    def on_progress(account: Account) -> None:
        seen.append(account)
        if account.steps > 20:
            interrupt.set()

    walks = [Drift(length=length) for length in (2, 30, 3, 30)]
    model = "sim:perfect@error=0.3,latency=0.01"
    first = await run(walks, models=model, run_id="r", on_progress=on_progress, interrupt=interrupt)
    assert (first.outcome, first.recorded[1], first.failed_inputs) == ("interrupted", None, ())
    assert seen[-1].inputs == 4
    whole = await run(walks, models=model, runs_dir=None)
    again = await resume("r")
    assert (again.value, again.account.decisions_sha256) == (whole.value, whole.account.decisions_sha256)
