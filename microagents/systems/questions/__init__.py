"""Questions whose steps are not given: MAKER's recursive solver, Atom of Thoughts, trees of thoughts, and baselines."""

from microagents.replies.data_prompts import prompt_of
from microagents.systems.questions.composer import Compose, Composer
from microagents.systems.questions.contractor import Contract, Contractor
from microagents.systems.questions.decomposer import Decompose, Decomposer, Trace
from microagents.systems.questions.discriminator import Chosen, Discriminate, Discriminator
from microagents.systems.questions.problem import Problem, WorkedProblem, answer_type_of, direct_prompt, text_of
from microagents.systems.questions.questions import (
    ATOMIC,
    Choice,
    Contraction,
    Decomposition,
    Subquestion,
    Subquestions,
    ToChoose,
    ToCompose,
    ToContract,
    ToDecompose,
    ToFollow,
    ToSolve,
    ToTrace,
    asked_in,
)
from microagents.systems.questions.tree import Branch, ProblemNode, Solution

__all__ = [
    "ATOMIC",
    "Branch",
    "Choice",
    "Chosen",
    "Compose",
    "Composer",
    "Contract",
    "Contraction",
    "Contractor",
    "Decompose",
    "Decomposer",
    "Decomposition",
    "Discriminate",
    "Discriminator",
    "Problem",
    "ProblemNode",
    "Solution",
    "Subquestion",
    "Subquestions",
    "ToChoose",
    "ToCompose",
    "ToContract",
    "ToDecompose",
    "ToFollow",
    "ToSolve",
    "ToTrace",
    "Trace",
    "WorkedProblem",
    "answer_type_of",
    "asked_in",
    "direct_prompt",
    "prompt_of",
    "text_of",
]
