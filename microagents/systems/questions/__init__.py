"""Questions whose steps are not given: MAKER's recursive solver, Atom of Thoughts, trees of thoughts, and baselines."""

from microagents.systems.questions.composer import Compose, Composer
from microagents.systems.questions.decomposer import Decompose, Decomposer
from microagents.systems.questions.discriminator import Discriminate, Discriminator
from microagents.systems.questions.problem import Problem, WorkedProblem
from microagents.systems.questions.questions import (
    ATOMIC,
    Decomposition,
    Subquestion,
    Subquestions,
    ToCompose,
    ToContract,
    ToDecompose,
)
from microagents.systems.questions.tree import ProblemNode

__all__ = [
    "ATOMIC",
    "Compose",
    "Composer",
    "Decompose",
    "Decomposer",
    "Decomposition",
    "Discriminate",
    "Discriminator",
    "Problem",
    "ProblemNode",
    "Subquestion",
    "Subquestions",
    "ToCompose",
    "ToContract",
    "ToDecompose",
    "WorkedProblem",
]
