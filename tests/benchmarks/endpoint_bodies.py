"""Requests of unmodified clients: recorded from the programs that are installed, and sent to the endpoint and to a peer."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from subprocess import DEVNULL
from typing import Any

import aiohttp

from microagents.web.endpoint.server import Endpoint, serving
from tests.benchmarks.endpoint_clients import SDKS, Loop, clients
from tests.benchmarks.harness import free_port
from tests.doubles.acting import Acting, Request, Said, acting

CLIENT_S = 300.0
"""Seconds of one client at most."""
OURS = {"model", "stream_options", "n", "store", "temperature", "seed", "include", "logprobs", "top_logprobs"}
"""Fields that are the endpoint's to set, beside the caps on output tokens, which it leaves here."""
TOOLS: Mapping[str, dict[str, Any]] = {
    "step": {"number": 0},
    "Bash": {"command": "echo done", "description": "Say done"},
    "exec_command": {"cmd": "echo done"},
    "shell": {"command": ["echo", "done"]},
}
"""Tools that the double calls, with arguments."""
RESULTS = (b'"tool_result"', b'"function_call_output"', b'"role":"tool"', b'"role": "tool"')
HEADERS = ("anthropic-beta", "anthropic-version", "openai-beta")
ENDS = (b"data: [DONE]", b"response.completed", b"message_stop")
"""The last event of a whole stream, by wire."""
Client = Callable[[str], Awaitable[None]]
"""Runs a program against an address, without ``/v1``."""


def acts(request: Request) -> Said:
    """Call a tool that the client has, and end once there is a result."""
    offered = request.body
    known = [name for name in TOOLS if f'"name":"{name}"' in offered.decode().replace('": "', '":"')]
    if known and not any(each in offered for each in RESULTS):
        return [(known[0], TOOLS[known[0]])]
    return '{"answer": "done"}'


async def lite(url: str, wire: str, *, streams: bool, **options: Any) -> None:
    """LiteLLM."""
    litellm: Any = import_module("litellm")
    base = f"{url}/v1" if wire == "openai" else url
    asked = [{"role": "user", "content": "Go on."}]
    tools = [{"type": "function", "function": {"name": "step", "parameters": {"type": "object", "properties": {}}}}]
    given = {"model": f"{wire}/m", "api_base": base, "api_key": "none", "messages": asked, "tools": tools, **options}
    reply = await litellm.acompletion(stream=streams, **given)
    if streams:
        async for _ in reply:
            pass


async def predicting(url: str) -> None:
    """A module of DSPy."""
    dspy: Any = import_module("dspy")
    model = dspy.LM("openai/m", api_base=f"{url}/v1", api_key="none", cache=False)
    with dspy.context(lm=model):
        await dspy.Predict("question -> answer").acall(question="Is it done?")


async def inspecting(url: str, wire: str) -> None:
    """A model of Inspect."""
    models: Any = import_module("inspect_ai.model")
    base = f"{url}/v1" if wire == "openai" else url
    await models.get_model(f"{wire}/m", base_url=base, api_key="none").generate("Go on.")


async def structured(url: str, sdk: str, end: str) -> None:
    """A structured reply of LangChain."""
    made_by: Any = getattr(import_module(f"langchain_{sdk.lower()}"), f"Chat{sdk}")
    model = made_by(model="m", api_key="none", base_url=f"{url}{end}")
    schema = {"title": "Answer", "type": "object", "properties": {"answer": {"type": "string"}}}
    await model.with_structured_output(schema, include_raw=True).ainvoke("Is it done?")


async def claude_code(url: str, *, program: str, home: str, words: str = "Say done by the shell.") -> None:
    """Claude Code, as a command."""
    given = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", "CLAUDE_CODE_AUTO_COMPACT_WINDOW": "200000"}
    await commanded(program, "-p", words, "--allowedTools", "Bash", home=home, given=given)


async def codex(
    url: str, *, program: str, home: str, words: str = "Say done by the shell.", settings: str = ""
) -> None:
    """Codex, as a command."""
    provider = f'{{name="voted", base_url="{url}/v1", wire_api="responses"}}'
    options = ["-c", "model_provider=voted", "-c", f"model_providers.voted={provider}", *settings.split()]
    await commanded(program, "exec", "--skip-git-repo-check", *options, "-m", "gpt-5", words, home=home, given={})


async def commanded(*command: str, home: str, given: dict[str, str]) -> None:
    """Run a command that has a home of its own."""
    environment = {"PATH": os.environ["PATH"], "HOME": home, "CODEX_HOME": home, **given}
    made = await asyncio.create_subprocess_exec(*command, cwd=home, env=environment, stdin=DEVNULL, stdout=DEVNULL)
    try:
        await made.wait()
    finally:
        if made.returncode is None:
            made.kill()


def large_clients(home: str) -> dict[str, Client]:
    """Return the command-line agents that are installed."""
    found: dict[str, Client] = {}
    for name, program, kind in (("Claude Code", "claude", claude_code), ("Codex", "codex", codex)):
        where = shutil.which(program)
        if where is None:
            print(f"not installed, and skipped: {name}")
        else:
            found[name] = partial(kind, program=where, home=home)
    return found


def looping(loop: Loop) -> Client:
    """Return a loop whose steps all succeed."""

    async def run(url: str) -> None:
        await loop(url, lambda _: "done")

    return run


def programs(home: str) -> dict[str, Client]:
    """Return the programs that are installed, by name."""
    loops, _ = clients()
    found: dict[str, Client] = {}
    for name, (_, loop) in {**SDKS, **loops}.items():
        found[name] = looping(loop)
    more: list[tuple[str, str, Client]] = [
        ("litellm", "litellm, chat", partial(lite, wire="openai", streams=False, n=2)),
        ("litellm", "litellm, chat, streamed", partial(lite, wire="openai", streams=True)),
        ("litellm", "litellm, messages", partial(lite, wire="anthropic", streams=False)),
        ("litellm", "litellm, messages, streamed", partial(lite, wire="anthropic", streams=True)),
        ("dspy", "dspy", predicting),
        ("inspect_ai", "inspect, chat", partial(inspecting, wire="openai")),
        ("inspect_ai", "inspect, messages", partial(inspecting, wire="anthropic")),
        ("langchain_openai", "langchain, schema", partial(structured, sdk="OpenAI", end="/v1")),
        ("langchain_anthropic", "langchain-anthropic, schema", partial(structured, sdk="Anthropic", end="")),
    ]
    for module, name, client in more:
        if find_spec(module) is None:
            print(f"not installed, and skipped: {name}")
        else:
            found[name] = client
    return {**found, **large_clients(home)}


async def recorded(found: Mapping[str, Client]) -> dict[str, list[Request]]:
    """Run programs against a double; returns the requests of each for replies."""
    requests: dict[str, list[Request]] = {}
    for name, client in found.items():
        async with acting(acts) as double:
            try:
                async with asyncio.timeout(CLIENT_S):
                    await client(double.url)
            except Exception as error:  # noqa: BLE001 - of the client's own reading of the double, which is not what is tried
                print(f"{name} ends with {type(error).__name__}: {str(error)[:100]}")
            asked = [each for each in double.requests if each.path.endswith(("completions", "responses", "messages"))]
            requests[name] = [each for each in asked if each.body]
    return requests


async def answered(session: aiohttp.ClientSession, url: str, asked: Request) -> tuple[int, bool]:
    """Send a recorded request; returns the status and whether the reply is whole."""
    kept = {name: asked.headers[name] for name in HEADERS if name in asked.headers}
    headers = {"content-type": "application/json", **kept}
    target = f"{url}{asked.path}{'?' if asked.query else ''}{asked.query}"
    try:
        async with session.post(target, data=asked.body, headers=headers) as response:
            body = await response.read()
    except aiohttp.ClientError:
        return 0, False
    if asked.json.get("stream"):
        return response.status, any(end in body for end in ENDS) and b'"error": {' not in body
    found = json.loads(body) if response.status == 200 else {}
    return response.status, any(found.get(name) for name in ("choices", "output", "content"))


def changes(asked: Request, forwarded: list[Request]) -> list[str]:
    """Name the fields in which a forwarded body differs that are not the endpoint's to set."""
    sent, found = asked.json, set[str]()
    for each in forwarded:
        got = each.json
        found |= {name for name in {*sent, *got} - OURS if sent.get(name) != got.get(name)}
        found |= {"query"} if each.query != asked.query else set()
        found |= {name for name in HEADERS if each.headers.get(name) != asked.headers.get(name)}
    return sorted(found)


async def finished(*command: str) -> int:
    """Run a command without its output; returns its exit code."""
    made = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=DEVNULL)
    return await made.wait()


@asynccontextmanager
async def peer(double: Acting, folder: str) -> AsyncIterator[str]:
    """The voter `its_hub` before the double, in an environment of its own; an empty address if it cannot be installed."""
    if await finished(sys.executable, "-m", "venv", folder):
        print("there is no venv here, and its_hub 1.2 is skipped")
        yield ""
        return
    if await finished(f"{folder}/bin/python", "-m", "pip", "install", "-q", "its_hub[iaas]==1.2.0"):
        print("its_hub 1.2 cannot be installed, and is skipped")
        yield ""
        return
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        f"{folder}/bin/its-iaas", "--port", str(port), stdout=DEVNULL, stderr=DEVNULL
    )
    settings = {"endpoint": f"{double.url}/v1", "api_key": "none", "model": "m", "alg": "self-consistency", "budget": 3}
    voting = {"regex_patterns": ["(?s)(.*)"], "tool_vote": "tool_hierarchical"}
    try:
        async with aiohttp.ClientSession() as session, asyncio.timeout(CLIENT_S):
            while True:
                try:
                    async with session.post(f"http://127.0.0.1:{port}/configure", json={**settings, **voting}) as done:
                        assert done.status == 200, await done.text()
                        break
                except aiohttp.ClientConnectionError:
                    await asyncio.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()


async def measure_bodies(folder: str) -> None:
    """Print how many recorded requests are answered, and what is changed of them, by the endpoint and by a peer."""
    with tempfile.TemporaryDirectory() as home:
        requests = await recorded(programs(home))
        kinds = [(name, each) for name, all_of in requests.items() for each in all_of]
        print(f"{len(kinds)} requests of {len(requests)} programs recorded")
        async with acting(acts) as double, aiohttp.ClientSession() as session:
            models = [f"openai:m@base_url={double.url}/v1", f"anthropic:m@base_url={double.url}"]
            async with serving(Endpoint(models=models, k=3)) as served:
                await measure(served.url, "the endpoint", kinds, double, session)
            async with peer(double, folder or f"{home}/peer") as url:
                if url:
                    await measure(url, "its_hub 1.2", kinds, double, session)


async def measure(
    url: str, title: str, kinds: list[tuple[str, Request]], double: Acting, session: aiohttp.ClientSession
) -> None:
    """Print the figures of one address."""
    statuses, changed, broken = Counter[int](), Counter[str](), 0
    for name, asked in kinds:
        double.requests.clear()
        status, is_whole = await answered(session, url, asked)
        statuses[status] += 1
        broken += status == 200 and not is_whole
        differing = changes(asked, double.requests) if status == 200 else []
        changed.update(differing)
        if status != 200 or differing:
            print(f"  {title}: {name}, {asked.path}: {status}; differs in {', '.join(differing) or 'nothing'}")
    others = ", ".join(f"{count} are {status}" for status, count in statuses.items() if status != 200)
    told = ", ".join(f"{name} of {count}" for name, count in changed.items())
    print(
        f"{title}: of {len(kinds)} requests {statuses[200] - broken} answered, {broken} broken replies"
        f"{', ' if others else ''}{others}; fields changed that are not the endpoint's to set: {told or 'none'}"
    )
