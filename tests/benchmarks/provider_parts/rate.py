"""How many requests a second one process sends, and what each costs it: by an SDK's default client, by our model, and by a whole run."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable

import anthropic
import httpx2
from anthropic import AsyncAnthropic
from msgspec import Struct, structs
from openai import AsyncOpenAI, DefaultAioHttpClient

from microagents import Call, Model, Prompt, client_model, run
from microagents.elections.election import ElectionId, SampleId
from microagents.models.model import ModelSpec
from microagents.models.openai import OpenAIModel
from microagents.systems import Maker
from microagents.tasks.drift import Drift, Onward
from tests.benchmarks.quick_server import quick_server

IN_FLIGHT = 1_000
MANY = 5_000
TURNS = 5
LIMITS = httpx2.Limits(max_connections=2 * IN_FLIGHT, max_keepalive_connections=2 * IN_FLIGHT)
VOTES = 3
"""Choices of a request."""
PROMPT = Prompt(system="Multiply the number by 17.", user="Number: 1")
CALL = Call(
    id=SampleId(election=ElectionId(path="0/step/0", question_digest=bytes(16)), seq=0),
    prompt=PROMPT,
    reply=Onward,
    temperature=0.1,
    max_output_tokens=64,
)


BODY = {
    "model": "m",
    "messages": [{"role": "system", "content": PROMPT.system}, {"role": "user", "content": PROMPT.user}],
    "max_tokens": 64,
    "temperature": 0.1,
}


class Rate(Struct, frozen=True, kw_only=True):
    """Figures of many requests."""

    per_s: float
    cpu_ms: float
    """Processor time of this process for each request."""
    median_s: float = 0.0
    p99_s: float = 0.0

    def row(self, name: str) -> str:
        """A line of the table."""
        return f"{name:<44} {self.per_s:>7,.0f} {self.cpu_ms:>7.2f} {self.median_s:>7.2f} {self.p99_s:>7.2f}"


async def rate_of(ask: Callable[[], Awaitable[object]], in_flight: int, requests: int) -> Rate:
    """The rate of requests, so many of them in flight."""
    left, durations = requests, list[float]()

    async def asker() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            began = time.perf_counter()
            await ask()
            durations.append(time.perf_counter() - began)

    await ask()  # imports
    gc.collect()
    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*[asker() for _ in range(in_flight)])
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    durations = sorted(durations[1:])
    return Rate(
        per_s=requests / took,
        cpu_ms=1e3 * cpu / requests,
        median_s=durations[len(durations) // 2],
        p99_s=durations[len(durations) * 99 // 100],
    )


async def sdk_rate(url: str, in_flight: int, requests: int) -> Rate:
    """The rate of the SDK's default client."""
    async with AsyncOpenAI(api_key="none", base_url=url, max_retries=0, timeout=600) as client:
        return await rate_of(lambda: client.chat.completions.create(**BODY), in_flight, requests)  # type: ignore[call-overload]


def openai_model(url: str) -> Model:
    """A model of ours."""
    return OpenAIModel(ModelSpec(provider="openai", name="m", options={"base_url": url, "timeout_s": "600"}))


def through_openai(url: str) -> Model:
    """The same by the SDK's post with its aiohttp backend, within our bounds."""
    given = AsyncOpenAI(api_key="none", base_url=url)
    return client_model(given, "m", http_client=lambda: DefaultAioHttpClient(limits=LIMITS), timeout_s="600")


def through_anthropic(url: str) -> Model:
    """The same with the other SDK."""
    given = AsyncAnthropic(api_key="none", base_url=url.removesuffix("/v1"))
    return client_model(given, "m", http_client=lambda: anthropic.DefaultAioHttpClient(limits=LIMITS), timeout_s="600")


async def model_rate(model: Model, in_flight: int, requests: int) -> Rate:
    """The rate of a model."""
    try:
        return await rate_of(lambda: model.complete(CALL), in_flight, requests)
    finally:
        await model.close()


async def by_turns(url: str, in_flight: int, requests: int) -> dict[str, Rate]:
    """The rates of models that send by our sender and by the SDKs, by turns; of each the turn with the median of processor time."""
    models = {
        "openai: model": openai_model,
        "  by openai's post": through_openai,
        "  by anthropic's post": through_anthropic,
    }
    found: dict[str, list[Rate]] = {name: [] for name in models}
    for _ in range(TURNS):
        for name, model in models.items():
            found[name].append(await model_rate(model(url), in_flight, requests))
    return {name: sorted(rates, key=lambda rate: rate.cpu_ms)[TURNS // 2] for name, rates in found.items()}


async def ballots_rate(url: str, in_flight: int, requests: int) -> Rate:
    """The rate of ballots, three in one request."""
    options = {"base_url": url, "timeout_s": "600", "votes_per_request": "3"}
    model = OpenAIModel(ModelSpec(provider="openai", name="m", options=options))
    call = structs.replace(CALL, samples=VOTES)

    async def ask() -> None:
        assert len(await model.complete_several(call)) == VOTES

    try:
        found = await rate_of(ask, in_flight, requests)
    finally:
        await model.close()
    return structs.replace(found, per_s=VOTES * found.per_s, cpu_ms=found.cpu_ms / VOTES)


async def run_rate(url: str, in_flight: int, steps: int) -> Rate:
    """The rate of a run: so many chains side by side, with one draw a step."""
    tasks = [Drift(length=steps)] * in_flight
    strategy = Maker(k=1, speculate=False)
    gc.collect()
    began, cpu = time.perf_counter(), time.process_time()
    result = await run(tasks, models=f"openai:m@base_url={url}", strategy=strategy, runs_dir=None)
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    assert (result.outcome, result.calls) == ("completed", in_flight * steps)
    return Rate(per_s=result.calls / took, cpu_ms=1e3 * cpu / result.calls)


async def measure() -> None:
    """Print the table."""
    print(f"{'':<44} {'/s':>7} {'CPU ms':>7} {'median':>7} {'p99 s':>7}")
    with quick_server() as server:
        url = f"{server}/v1"
        sdk = await sdk_rate(url, IN_FLIGHT, 2 * IN_FLIGHT)
        print(sdk.row(f"openai's default client, {IN_FLIGHT:,} in flight"))
        models = await by_turns(url, IN_FLIGHT, 2 * IN_FLIGHT)
        least_ms = min(each.cpu_ms for each in models.values())
        for name, each in models.items():
            print(each.row(name), f"{each.cpu_ms / least_ms:.1f} times the processor time")
        print((await ballots_rate(url, IN_FLIGHT, 5 * IN_FLIGHT)).row(f"ballots, {VOTES} in a request"))
        print((await run_rate(url, IN_FLIGHT, 10)).row(f"run of {IN_FLIGHT:,} chains of 10 steps, k = 1"))
    with quick_server(1.0) as server:
        url = f"{server}/v1"
        many = await model_rate(openai_model(url), MANY, 4 * MANY)
        print(many.row(f"openai: model, {MANY:,} in flight, 1 s server"))
        print(f"p99 / median: {many.p99_s / many.median_s:.2f}")
