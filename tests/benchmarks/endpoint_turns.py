"""Loops of an agent through the endpoint: their bill without a policy, and when their context is compacted."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import groupby, pairwise
from random import Random
from typing import Any

from openai import AsyncOpenAI

from microagents.web.endpoint.callers import Caller
from microagents.web.endpoint.policy import Policy, ToolPolicy
from microagents.web.endpoint.server import Endpoint, serving
from tests.benchmarks.endpoint_bodies import large_clients
from tests.benchmarks.endpoint_clients import chat
from tests.doubles.acting import Acting, Answer, Request, Said, acting

STEPS = 10
WRONG = 0.2
ALTERNATIVES = 4
TOOLS = ("bash", *(f"tool_{number}" for number in range(1, 12)))
WORDINGS = 50
TURNS = 30
TOKENS_A_RESULT = 9_000
LIMIT = 160_000
"""Tokens above which the script compacts."""
SUMMARY = re.compile("detailed summary|CHECKPOINT")
"""How coding agents ask for one."""
RESULT = re.compile(rb'"tool_call_id"|"function_call_output"|"tool_result"')
ANY = Policy()


def results_in(request: Request) -> int:
    """Count the results of calls in a request."""
    return len(RESULT.findall(request.body))


@asynccontextmanager
async def voted(double: Acting, k: int, *, stagger: str = "off", policy: Policy = ANY) -> AsyncIterator[str]:
    """The address of an endpoint before a double; at k = 0 of the double itself."""
    if not k:
        yield double.url
        return
    models = [
        f"{name}@base_url={double.url}{end},stagger={stagger}"
        for name, end in (("openai:m", "/v1"), ("anthropic:m", ""))
    ]
    async with serving(Endpoint(models=models, k=k, callers=[Caller(policy=policy)])) as served:
        yield served.url


def steps_of(random: Random, wrong: float = WRONG) -> Callable[[Request], int]:
    """Give the number of the next step, wrong in some of the replies."""

    def number(request: Request) -> int:
        is_wrong = random.random() < wrong
        return results_in(request) + (100 * random.randint(1, ALTERNATIVES) if is_wrong else 0)

    return number


# -- a coding agent without a policy -----------------------------------------------------------------------------------


async def measure_agent(loops: int) -> None:
    """Print how often loops of an agent end, whose tool for commands has a sentence that each sample words anew."""
    freed = Policy(tools={"bash": ToolPolicy(ignore=("description",))})
    for title, k, policy in (("one sample", 1, ANY), ("k = 3, no policy", 3, ANY), ("k = 3, ignored", 3, freed)):
        random = Random(title)
        next_step, ended, right = steps_of(random), 0, 0

        def answer(request: Request, random: Random = random, next_step: Any = next_step) -> Said:
            at = results_in(request)
            if at >= STEPS:
                return "All steps are done."
            arguments: dict[str, Any] = {"number": next_step(request)}
            name = TOOLS[0] if at % 2 else TOOLS[1 + at]
            if name == TOOLS[0]:
                arguments["description"] = f"Wording {random.randrange(WORDINGS)}"
            return [(name, arguments)]

        async with acting(answer) as double, voted(double, k, policy=policy) as url:
            for _ in range(loops):
                made: list[int] = []

                def step(number: int, made: list[int] = made) -> str:
                    made.append(number)
                    return "done"

                await chat(url, step, streams=False, names=TOOLS)
                ended += len(made) == STEPS
                right += made == list(range(STEPS))
            samples = len(double.requests) / loops / (STEPS + 1)
        print(f"{title:<20} {ended} of {loops} end, {right} right, {samples:.2f} samples a call", flush=True)


# -- compaction --------------------------------------------------------------------------------------------------------


async def counting(url: str) -> None:
    """A client that compacts its context by the usage that it reads, as coding agents do."""
    tools: Any = [
        {"type": "function", "function": {"name": "step", "parameters": {"type": "object", "properties": {}}}}
    ]
    turns: list[Any] = [{"role": "user", "content": "Go on."}]
    async with AsyncOpenAI(api_key="none", base_url=f"{url}/v1") as client:
        for _ in range(TURNS):
            reply = await client.chat.completions.create(model="m", messages=turns, tools=tools)
            message, usage = reply.choices[0].message, reply.usage
            if usage is not None and usage.total_tokens > LIMIT:
                turns = turns[:1]
            elif message.tool_calls:
                turns.append(message.model_dump(include={"role", "content", "tool_calls"}))
                turns.append({"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "done"})


def working(tool: str, arguments: Mapping[str, Any]) -> Answer:
    """Call one tool again and again, and summarize when asked to."""
    seen = set[bytes]()

    def answer(request: Request) -> Said:
        asked = request.json
        turns: Any = asked.get("messages") or asked.get("input")
        last = json.dumps(turns[-1])
        seen.add(json.dumps(turns).encode())
        if SUMMARY.search(last) or tool not in request.body.decode() or len(seen) > TURNS:
            return "This is the summary: go on."
        return [(tool, dict(arguments))]

    return answer


async def compacted(client: Callable[[str], Awaitable[None]], answer: Answer, k: int) -> list[int]:
    """Run a client; returns the number of results in its requests after which its context was smaller."""
    async with acting(answer) as double, voted(double, k) as url:
        double.tokens = lambda request: TOKENS_A_RESULT * (1 + results_in(request))
        await client(url)
        asked = [each for each in double.requests if results_in(each) or b'"user"' in each.body]
        counts = [count for count, _ in groupby(map(results_in, asked))]
    return [before for before, after in pairwise(counts) if after < before]


async def measure_compaction() -> int:
    """Print the turns at which clients compact their context, with one sample and through the endpoint; returns 1 if they differ."""
    differing = 0
    with tempfile.TemporaryDirectory() as home:
        kinds: dict[str, tuple[Any, str, dict[str, Any]]] = {"a script that counts": (counting, "step", {})}
        large = large_clients(home)
        if "Claude Code" in large:
            kinds["Claude Code"] = large["Claude Code"], "Bash", {"command": "echo done", "description": "Say done"}
        if "Codex" in large:
            kinds["Codex"] = large["Codex"], "exec_command", {"cmd": "echo done"}
        for name, (client, tool, arguments) in kinds.items():
            alone, through = [await compacted(client, working(tool, arguments), k) for k in (0, 3)]
            differing += alone != through
            verdict = "the same" if alone == through else "DIFFERS"
            print(
                f"{name} compacts behind results {alone} alone, {through} through the endpoint: {verdict}", flush=True
            )
    return int(differing > 0)
