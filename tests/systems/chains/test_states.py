"""States of chains: nothing is bought in a state that the journal cannot give back, and a resumed chain goes on in the same one."""

from __future__ import annotations

import math
from collections import deque
from pathlib import Path
from random import Random
from typing import Any, ClassVar, TypedDict

import pytest
from pydantic import BaseModel

from microagents import ChainTask, MicroagentsError, Prompt, Reply, Result, resume, run
from microagents.base.errors import TaskFailed
from microagents.journal.reading import Reader
from microagents.systems import Maker

STEPS = 4


class Go(Reply, frozen=True):
    """What every step answers."""

    number: int | float


class Path4(ChainTask[Any, Go]):
    """Four steps; ``states`` gives the state before each, and the last."""

    states: ClassVar[list[Any]] = []

    def start(self) -> Any:
        return {"step": 0, "held": self.states[0]}

    def done(self, state: Any) -> bool:
        return bool(state["step"] == STEPS)

    def prompt(self, state: Any) -> Prompt:
        return Prompt(user=f"step {state['step']}")

    def advance(self, state: Any, reply: Go) -> Any:  # noqa: ARG002 - the states are given
        step = state["step"] + 1
        return {"step": step, "held": self.states[step]}

    def result(self, state: Any) -> Any:
        return state["held"]

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Go:  # noqa: ARG002 - it has one kind of reply
        return Go(number=int(prompt.user.split()[1]))


def path(*states: Any) -> Path4:
    """Make a chain with these states."""
    Path4.states = [*states]
    return Path4()


async def walk(task: ChainTask[Any, Any], runs_dir: Path, **options: Any) -> Result[Any]:
    return await run(
        task,
        models="sim:perfect",
        strategy=Maker(k=1, speculate=options.pop("speculate", False)),
        run_id="r",
        runs_dir=runs_dir,
        **options,
    )


@pytest.mark.parametrize(
    ("lost", "speculate"),
    [*[(each, False) for each in (math.inf, (1,), {1: 2}, {1}, b"x", "\ud800")], (math.nan, True)],
)
async def test_a_state_that_the_journal_cannot_give_back_is_refused_before_anything_is_bought_in_it(
    tmp_path: Path,
    lost: Any,
    speculate: bool,  # noqa: FBT001 - a parameter
) -> None:
    with pytest.raises(MicroagentsError) as refused:
        await walk(path(0, 0, [lost], 0, 0), tmp_path, speculate=speculate)
    said = str(refused.value)
    assert said.startswith("Path4.advance gave what the journal cannot give back at step 2: state['held']")
    assert f"{lost!r}" in said
    assert "all decisions so far are kept" in said
    with Reader(tmp_path / "r.sqlite") as reader:
        assert reader.account().calls <= (STEPS if speculate else 2)


async def test_the_first_state_is_refused_before_any_call(tmp_path: Path) -> None:
    with pytest.raises(MicroagentsError, match=r"Path4\.start gave .* at step 0: state\['held'\] is inf") as refused:
        await walk(path(math.inf, 0, 0, 0, 0), tmp_path)
    assert "\n" not in str(refused.value)


async def test_a_result_with_infinity_is_refused_by_name_and_the_last_state_may_hold_it(tmp_path: Path) -> None:
    with pytest.raises(MicroagentsError, match=r"Path4\.result gave .*: result\[1\] is inf, which JSON lacks"):
        await walk(path(0, 0, 0, 0, [1, math.inf]), tmp_path)


class Queue(ChainTask[dict[str, list[int]], Go]):
    """A chain whose states depend on the order of a dict, and share lists."""

    def start(self) -> dict[str, list[int]]:
        row = [0]
        return {"z": row, "y": row, "a": row}

    def done(self, state: dict[str, list[int]]) -> bool:
        return sum(map(sum, state.values())) >= STEPS

    def prompt(self, state: dict[str, list[int]]) -> Prompt:
        return Prompt(user=f"step {sum(map(sum, state.values()))}: {state}")

    def advance(self, state: dict[str, list[int]], reply: Go) -> dict[str, list[int]]:  # noqa: ARG002 - as above
        first, *others = state
        shared = {id(row): [*row] for row in state.values()}  # as a deep copy keeps what is shared
        copied = {name: shared[id(state[name])] for name in (*others, first)}
        copied[first][0] += 1
        return copied

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Go:  # noqa: ARG002 - as above
        return Go(number=int(prompt.user.split()[1].rstrip(":")))


@pytest.mark.slow
async def test_a_chain_that_stops_at_each_step_goes_on_in_the_states_of_one_sitting(tmp_path: Path) -> None:
    whole = await walk(Queue(), tmp_path / "whole")
    assert whole.value == {"y": [1], "a": [1], "z": [2]}
    stopped = await walk(Queue(), tmp_path / "parts", max_calls=1)
    for calls in range(2, STEPS + 1):
        stopped = await resume("r", runs_dir=tmp_path / "parts", max_calls=calls)
    assert (stopped.value, [*stopped.value]) == (whole.value, [*whole.value])
    assert stopped.account.decisions_sha256 == whole.account.decisions_sha256


class Kinds(ChainTask[list[str], Go]):
    """A chain whose states tell 0.0 from -0.0, which cast the same vote; the simulated model errs by the sign only."""

    def start(self) -> list[str]:
        return []

    def done(self, state: list[str]) -> bool:
        return len(state) == 40

    def prompt(self, state: list[str]) -> Prompt:
        return Prompt(user=f"step {len(state)}")

    def advance(self, state: list[str], reply: Go) -> list[str]:
        return [*state, repr(reply.number)]

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Go:  # noqa: ARG002 - as above
        return Go(number=0.0)

    def mistake(self, prompt: Prompt, right: Reply, rng: Random) -> Reply:  # noqa: ARG002 - as above
        return Go(number=-0.0)


@pytest.mark.slow
async def test_a_guess_that_equals_the_decision_without_being_the_same_leads_to_no_state() -> None:
    values = [
        (
            await run(
                Kinds(),
                models="sim:perfect@error=0.4,latency=0.002,sigma=1",
                k=2,
                seed=3,
                runs_dir=None,
                speculate=speculate,
            )
        ).value
        for speculate in (True, False)
    ]
    assert values[0] == values[1]


class Held(TypedDict):
    """A state as a typed dict."""

    number: int


class Page(BaseModel):
    """A state as a model of pydantic, within which is another."""

    number: int
    before: Page | None = None


def grown(kind: Any, before: Any) -> Any:
    """Make a state of a class from the one before."""
    if kind is Page:
        return Page(number=before.number + 1, before=before)
    if kind is Held:
        return Held(number=before["number"] + 1)
    if kind is float:
        return int(before + 1)
    return kind.__origin__([*before, len(before)])


FIRST = {Page: Page(number=0), Held: Held(number=0), float: 0, deque[int]: deque[int](), list[int]: list[int]()}


@pytest.mark.parametrize("kind", FIRST)
async def test_a_state_is_of_any_class_that_json_or_pydantic_writes_and_a_resumed_chain_goes_on_in_it(
    tmp_path: Path, kind: Any
) -> None:
    states = [FIRST[kind]]
    for _ in range(STEPS):
        states.append(grown(kind, states[-1]))

    class Growing(ChainTask[kind, Go]):
        def start(self) -> Any:
            return FIRST[kind]

        def done(self, state: Any) -> bool:
            return bool(state == states[-1])

        def prompt(self, state: Any) -> Prompt:
            return Prompt(user=f"step {states.index(state)}")

        def flag(self, state: Any, reply: Go) -> str | None:
            return None if states.index(state) == reply.number else "elsewhere"

        def advance(self, state: Any, reply: Go) -> Any:  # noqa: ARG002 - the reply is its number
            return grown(kind, state)

        def expert(self, prompt: Prompt, reply: type[Reply]) -> Go:  # noqa: ARG002 - as above
            return Go(number=int(prompt.user.split()[1]))

    stopped = await walk(Growing(), tmp_path, max_calls=2)
    assert stopped.outcome == "stopped"
    assert (await walk(Growing(), tmp_path, max_calls=STEPS)).value == states[-1]


@pytest.mark.parametrize(
    ("method", "gives", "said"),
    [
        ("advance", None, r"Path5\.advance must give a list, not None at step 0 "),
        ("steps", -1, r"Path5\.steps must give a whole number from 0 on or None, not -1 "),
        ("prompt", "\ud800", "the user part of a Prompt has half of a character, which no model can read"),
    ],
)
async def test_a_value_that_a_chain_cannot_use_is_laid_to_the_method_that_gave_it(
    tmp_path: Path, method: str, gives: Any, said: str
) -> None:
    class Path5(ChainTask[list[int], Go]):
        def start(self) -> list[int]:
            return []

        def done(self, state: list[int]) -> bool:
            return len(state) == STEPS

        def prompt(self, state: list[int]) -> Prompt:
            return Prompt(user=f"step {len(state)}{gives if method == 'prompt' else ''}")

        def steps(self) -> int | None:
            return gives if method == "steps" else None

        def advance(self, state: list[int], reply: Go) -> list[int]:  # noqa: ARG002 - as above
            return gives if method == "advance" else [*state, 0]

        def expert(self, prompt: Prompt, reply: type[Reply]) -> Go:  # noqa: ARG002 - as above
            return Go(number=int(prompt.user.split()[1]))

    with pytest.raises(TaskFailed, match=said):
        await walk(Path5(), tmp_path)
