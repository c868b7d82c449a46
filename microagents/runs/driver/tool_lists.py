"""The tools of MCP servers, read before a run begins: they are a part of its prompts, and so of its identity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import structs

from microagents.agents.agent import AgentTask
from microagents.errors import InvalidUsage
from microagents.runs.plan import RunPlan
from microagents.runs.task_list import TaskList
from microagents.task import Task
from microagents.tools.mcp_connections import McpConnections
from microagents.tools.toolbox import servers_in


async def with_tools_of_servers(plan: RunPlan) -> RunPlan:
    """The plan, with the tools of the MCP servers that its agents may call.

    Raises:
        InvalidUsage: a server cannot be reached, or its tools are others than the recorded ones.
    """
    first = plan.tasks[0]
    servers = servers_in(first.given_tools()) if isinstance(first, AgentTask) else []
    if not servers or not isinstance(first, AgentTask):
        return plan
    connections = McpConnections()
    try:
        listed = {server.text: msgspec.to_builtins(await connections.list_tools(server)) for server in servers}
    finally:
        await connections.close()
    for server, recorded in first.mcp_tools.items():
        if recorded != listed.get(server):
            raise InvalidUsage(_difference(server, recorded, listed.get(server, [])))
    return structs.replace(plan, tasks=_with_option(plan.tasks, "mcp_tools", listed))


def _with_option(tasks: Sequence[Task], name: str, value: object) -> Sequence[Task]:
    if isinstance(tasks, TaskList):
        return TaskList(type(tasks[0]), {**tasks.first, name: value}, tasks.own)
    return [task.model_copy(update={name: value}) for task in tasks]


def _difference(server: str, recorded: Sequence[dict[str, Any]], now: Sequence[dict[str, Any]]) -> str:
    """Say which tools of a server are others than when the run began."""
    before, after = ({each["name"]: each for each in tools} for tools in (recorded, now))
    changed = sorted(name for name in {**before, **after} if before.get(name) != after.get(name))
    return (
        f"the tools of {server} are others than when the run began ({', '.join(changed)}), so it is another experiment; nothing was "
        "changed; start the server in its version of then, or begin another run"
    )
