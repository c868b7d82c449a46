"""Long tasks by language models without an error: every micro-decision is an election."""

from microagents.actors import Context, Deployment, Role, Strategy
from microagents.chat import Prompt, Reply, Sample, Sampling, Unvoted, Usage
from microagents.durable import Conductor, DurableRole
from microagents.elections.election import Decision, Draw, Elect, Screen
from microagents.elections.rules import FirstTo, FirstToAheadBy
from microagents.errors import InvalidUsage, MicroagentsError, ModelUnavailable, RoleFailed, Stopped, TaskFailed, Undecided
from microagents.messages import Request, Stream
from microagents.problems.problem import Problem
from microagents.task import ChainTask, Task

try:
    from microagents.runs.api import resume, run, run_sync
    from microagents.runs.compare import compare
    from microagents.runs.comparison import Comparison
    from microagents.runs.result import Result
except ModuleNotFoundError as error:
    if error.name != "microagents.runtimes":
        raise
    raise ModuleNotFoundError(
        "this is a checkout of microagents that is not installed; run `pip install -e .` in it", name=error.name
    ) from None

__all__ = [
    "ChainTask",
    "Comparison",
    "Conductor",
    "Context",
    "Decision",
    "Deployment",
    "Draw",
    "DurableRole",
    "Elect",
    "FirstTo",
    "FirstToAheadBy",
    "InvalidUsage",
    "MicroagentsError",
    "ModelUnavailable",
    "Problem",
    "Prompt",
    "Reply",
    "Request",
    "Result",
    "Role",
    "RoleFailed",
    "Sample",
    "Sampling",
    "Screen",
    "Stopped",
    "Strategy",
    "Stream",
    "Task",
    "TaskFailed",
    "Undecided",
    "Unvoted",
    "Usage",
    "compare",
    "resume",
    "run",
    "run_sync",
]
