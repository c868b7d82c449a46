"""Long tasks by language models without an error: every micro-decision is an election."""

from microagents.actors import Context, Deployment, Role, Strategy
from microagents.chat import Prompt, Reply, Sample, Sampling, Unvoted, Usage
from microagents.durable import Conductor, DurableRole
from microagents.elections import Decision, Draw, Elect, Screen
from microagents.errors import InvalidUsage, MicroagentsError, ModelUnavailable, RoleFailed, Stopped, TaskFailed, Undecided
from microagents.messages import Request, Stream
from microagents.problem import Problem
from microagents.task import ChainTask, Task
from microagents.voting import FirstTo, FirstToAheadBy

try:
    from microagents.comparing import compare
    from microagents.comparison import Comparison
    from microagents.result import Result
    from microagents.run import resume, run, run_sync
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
