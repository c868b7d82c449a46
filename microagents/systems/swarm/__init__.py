"""The swarm: work in steps that a planner sets, personas do, a judge picks and a verifier checks."""

from microagents.systems.swarm.steps import (
    Check,
    Pick,
    Plan,
    StepQuestion,
    StepResult,
    ToAssemble,
    ToCheck,
    ToCompress,
    ToPick,
    ToPlan,
    ToWork,
    step_question_in,
)
from microagents.work.prose import Summary

__all__ = [
    "Check",
    "Pick",
    "Plan",
    "StepQuestion",
    "StepResult",
    "Summary",
    "ToAssemble",
    "ToCheck",
    "ToCompress",
    "ToPick",
    "ToPlan",
    "ToWork",
    "step_question_in",
]
