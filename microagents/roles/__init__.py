"""Micro-roles: one file for each, with the messages that only it handles."""

from microagents.actors import Deployment, deploy_by_default
from microagents.roles.asking import AskingRole, Consult
from microagents.roles.composer import Compose, Composer
from microagents.roles.contractor import Contract, Contractor
from microagents.roles.decomposer import Decompose, Decomposer, Trace
from microagents.roles.discriminator import Chosen, Discriminate, Discriminator
from microagents.roles.limits.limiter import Limiter
from microagents.roles.matcher import Matcher
from microagents.roles.ranker import Rank, Ranker
from microagents.roles.recorder import Recorder
from microagents.roles.redflagger import RedFlagger
from microagents.roles.solver.solver import Solver
from microagents.roles.splitter import Split, Splitter
from microagents.roles.validator import Validate, Validator
from microagents.roles.voter import Voter

__all__ = [
    "AskingRole",
    "Chosen",
    "Compose",
    "Composer",
    "Consult",
    "Contract",
    "Contractor",
    "Decompose",
    "Decomposer",
    "Discriminate",
    "Discriminator",
    "Limiter",
    "Matcher",
    "Rank",
    "Ranker",
    "Recorder",
    "RedFlagger",
    "Solver",
    "Split",
    "Splitter",
    "Trace",
    "Validate",
    "Validator",
    "Voter",
]

deploy_by_default(
    Deployment(role=Voter), Deployment(role=Solver), Deployment(role=RedFlagger), semantic=[Deployment(role=Matcher)]
)
