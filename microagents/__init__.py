"""Long tasks by language models without an error: every micro-decision is an election."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _IS_CHECKED

from microagents.actors.role import Context, Deployment, Role, Strategy
from microagents.base import interrupts as _interrupts  # noqa: F401 - first of all: the other imports take most of a second
from microagents.base.errors import (
    Contested,
    DeadlinePassed,
    EndedEarly,
    InputMismatch,
    InvalidDefinition,
    InvalidUsage,
    JournalMismatch,
    MicroagentsError,
    ModelUnavailable,
    NeedsPerson,
    NoHandler,
    NotMade,
    NotSent,
    PeerLost,
    RoleFailed,
    Stopped,
    TakenOver,
    TaskFailed,
    Undecided,
)
from microagents.base.messages import Message, Request, Stream
from microagents.elections.election import (
    Ballot,
    Decision,
    Draw,
    Elect,
    ElectionId,
    Flagged,
    Follow,
    Question,
    Screen,
    Verdict,
)
from microagents.elections.panels import ApprovalShare
from microagents.elections.rules import BestOf, FirstTo, FirstToAheadBy, FirstValid, Rule, Tally, Unanimity
from microagents.journal.messages import Account, RecordedDecision
from microagents.models.model import Call, Model, ModelSpec, Most
from microagents.replies.chat import Prompt, Prose, Reply, Sample, Sampling, Unvoted, Usage
from microagents.replies.tool_calls import LookUp, ToolCall
from microagents.runs.driver.begin import resume, run, run_sync
from microagents.runs.driver.forecast import Forecast
from microagents.runs.result import Result
from microagents.runs.settings import Settings
from microagents.studies.compare import compare
from microagents.studies.comparison import Comparison
from microagents.systems.agents.actions import Action, AgentState, Observation
from microagents.systems.agents.agent import AgentTask
from microagents.systems.questions.problem import Problem
from microagents.task import ChainTask, Task
from microagents.tools.effect_keys import current_effect_key
from microagents.tools.mcp_servers import McpServer
from microagents.tools.tool import EffectKey, RunInput, tool
from microagents.work.conductor import Conductor
from microagents.work.durable import DurableRequest, DurableRole, Work
from microagents.work.elections import Resolution

if _IS_CHECKED:
    from microagents.models.clients import client_model

__all__ = [
    "Account",
    "Action",
    "AgentState",
    "AgentTask",
    "ApprovalShare",
    "Ballot",
    "BestOf",
    "Call",
    "ChainTask",
    "Comparison",
    "Conductor",
    "Contested",
    "Context",
    "DeadlinePassed",
    "Decision",
    "Deployment",
    "Draw",
    "DurableRequest",
    "DurableRole",
    "EffectKey",
    "Elect",
    "ElectionId",
    "EndedEarly",
    "FirstTo",
    "FirstToAheadBy",
    "FirstValid",
    "Flagged",
    "Follow",
    "Forecast",
    "InputMismatch",
    "InvalidDefinition",
    "InvalidUsage",
    "JournalMismatch",
    "LookUp",
    "McpServer",
    "Message",
    "MicroagentsError",
    "Model",
    "ModelSpec",
    "ModelUnavailable",
    "Most",
    "NeedsPerson",
    "NoHandler",
    "NotMade",
    "NotSent",
    "Observation",
    "PeerLost",
    "Problem",
    "Prompt",
    "Prose",
    "Question",
    "RecordedDecision",
    "Reply",
    "Request",
    "Resolution",
    "Result",
    "Role",
    "RoleFailed",
    "Rule",
    "RunInput",
    "Sample",
    "Sampling",
    "Screen",
    "Settings",
    "Stopped",
    "Strategy",
    "Stream",
    "TakenOver",
    "Tally",
    "Task",
    "TaskFailed",
    "ToolCall",
    "Unanimity",
    "Undecided",
    "Unvoted",
    "Usage",
    "Verdict",
    "Work",
    "client_model",
    "compare",
    "current_effect_key",
    "resume",
    "run",
    "run_sync",
    "tool",
]


def __getattr__(name: str) -> object:
    if name == "client_model":  # it imports the HTTP models and the SDKs' client, which not every program needs
        return _import_module("microagents.models.clients").client_model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
