"""Deployments of a run's roles: of its strategy, changed as its settings say, and of the keeper."""

from __future__ import annotations

import microagents.roles  # noqa: F401 - names the roles of an election
from microagents.actors.registry import unknown
from microagents.actors.role import Deployment
from microagents.base.errors import InvalidUsage
from microagents.roles.executor import Executor, OnAsk
from microagents.runs.plan import RunPlan
from microagents.runs.settings import Settings, validated


def deployments_of(plan: RunPlan, keeper: Deployment, on_ask: OnAsk | None = None) -> list[Deployment]:
    """Return the roles of a run in the order of their start: the keeper first, since it refuses a wrong journal."""
    strategy, settings = plan.strategy, plan.settings
    executors = [Deployment(role=Executor, in_driver=True)] if plan.tasks[0].looks_up else []
    given = [Deployment(role=strategy.conductor), *strategy.deployments(), *executors]
    asking = [_with_customer(each, on_ask) for each in given]
    deployments = [keeper, *(_with_settings(each, settings) for each in asking)]
    movable = [deployment.role.__name__.lower() for deployment in given]
    for name in settings["deploy"]:
        if name.lower() not in movable:
            raise InvalidUsage(unknown("role to deploy called", name, movable))
    return deployments


def _with_customer(deployment: Deployment, on_ask: OnAsk | None) -> Deployment:
    if on_ask is None or not issubclass(deployment.role, Executor):
        return deployment
    return deployment.model_copy(update={"options": {**deployment.options, "on_ask": on_ask}})


def _with_settings(deployment: Deployment, settings: Settings) -> Deployment:
    name = deployment.role.__name__
    wanted = next((wanted for role, wanted in settings["deploy"].items() if role.lower() == name.lower()), {})
    if not wanted:
        return deployment
    given = {field: getattr(deployment, field) for field in deployment.model_fields_set if field != "in_driver"}
    return validated(Deployment, f"the deployment of {name}", {**given, **wanted})
