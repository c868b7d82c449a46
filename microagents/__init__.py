"""Long tasks by language models without an error: every micro-decision is an election."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _IS_CHECKED

from microagents.actors.role import Context, Deployment, Role, Strategy
from microagents.base import interrupts as _interrupts  # noqa: F401 - first of all: the other imports take most of a second
from microagents.base.errors import (
    InvalidUsage,
    MicroagentsError,
    ModelUnavailable,
    NotMade,
    Stopped,
)
from microagents.base.messages import Request
from microagents.elections.rules import FirstToAheadBy, Rule, Tally
from microagents.models.model import Call, Model
from microagents.replies.chat import Prompt, Prose, Reply, Sample, Sampling, Unvoted, Usage
from microagents.replies.tool_calls import LookUp, ToolCall
from microagents.runs.driver.begin import resume, run, run_sync
from microagents.runs.result import Result
from microagents.studies.compare import compare
from microagents.studies.measure import Measurement, measure
from microagents.studies.planning import Rates, plan
from microagents.systems.agents.actions import Action, AgentState
from microagents.systems.agents.agent import AgentTask
from microagents.systems.chains.row_task import RowTask
from microagents.systems.questions.problem import Problem
from microagents.task import ChainTask, Task
from microagents.tools.effect_keys import current_effect_key
from microagents.tools.mcp_servers import McpServer
from microagents.tools.tool import EffectKey, RunInput, tool
from microagents.work.conductor import Conductor
from microagents.work.durable import DurableRequest, DurableRole, Work

if _IS_CHECKED:
    from microagents.models.clients import client_model

__all__ = [
    "Action",
    "AgentState",
    "AgentTask",
    "Call",
    "ChainTask",
    "Conductor",
    "Context",
    "Deployment",
    "DurableRequest",
    "DurableRole",
    "EffectKey",
    "FirstToAheadBy",
    "InvalidUsage",
    "LookUp",
    "McpServer",
    "Measurement",
    "MicroagentsError",
    "Model",
    "ModelUnavailable",
    "NotMade",
    "Problem",
    "Prompt",
    "Prose",
    "Rates",
    "Reply",
    "Request",
    "Result",
    "Role",
    "RowTask",
    "Rule",
    "RunInput",
    "Sample",
    "Sampling",
    "Stopped",
    "Strategy",
    "Tally",
    "Task",
    "ToolCall",
    "Unvoted",
    "Usage",
    "Work",
    "client_model",
    "compare",
    "current_effect_key",
    "measure",
    "plan",
    "resume",
    "run",
    "run_sync",
    "tool",
]


def __getattr__(name: str) -> object:
    if name == "client_model":  # it imports the HTTP models and the SDKs' client, which not every program needs
        return _import_module("microagents.models.clients").client_model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
