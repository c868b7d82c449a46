"""The tools of MCP servers, read before a run begins: they are a part of its prompts, and so of its identity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import structs

from microagents.base.aio import TaskScope
from microagents.base.errors import InvalidDefinition, InvalidUsage
from microagents.runs.plan import RunPlan
from microagents.runs.task_list import TaskList
from microagents.runs.words.money import specs_in
from microagents.task import Task
from microagents.tools.mcp_connections import McpConnections
from microagents.tools.toolbox import servers_in


async def with_tools_of_servers(plan: RunPlan) -> RunPlan:
    """Return the plan, with the tools of the MCP servers that its tasks name.

    Raises:
        InvalidDefinition: a task other than an agent has tools that do more than read, or lacks a field for its servers' tools.
        InvalidUsage: a server cannot be reached, or its tools are others than the recorded ones.
    """
    first = plan.tasks[0]
    servers = servers_in(first.all_tools())
    if not servers:
        return _checked(plan)
    if "mcp_tools" not in type(first).model_fields:
        raise InvalidDefinition(
            f"add the field `mcp_tools: dict[str, list[dict[str, Any]]] = {{}}` to {type(first).__name__}: there the tools of its MCP "
            "servers become a part of the run's identity"
        )
    connections = McpConnections()
    try:
        async with TaskScope() as scope:  # side by side: one that does not answer takes the time of all
            listing = {server.text: scope.start(connections.list_tools(server)) for server in servers}
            tools = {text: await each for text, each in listing.items()}
    finally:
        await connections.close()
    listed = msgspec.json.decode(msgspec.json.encode(tools))  # as a journal gives them back, with lists for tuples
    for server, recorded in getattr(first, "mcp_tools", {}).items():
        if recorded != listed.get(server):
            raise InvalidUsage(_difference(server, recorded, listed.get(server, [])))
    return _checked(structs.replace(plan, tasks=_with_option(plan.tasks, "mcp_tools", listed)))


def _checked(plan: RunPlan) -> RunPlan:
    first = plan.tasks[0]
    if first.looks_up:
        assert first.toolbox.specs
        specs = [spec for spec in specs_in(plan.settings["models"]) if "json_schema=true" in spec]
        if specs:
            raise InvalidUsage(
                f"{specs[0]} can only write the reply itself (json_schema=true), and look nothing up; leave json_schema out"
            )
    return plan


def _with_option(tasks: Sequence[Task], name: str, value: object) -> Sequence[Task]:
    if isinstance(tasks, TaskList):
        return TaskList(type(tasks[0]), {**tasks.first, name: value}, tasks.own)
    return [task.model_copy(update={name: value}) for task in tasks]


def _difference(server: str, recorded: Sequence[dict[str, Any]], now: Sequence[dict[str, Any]]) -> str:
    """Say which tools of a server are others than when the run began."""
    before = {each["name"]: each for each in recorded}
    after = {each["name"]: each for each in now}
    changed = sorted(name for name in {**before, **after} if before.get(name) != after.get(name))
    return (
        f"the tools of {server} are others than when the run began ({', '.join(changed)}), so it is another experiment; nothing was "
        "changed; start the server in its version of then, or begin another run"
    )
