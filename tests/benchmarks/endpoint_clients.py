"""Unmodified clients that run a loop of calls against an address: SDKs, and agents of frameworks where these are installed."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

TASK = "Do the steps in order."
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"number": {"type": "integer"}},
    "required": ["number"],
}
MOST_TURNS = 20
Loop = Callable[[str, Callable[[int], str]], Awaitable[None]]
"""Runs one loop against an address, without ``/v1``; the function makes a step and gives its result."""


async def chat(url: str, step: Callable[[int], str], *, streams: bool, names: Sequence[str] = ("step",)) -> None:
    """A loop on chat completions, with tools of some names."""
    tools: Any = [{"type": "function", "function": {"name": name, "parameters": PARAMETERS}} for name in names]
    messages: list[Any] = [{"role": "user", "content": TASK}]
    async with AsyncOpenAI(api_key="none", base_url=f"{url}/v1") as client:
        for _ in range(MOST_TURNS):
            if streams:
                async with client.chat.completions.stream(model="m", messages=messages, tools=tools) as stream:
                    message: Any = (await stream.get_final_completion()).choices[0].message
            else:
                found = await client.chat.completions.create(model="m", messages=messages, tools=tools)
                message = found.choices[0].message
            if not message.tool_calls:
                return
            calls = [
                {"id": each.id, "type": "function", "function": each.function.model_dump(include={"name", "arguments"})}
                for each in message.tool_calls
            ]
            messages.append({"role": "assistant", "content": message.content, "tool_calls": calls})
            for each in message.tool_calls:
                result = step(json.loads(each.function.arguments)["number"])
                messages.append({"role": "tool", "tool_call_id": each.id, "content": result})


async def responses(url: str, step: Callable[[int], str], *, streams: bool) -> None:
    """A loop on responses."""
    tools: Any = [{"type": "function", "name": "step", "parameters": PARAMETERS, "strict": False}]
    items: list[Any] = [{"role": "user", "content": TASK}]
    options: Any = {"include": ["reasoning.encrypted_content"], "store": False}
    async with AsyncOpenAI(api_key="none", base_url=f"{url}/v1") as client:
        for _ in range(MOST_TURNS):
            if streams:
                async with client.responses.stream(model="m", input=items, tools=tools, **options) as stream:
                    found: Any = await stream.get_final_response()
            else:
                found = await client.responses.create(model="m", input=items, tools=tools, **options)
            calls = [each for each in found.output if each.type == "function_call"]
            if not calls:
                return
            for each in found.output:
                kept = each.model_dump(exclude_none=True, exclude={"parsed_arguments"})
                items.append({name: value for name, value in kept.items() if name != "status"})
            for each in calls:
                result = step(json.loads(each.arguments)["number"])
                items.append({"type": "function_call_output", "call_id": each.call_id, "output": result})


async def messages(url: str, step: Callable[[int], str], *, streams: bool) -> None:
    """A loop on messages."""
    tools: Any = [{"name": "step", "input_schema": PARAMETERS}]
    turns: list[Any] = [{"role": "user", "content": TASK}]
    asked: Any = {"model": "m", "max_tokens": 64_000, "tools": tools}
    async with AsyncAnthropic(api_key="none", base_url=url, timeout=60) as client:
        for _ in range(MOST_TURNS):
            if streams:
                async with client.messages.stream(messages=turns, **asked) as stream:
                    found: Any = await stream.get_final_message()
            else:
                found = await client.messages.create(messages=turns, **asked)
            calls = [each for each in found.content if each.type == "tool_use"]
            if not calls:
                return
            turns.append(
                {"role": "assistant", "content": [each.model_dump(exclude_none=True) for each in found.content]}
            )
            results = [
                {"type": "tool_result", "tool_use_id": each.id, "content": step(each.input["number"])} for each in calls
            ]
            turns.append({"role": "user", "content": results})


async def openai_agents(url: str, step: Callable[[int], str], *, on: str, streams: bool) -> None:
    """An agent of openai-agents."""
    agents: Any = import_module("agents")
    agents.set_tracing_disabled(True)

    def make(number: int) -> str:
        """Make a step."""
        return step(number)

    async with AsyncOpenAI(api_key="none", base_url=f"{url}/v1") as client:
        kind = agents.OpenAIResponsesModel if on == "responses" else agents.OpenAIChatCompletionsModel
        tool = agents.function_tool(make, name_override="step")
        agent = agents.Agent(name="a", model=kind(model="m", openai_client=client), tools=[tool])
        if streams:
            running = agents.Runner.run_streamed(agent, TASK, max_turns=MOST_TURNS)
            async for _ in running.stream_events():
                pass
        else:
            await agents.Runner.run(agent, TASK, max_turns=MOST_TURNS)


async def pydantic_ai(url: str, step: Callable[[int], str], *, on: str, streams: bool) -> None:
    """An agent of pydantic-ai."""
    module: Any = import_module("pydantic_ai")
    sdk = "Anthropic" if on == "messages" else "OpenAI"
    made_by: Any = getattr(import_module(f"pydantic_ai.providers.{sdk.lower()}"), f"{sdk}Provider")
    provider = made_by(api_key="none", base_url=url if on == "messages" else f"{url}/v1")
    kind = {"chat": "OpenAIChatModel", "responses": "OpenAIResponsesModel", "messages": "AnthropicModel"}[on]
    model = getattr(import_module(f"pydantic_ai.models.{sdk.lower()}"), kind)("m", provider=provider)
    agent = module.Agent(model)

    @agent.tool_plain(name="step")  # type: ignore[untyped-decorator]
    def make(number: int) -> str:
        """Make a step."""
        return step(number)

    if streams:
        async with agent.iter(TASK) as running:
            async for node in running:
                if module.Agent.is_model_request_node(node):
                    async with node.stream(running.ctx) as events:
                        async for _ in events:
                            pass
    else:
        await agent.run(TASK)


async def langgraph(url: str, step: Callable[[int], str], *, on: str, streams: bool) -> None:
    """A ReAct agent of LangGraph."""
    openai: Any = import_module("langchain_openai")
    tools: Any = import_module("langchain_core.tools")

    def make(number: int) -> str:
        """Make a step."""
        return step(number)

    form: Any = {"use_responses_api": on == "responses", "streaming": streams}
    model = openai.ChatOpenAI(model="m", api_key="none", base_url=f"{url}/v1", **form)
    tool = tools.StructuredTool.from_function(make, name="step")
    agent = import_module("langgraph.prebuilt").create_react_agent(model, [tool])
    await agent.ainvoke({"messages": [("user", TASK)]}, {"recursion_limit": 3 * MOST_TURNS})


SDKS: Mapping[str, tuple[str, Loop]] = {
    f"{name}{how}": (on, partial(loop, streams=streams))
    for streams, how in ((False, ""), (True, ", streamed"))
    for name, on, loop in (
        ("openai, chat", "chat", chat),
        ("openai, responses", "responses", responses),
        ("anthropic", "messages", messages),
    )
}
"""Loops on the bare SDKs by name, each with its wire."""
FRAMEWORKS: Mapping[str, tuple[str, tuple[str, ...], Callable[..., Awaitable[None]]]] = {
    "openai-agents": ("agents", ("chat", "responses"), openai_agents),
    "pydantic-ai": ("pydantic_ai", ("chat", "responses", "messages"), pydantic_ai),
    "langgraph": ("langgraph", ("chat", "responses"), langgraph),
}
"""By name, the module of a framework, its wires and its loop."""


def clients() -> tuple[dict[str, tuple[str, Loop]], list[str]]:
    """Return the loops of frameworks, on each wire, streamed and not, and the frameworks that are not installed."""
    found: dict[str, tuple[str, Loop]] = {}
    missing = [name for name, (module, _, _) in FRAMEWORKS.items() if find_spec(module) is None]
    for name, (_, wires, loop) in FRAMEWORKS.items():
        if name not in missing:
            for on in wires:
                found[f"{name}, {on}"] = on, partial(loop, on=on, streams=False)
                found[f"{name}, {on}, streamed"] = on, partial(loop, on=on, streams=True)
    return found or dict(SDKS), missing
