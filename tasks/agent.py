"""An agent that needs no file of its own: a goal and tools, both given as options."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs
from pydantic import Field

from microagents.actors.registry import TOOLS
from microagents.systems.agents.agent import AgentAnswer, AgentTask
from microagents.tasks.given_text import GivenText
from microagents.tools.mcp_servers import PREFIX, McpServer
from microagents.tools.toolbox import GivenTool


class Agent(AgentTask[AgentAnswer]):
    """Reach a goal with tools. It needs a real model: ``--model``."""

    goal: GivenText
    """What is to be done, complete in itself; goal=@FILE reads it from a file."""
    tool: list[str] = Field(default=[])
    """Its tools: `path/file.py:function`, `package.module:function`, `mcp:COMMAND`, `mcp:https://...`."""
    rules: str = ""
    """The rules that it follows; rules=@FILE reads them from a file."""
    trust: bool = False
    """Believe what MCP servers say of the effects of their tools. Else each of them counts as destructive."""

    def statement(self) -> str:
        return self.goal

    def policy(self) -> str:
        return self.rules

    def given_tools(self) -> Sequence[GivenTool]:
        found: list[GivenTool] = []
        for each in self.tool:
            if each.startswith(PREFIX) or ":" not in each:
                server = McpServer.parse(each)
                found.append(structs.replace(server, trusted=self.trust))
            else:
                found.append(TOOLS.find_function(each))
        return found
