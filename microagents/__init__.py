"""Long tasks by language models without an error: every micro-decision is an election."""

from microagents.actors import Conductor, Context, Deployment, Role, Strategy
from microagents.chat import Prompt, Reply, Sample, Sampling, Unvoted, Usage
from microagents.elections import Decision, Draw, Elect, Screen
from microagents.errors import MicroagentsError, RoleFailed, Stopped, Undecided
from microagents.messages import Request, Stream
from microagents.run import Result, run, run_sync
from microagents.task import ChainTask, Task
from microagents.voting import FirstTo, FirstToAheadBy

__all__ = [
    "ChainTask",
    "Conductor",
    "Context",
    "Decision",
    "Deployment",
    "Draw",
    "Elect",
    "FirstTo",
    "FirstToAheadBy",
    "MicroagentsError",
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
    "Undecided",
    "Unvoted",
    "Usage",
    "run",
    "run_sync",
]
