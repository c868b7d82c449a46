"""Problems whose steps are not given: questions, candidates, and the tree of sub-problems."""

from microagents.problems.problem import Problem, WorkedProblem, answer_type_of, direct_prompt, text_of
from microagents.problems.questions import (
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
    prompt_of,
)
from microagents.problems.tree import Branch, ProblemNode, Solution

__all__ = [
    "ATOMIC",
    "Branch",
    "Choice",
    "Contraction",
    "Decomposition",
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
    "WorkedProblem",
    "answer_type_of",
    "asked_in",
    "direct_prompt",
    "prompt_of",
    "text_of",
]
