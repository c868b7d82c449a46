from .agents.act import Act
from .chains.cascade import Cascade
from .chains.chain import ChainConductor, ChainStep, step_by_step
from .chains.iterative_restart import IterativeRestart
from .chains.known_inputs import side_by_side
from .chains.lead import Lead
from .chains.maker import Maker
from .chains.self_consistency import SelfConsistency
from .chains.single_shot import SingleShot
from .chains.speculation import guess_ahead
from .documents.seqcv import SeqCV
from .documents.subtask_baselines import Parallel, Sequential
from .questions.aot import Aot, AotTree
from .questions.chain_of_thought import Analogical, ChainOfDraft, Cot, CotSC, SelfRefine
from .questions.recursive import Recursive
from .questions.tree_of_thoughts import ForestOfThoughts, TreeOfThoughts
from .swarm.swarm import Swarm

__all__ = [
    "Act",
    "Analogical",
    "Aot",
    "AotTree",
    "Cascade",
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
    "Swarm",
    "TreeOfThoughts",
    "guess_ahead",
    "side_by_side",
    "step_by_step",
]
