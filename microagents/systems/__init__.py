"""Systems: a folder for each, with its kind of work, its questions, its prompts, its roles and its strategy."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _IS_CHECKED

from microagents.actors.registry import STRATEGIES as _STRATEGIES

if _IS_CHECKED:
    from microagents.systems.chains.chain import ChainConductor, ChainStep, step_by_step
    from microagents.systems.chains.iterative_restart import IterativeRestart
    from microagents.systems.chains.known_inputs import side_by_side
    from microagents.systems.chains.lead import Lead
    from microagents.systems.chains.maker import Maker
    from microagents.systems.chains.self_consistency import SelfConsistency
    from microagents.systems.chains.single_shot import SingleShot
    from microagents.systems.chains.speculation import guess_ahead
    from microagents.systems.documents.seqcv import SeqCV
    from microagents.systems.documents.subtask_baselines import Parallel, Sequential
    from microagents.systems.questions.aot import Aot, AotTree
    from microagents.systems.questions.chain_of_thought import Analogical, ChainOfDraft, Cot, CotSC, SelfRefine
    from microagents.systems.questions.recursive import Recursive
    from microagents.systems.questions.tree_of_thoughts import ForestOfThoughts, TreeOfThoughts

__all__ = [
    "Analogical",
    "Aot",
    "AotTree",
    "ChainConductor",
    "ChainOfDraft",
    "ChainStep",
    "Cot",
    "CotSC",
    "ForestOfThoughts",
    "IterativeRestart",
    "Lead",
    "Maker",
    "Parallel",
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

_ADDRESSES = (
    *_STRATEGIES.shipped.values(),
    *[f"{__name__}.chains.chain:{name}" for name in ("ChainConductor", "ChainStep", "step_by_step")],
    f"{__name__}.chains.known_inputs:side_by_side",
    f"{__name__}.chains.speculation:guess_ahead",
)


def __getattr__(name: str) -> object:
    """Import a strategy when it is first named: a program needs one or two of them."""
    for module, _, found in (address.partition(":") for address in _ADDRESSES):
        if found == name:
            return getattr(_import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
