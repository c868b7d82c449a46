"""Micro-roles: one file for each, with the messages that only it handles."""

from microagents.actors.role import Deployment, deploy_by_default
from microagents.roles.keeper import Keeper
from microagents.roles.matcher import Matcher
from microagents.roles.redflagger import RedFlagger
from microagents.roles.solver.solver import Solver
from microagents.roles.voter import Voter

__all__ = [
    "Keeper",
    "Matcher",
    "RedFlagger",
    "Solver",
    "Voter",
]

deploy_by_default(
    Deployment(role=Voter), Deployment(role=Solver), Deployment(role=RedFlagger), semantic=[Deployment(role=Matcher)]
)
