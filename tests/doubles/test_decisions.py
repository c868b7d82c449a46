"""A run through an endpoint over real HTTP decides as the simulated model decides in process: with each SDK, on each wire."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from microagents import Call, ChainTask, Model, Prompt, Reply, Result, Sample, Task, client_model, run
from microagents.actors.registry import STRATEGIES
from microagents.actors.role import Context, Strategy
from microagents.models.model import open_model
from microagents.systems import Maker
from microagents.systems.questions import Problem
from microagents.systems.swarm.steps import step_question_in
from microagents.tasks.drift import Drift, Onward, Place
from microagents.tasks.word_problems import WordProblem
from tests.doubles.simulated.faults import Fault
from tests.doubles.simulated.server import Endpoint, serving
from tests.systems.swarm.test_swarm import Letters, right

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OFTEN_WRONG = "sim:perfect@error=0.4,flag=0.2,alternatives=2"
"""At k = 1 four decisions in ten are wrong, and on `drift` each of them changes all later questions."""
WIRES = ("openai", "openai-responses", "anthropic")
STEPS = 25


class InProcess(Model):
    """The simulated model in this process, under the name of one that is asked over HTTP: the name is a part of every question."""

    priced = True

    def __init__(self, task: Task, spec: str, model: str) -> None:
        self.spec = spec
        self._model = open_model(model, Context(run_id="r", seed=0, tasks=[task], strategy=Strategy()))

    async def complete(self, call: Call) -> Sample:
        return await self._model.complete(call)


@asynccontextmanager
async def through_sdk(wire: str, url: str) -> AsyncIterator[Model]:
    """A model that a user's own client of the wire's SDK asks."""
    if wire == "anthropic":
        async with AsyncAnthropic(api_key="none", base_url=url) as anthropic:
            yield client_model(anthropic, "m")
    else:
        async with AsyncOpenAI(api_key="none", base_url=f"{url}/v1") as openai:
            yield client_model(openai, "m", responses=wire == "openai-responses")


def spec_of(wire: str, url: str) -> str:
    return f"{wire}:m@base_url={url}{'' if wire == 'anthropic' else '/v1'}"


def digests(result: Result) -> tuple[object, ...]:
    account = result.account
    return result.outcome, account.decisions_sha256, account.ballots_sha256, account.flagged, account.errors


async def walked(models: Any, task: Task, **options: Any) -> Result:
    return await run(task, models=models, k=1, runs_dir=None, run_id="r", **options)


@pytest.mark.slow
@pytest.mark.parametrize("wire", WIRES)
async def test_with_a_spec_the_votes_decide_as_in_process_in_spite_of_faults(
    wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Draws depend on the text of the prompt, not on the spec: the same ballots, in spite of the faults.
    monkeypatch.setattr("microagents.roles.solver.outages.BACKOFF_S", (0.001, 0.001))
    task, model = Drift(length=STEPS), "sim:perfect@error=0.05,flag=0.1"
    faults = [Fault(kind=kind, share=0.05) for kind in ("429", "500", "reset", "garbage")]
    here = await run(task, models=model, k=5, runs_dir=None)
    async with serving(Endpoint(model=model, task=task, faults=faults)) as served:
        there = await run(task, models=spec_of(wire, served.url), k=5, runs_dir=None)
    assert there.account.decisions_sha256 == here.account.decisions_sha256
    assert there.account.ballots_sha256 == here.account.ballots_sha256
    assert set(served.faults) == {fault.kind for fault in faults}
    assert there.account.repeated.keys() <= {"busy", "server", "broken", "garbled"}


@pytest.mark.slow
@pytest.mark.parametrize("speculate", [True, False])
async def test_several_votes_a_request_are_those_of_single_requests(*, speculate: bool) -> None:
    """Streamed where the chain guesses ahead, and plain where it does not."""
    task, model = Drift(length=STEPS), "sim:perfect@error=0.1,flag=0.1"
    async with serving(Endpoint(model=model, task=task)) as served:
        single, several = [
            await run(
                task,
                models=f"openai:m@base_url={served.url}/v1,votes_per_request={number}",
                strategy=Maker(k=4, speculate=speculate),
                runs_dir=None,
                run_id="r",
            )
            for number in (1, "auto")
        ]
    assert digests(several) == digests(single)
    assert several.account.joined > 2 * STEPS
    assert several.account.calls < single.account.calls


class Proven(Drift):
    """Sends a wrong reply back."""

    def verify(self, state: Place, reply: Onward) -> str | None:
        return None if reply == self.oracle(state) else "it is wrong"


@pytest.mark.slow
async def test_a_reply_that_is_sent_back_with_feedback_is_drawn_again_as_in_process() -> None:
    task = Proven(length=STEPS)
    assert isinstance(task, ChainTask)
    here = await walked(InProcess(task, "openai:m", OFTEN_WRONG), task)
    async with serving(Endpoint(model=OFTEN_WRONG, task=task)) as served, through_sdk("openai", served.url) as model:
        there = await walked(model, task)
    assert (here.outcome, here.account.errors) == ("completed", 0)
    assert digests(there) == digests(here)


class Spelled(Letters):
    """Letters, with an expert in every role of the swarm."""

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:  # noqa: ARG002 - the prompt tells what is wanted
        return right(step_question_in(prompt))


OF_PROBLEMS = [name for name in STRATEGIES.shipped if issubclass(Problem, STRATEGIES.find(name, Strategy).solves)]
"""The shipped strategies that solve any problem."""
OPTIONS: dict[str, dict[str, Any]] = {"seqcv": {"same_model": True}}
"""What these need with one model."""


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_PROBLEMS)
async def test_every_question_of_a_strategy_for_problems_is_answered_as_in_process(name: str) -> None:
    # One answer is wrong in a sixth of these questions, in process too; this instance is one that every strategy answers right there.
    task, model = Spelled(steps=2) if name == "swarm" else WordProblem(depth=2, instance=1), "sim:perfect"
    strategy = STRATEGIES.find(name, Strategy)(**OPTIONS.get(name, {}))
    here = await run(task, models=InProcess(task, "openai:m", model), strategy=strategy, runs_dir=None, run_id="r")
    async with serving(Endpoint(model=model, task=task)) as served, through_sdk("openai", served.url) as asked:
        there = await run(task, models=asked, strategy=strategy, runs_dir=None, run_id="r")
    assert there.outcome == "completed"
    assert there.value["correct"] is True
    assert digests(there) == digests(here)
