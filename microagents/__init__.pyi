from . import ray_data
from .actors.role import Context, Deployment, Role, Strategy
from .base.errors import (
    InvalidUsage,
    MicroagentsError,
    ModelUnavailable,
    NotMade,
    Stopped,
)
from .base.messages import Request, Stream
from .elections.rules import FirstToAheadBy, Rule, Tally
from .models.clients import client_model
from .models.model import Call, Model
from .replies.chat import Prompt, Sample, Sampling, Usage
from .replies.media import File, Image
from .replies.reply import Reply
from .replies.reply_fields import Prose, Unvoted
from .replies.tool_calls import Calls, ToolCall
from .replies.turns import Turn
from .runs.driver.begin import resume, run, run_sync
from .runs.result import Result
from .studies.compare import compare
from .studies.measure import Measurement, measure
from .studies.planning import Rates, plan
from .systems.agents.actions import Action, AgentState
from .systems.agents.agent import AgentTask
from .systems.chains.row_task import RowTask
from .systems.questions.problem import Problem
from .task import ChainTask, Task
from .tools.customers import ask
from .tools.effect_keys import current_effect_key
from .tools.mcp_servers import McpServer
from .tools.tool import EffectKey, RunInput, tool
from .work.conductor import Conductor
from .work.durable import DurableRequest, DurableRole, Work

__all__ = [
    "Action",
    "AgentState",
    "AgentTask",
    "Call",
    "Calls",
    "ChainTask",
    "Conductor",
    "Context",
    "Deployment",
    "DurableRequest",
    "DurableRole",
    "EffectKey",
    "File",
    "FirstToAheadBy",
    "Image",
    "InvalidUsage",
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
    "Stream",
    "Tally",
    "Task",
    "ToolCall",
    "Turn",
    "Unvoted",
    "Usage",
    "Work",
    "ask",
    "client_model",
    "compare",
    "current_effect_key",
    "measure",
    "plan",
    "ray_data",
    "resume",
    "run",
    "run_sync",
    "tool",
]
