"""Models of a user's own: their options, and samples that are of no use."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from microagents import Call, ChainTask, Context, InvalidUsage, Model, ModelUnavailable, Sample, Usage, run
from microagents.base.errors import TaskFailed
from microagents.models.model import ModelSpec
from microagents.systems import Maker
from microagents.tasks.drift import RING, Drift

CONTEXT = Context(run_id="r", seed=0, tasks=[Drift()], strategy=Maker())


class Priced(Model):
    def __init__(self, price: float, times: int = 1) -> None:
        self.price, self.times = price, times


class Giving(Model):
    def __init__(self, given: Any) -> None:
        self.given = given

    async def complete(self, call: Call) -> Any:  # noqa: ARG002 - it has one answer
        return self.given


async def answer(call: Call) -> str:
    return call.prompt.user


@pytest.mark.parametrize(
    ("options", "said"), [({"price": "dear"}, "valid number"), ({}, "price"), ({"price": "1", "color": "red"}, "color")]
)
def test_options_that_a_class_does_not_take_are_refused_in_one_sentence(options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidUsage, match=f"Priced does not take the options.*{said}"):
        Priced.open(ModelSpec(provider="m.py", name="Priced", options=options), CONTEXT)


@pytest.mark.parametrize(
    "given",
    [
        "text",
        Sample(text=5),  # type: ignore[arg-type]
        Sample(text="number = 22", finish=None),  # type: ignore[arg-type]
        Sample(text="number = 22", shares=[1]),  # type: ignore[arg-type]
        Sample(text="number = 22", turn="x"),  # type: ignore[arg-type]
    ],
    ids=["no sample", "no text", "no finish", "no shares", "no turn"],
)
@pytest.mark.parametrize("runtime", ["local", "linked"])
async def test_a_sample_of_no_use_ends_the_run_with_the_name_of_its_provider(given: object, runtime: Any) -> None:
    with pytest.raises(ModelUnavailable, match="Giving must give a Sample"):
        await run(Drift(length=1), models=Giving(given), runs_dir=None, runtime=runtime)


@pytest.mark.parametrize("runtime", ["local", "linked"])
async def test_half_a_character_of_a_models_text_ends_nothing(runtime: Any) -> None:
    """Such as of an emoji that the limit of output tokens has cut."""
    result = await run(
        Drift(length=1), models=Giving(Sample(text="\ud83d\nnumber = 22")), runs_dir=None, runtime=runtime
    )
    assert result.outcome == "completed"


ERRORS = {
    "LookupError: gone": LookupError("gone"),
    "TimeoutError": TimeoutError(),
    "SystemExit: 3": SystemExit(3),
    "GeneratorExit": GeneratorExit(),
    "CancelledError": asyncio.CancelledError(),
}


@pytest.mark.parametrize("runtime", ["local", "linked"])
@pytest.mark.parametrize("shown", ERRORS)
async def test_an_error_of_a_models_own_code_names_the_model_and_the_line(shown: str, runtime: Any) -> None:
    async def broken(call: Call) -> str:  # noqa: ARG001 - it is asked once
        await asyncio.sleep(0)
        raise ERRORS[shown]

    said = rf"^the model \S+broken raised {shown} in \S+broken \(test_own_models.py:\d+\)$"
    with pytest.raises(TaskFailed, match=said):
        async with asyncio.timeout(10):
            await run(Drift(length=1), models=broken, runs_dir=None, runtime=runtime)


@pytest.mark.parametrize("shown", ERRORS)
async def test_an_error_of_a_models_plain_method_names_the_model(shown: str) -> None:
    class Broken(Model):
        def complete(self, call: Call) -> Any:  # noqa: ARG002 - it is asked once
            raise ERRORS[shown]

    with pytest.raises(TaskFailed, match=rf"^the model \S+Broken raised {shown} in "):
        async with asyncio.timeout(10):
            await run(Drift(length=1), models=Broken(), runs_dir=None)


class Stating(Giving):
    """States everything about itself in ``__init__``."""

    def __init__(self, given: object) -> None:
        super().__init__(given)
        self.priced = self.answers_at_once = self.joins_guesses = True
        self.max_in_flight, self.max_samples = 2, 1


@pytest.mark.slow
async def test_a_model_states_in_its_init_what_it_is_and_answers_at_once_without_tasks_of_its_calls() -> None:
    tasks = 0

    def counted(loop: asyncio.AbstractEventLoop, work: Any) -> asyncio.Task[Any]:
        nonlocal tasks
        tasks += 1
        return asyncio.Task(work, loop=loop)

    given = Sample(text="number = 22", usage=Usage(cost_usd=0.5))  # the number of the first step, whatever it is asked
    asyncio.get_running_loop().set_task_factory(counted)
    result = await run(Drift(length=300), models=Stating(given), strategy=Maker(k=1, speculate=False), runs_dir=None)
    assert (result.outcome, result.calls, result.cost_usd) == ("completed", 300, 150.0)
    assert tasks < 100


class Duck:
    """A model that is no subclass of `Model`."""

    priced = True

    def __init__(self, usage: Usage | None = None) -> None:
        self._usage = usage

    async def complete(self, call: Call) -> Sample | str:
        number = int(call.prompt.user.removeprefix("Number: "))
        text = f"number = {(number * 17 + 5) % RING}"
        return text if self._usage is None else Sample(text=text, usage=self._usage)


class Blocking:
    def complete(self, call: Call) -> str:
        raise NotImplementedError


@pytest.mark.parametrize("runtime", ["local", "ray"])
async def test_an_object_with_an_async_complete_is_a_model(runtime: str) -> None:
    result = await run(Drift(length=3), models=Duck(Usage(cost_usd=0.5)), k=1, runtime=runtime, runs_dir=None)
    assert (result.outcome, result.account.errors, result.cost_usd) == ("completed", 0, 1.5)
    assert result.settings["models"] == {"": (f"object:{__name__}:Duck",)}


async def test_such_an_object_may_return_a_text_and_stand_in_a_pool() -> None:
    result = await run(Drift(length=3), models=[Duck(), "sim:perfect"], runs_dir=None)
    assert (result.outcome, result.account.errors, result.cost_usd) == ("completed", 0, None)


@pytest.mark.parametrize(
    ("given", "said"), [(Blocking(), "with an `async def complete"), (Duck, "give an instance of a model")]
)
async def test_an_object_that_cannot_be_awaited_is_no_model(given: Any, said: str) -> None:
    with pytest.raises(InvalidUsage, match=said):
        await run(Drift(length=1), models=given, runs_dir=None)


async def test_two_objects_of_one_class_need_a_spec_each() -> None:
    with pytest.raises(InvalidUsage, match="give each object"):
        await run(Drift(length=1), models=[Giving("1"), Giving("2")], runs_dir=None)


async def test_a_task_whose_first_prompt_fails_is_named_in_one_sentence() -> None:
    class Failing(Drift):
        def prompt(self, state: Any) -> Any:  # noqa: ARG002 - it always fails
            raise ValueError("no words")

    assert issubclass(Failing, ChainTask)
    with pytest.raises(Exception, match=r"Failing\.(first_)?prompt raised ValueError\('no words'\)"):
        await run(Failing(length=1), models="sim:perfect", runs_dir=None)
