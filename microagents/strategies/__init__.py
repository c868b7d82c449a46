"""Strategies: one file for each, with its settings and its conductor, and the parts that they share."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _IS_CHECKED

if _IS_CHECKED:
    from microagents.strategies.aot import Aot, AotTree
    from microagents.strategies.chain import Chain, ChainConductor, ChainStep, step_by_step
    from microagents.strategies.chain_of_thought import Analogical, ChainOfDraft, Cot, CotSC, SelfRefine
    from microagents.strategies.document_conductor import DocumentConductor, DocumentStrategy
    from microagents.strategies.iterative_restart import IterativeRestart
    from microagents.strategies.known_inputs import KnownInputs, side_by_side
    from microagents.strategies.lead import Lead
    from microagents.strategies.maker import Maker
    from microagents.strategies.problem_conductor import MakesProblem, ProblemConductor, ProblemMaker
    from microagents.strategies.recursive import Recursive
    from microagents.strategies.self_consistency import SelfConsistency
    from microagents.strategies.seqcv import SeqCV
    from microagents.strategies.single_shot import SingleShot
    from microagents.strategies.speculation import guess_ahead
    from microagents.strategies.subtask_baselines import Parallel, Sequential
    from microagents.strategies.tree_of_thoughts import ForestOfThoughts, TreeOfThoughts

__all__ = [
    "Analogical",
    "Aot",
    "AotTree",
    "Chain",
    "ChainConductor",
    "ChainOfDraft",
    "ChainStep",
    "Cot",
    "CotSC",
    "DocumentConductor",
    "DocumentStrategy",
    "ForestOfThoughts",
    "IterativeRestart",
    "KnownInputs",
    "Lead",
    "Maker",
    "MakesProblem",
    "Parallel",
    "ProblemConductor",
    "ProblemMaker",
    "Recursive",
    "SelfConsistency",
    "SelfRefine",
    "SeqCV",
    "Sequential",
    "SingleShot",
    "TreeOfThoughts",
    "guess_ahead",
    "side_by_side",
    "step_by_step",
]

_MODULES = {
    name: module
    for module, names in (
        ("aot", "Aot AotTree"),
        ("chain", "Chain ChainConductor ChainStep step_by_step"),
        ("chain_of_thought", "Analogical ChainOfDraft Cot CotSC SelfRefine"),
        ("document_conductor", "DocumentConductor DocumentStrategy"),
        ("iterative_restart", "IterativeRestart"),
        ("known_inputs", "KnownInputs side_by_side"),
        ("lead", "Lead"),
        ("maker", "Maker"),
        ("problem_conductor", "MakesProblem ProblemConductor ProblemMaker"),
        ("recursive", "Recursive"),
        ("self_consistency", "SelfConsistency"),
        ("seqcv", "SeqCV"),
        ("single_shot", "SingleShot"),
        ("speculation", "guess_ahead"),
        ("subtask_baselines", "Parallel Sequential"),
        ("tree_of_thoughts", "ForestOfThoughts TreeOfThoughts"),
    )
    for name in names.split()
}


def __getattr__(name: str) -> object:
    """Import a strategy when it is first named: a program needs one or two of them."""
    if name in _MODULES:
        return getattr(_import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
