"""Systems: a folder for each, with its kind of work, its questions, its prompts, its roles and its strategy."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _IS_CHECKED

if _IS_CHECKED:
    from microagents.systems.chains.chain import Chain, ChainConductor, ChainStep, step_by_step
    from microagents.systems.chains.iterative_restart import IterativeRestart
    from microagents.systems.chains.known_inputs import KnownInputs, side_by_side
    from microagents.systems.chains.lead import Lead
    from microagents.systems.chains.maker import Maker
    from microagents.systems.chains.self_consistency import SelfConsistency
    from microagents.systems.chains.single_shot import SingleShot
    from microagents.systems.chains.speculation import guess_ahead
    from microagents.systems.documents.document_conductor import DocumentConductor, DocumentStrategy
    from microagents.systems.documents.seqcv import SeqCV
    from microagents.systems.documents.subtask_baselines import Parallel, Sequential
    from microagents.systems.questions.aot import Aot, AotTree
    from microagents.systems.questions.chain_of_thought import Analogical, ChainOfDraft, Cot, CotSC, SelfRefine
    from microagents.systems.questions.problem_conductor import ProblemConductor, ProblemMaker
    from microagents.systems.questions.recursive import Recursive
    from microagents.systems.questions.tree_of_thoughts import ForestOfThoughts, TreeOfThoughts

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
        ("questions.aot", "Aot AotTree"),
        ("chains.chain", "Chain ChainConductor ChainStep step_by_step"),
        ("questions.chain_of_thought", "Analogical ChainOfDraft Cot CotSC SelfRefine"),
        ("documents.document_conductor", "DocumentConductor DocumentStrategy"),
        ("chains.iterative_restart", "IterativeRestart"),
        ("chains.known_inputs", "KnownInputs side_by_side"),
        ("chains.lead", "Lead"),
        ("chains.maker", "Maker"),
        ("questions.problem_conductor", "ProblemConductor ProblemMaker"),
        ("questions.recursive", "Recursive"),
        ("chains.self_consistency", "SelfConsistency"),
        ("documents.seqcv", "SeqCV"),
        ("chains.single_shot", "SingleShot"),
        ("chains.speculation", "guess_ahead"),
        ("documents.subtask_baselines", "Parallel Sequential"),
        ("questions.tree_of_thoughts", "ForestOfThoughts TreeOfThoughts"),
    )
    for name in names.split()
}


def __getattr__(name: str) -> object:
    """Import a strategy when it is first named: a program needs one or two of them."""
    if name in _MODULES:
        return getattr(_import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
