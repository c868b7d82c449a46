"""The actor graph of a strategy: its roles, their replicas, and the typed messages between them, before anything is started."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from microagents.actors.registry import RUNTIMES
from microagents.actors.role import Deployment, asked_by, check_graph
from microagents.base.messages import Stream, reply_type
from microagents.elections.election import Draw
from microagents.roles.keeper import Keeper
from microagents.runs.driver.deploying import deployments_of
from microagents.runs.plan import RunPlan


class GraphRole(Struct, frozen=True, kw_only=True):
    """A role of the graph."""

    name: str
    replicas: int
    in_driver: bool
    """Whether it runs in the driver's process on every runtime."""
    asks_models: bool
    distance: int
    """Number of messages on the longest way from the conductor to it; 0 for the conductor."""
    subject: str
    """First sentence of its docstring."""


class GraphMessage(Struct, frozen=True, kw_only=True):
    """A message of the graph."""

    name: str
    sender: str
    receiver: str
    reply: str
    """Type of its reply; of each item if it is answered by a stream."""
    is_stream: bool


class RoleGraph(Struct, frozen=True, kw_only=True):
    """The graph of a strategy for a task."""

    strategy: str
    task: str
    roles: list[GraphRole]
    """The conductor first, then by distance; roles of the driver last."""
    messages: list[GraphMessage]
    placement: dict[str, list[str]] = {}
    """Replicas of roles by the process that they work in; empty if it is unknown."""


def graph_of(plan: RunPlan) -> RoleGraph:
    """Find the graph of a run from the messages that its roles handle and ask; nothing is started.

    Raises:
        NoHandler: a role sends a message that no deployed role handles.
        InvalidDefinition: two roles handle one message or have one name.
    """
    deployments = deployments_of(plan, Deployment(role=Keeper, in_driver=True))
    handled = check_graph(deployments)
    messages = [
        GraphMessage(
            name=message.__name__,
            sender=each.role.__name__,
            receiver=handled[message].role.__name__,
            reply=_type_name(reply_type(message)),
            is_stream=issubclass(message, Stream),
        )
        for each in deployments
        for message in asked_by(each.role, handled)
    ]
    distances = _distances(plan.strategy.conductor.__name__, messages)
    roles = [
        GraphRole(
            name=each.role.__name__,
            replicas=each.num_replicas,
            in_driver=each.in_driver,
            asks_models=Draw in each.role.handlers,
            distance=distances.get(each.role.__name__, max(distances.values())),
            subject=(each.role.__doc__ or "").strip().split("\n")[0],
        )
        for each in deployments
    ]
    roles.sort(key=lambda role: (role.in_driver, role.distance))
    return RoleGraph(
        strategy=type(plan.strategy).__name__, task=type(plan.tasks[0]).__name__, roles=roles, messages=messages
    )


def placement_of(plan: RunPlan) -> dict[str, list[str]]:
    """Place the replicas of a run with one input in processes, as its runtime would; nothing is started.

    Raises:
        InvalidDefinition: roles cannot be placed like this.
    """
    runtime: Any = RUNTIMES.find(plan.settings["runtime"], object)
    deployments = deployments_of(plan, Deployment(role=Keeper, in_driver=True))
    found: dict[str, list[str]] = {}
    for replica, process in runtime.placement(deployments, dict(plan.settings)).items():
        found.setdefault(process, []).append(replica)
    return found


def _distances(first: str, messages: Sequence[GraphMessage]) -> dict[str, int]:
    """Count the messages on the longest way from the first role to each, without going round."""
    sent = defaultdict[str, dict[str, None]](dict)
    for each in messages:
        sent[each.sender][each.receiver] = None
    found: dict[str, int] = {}

    def walk(role: str, way: tuple[str, ...]) -> None:
        if role not in way and found.get(role, -1) < len(way):
            found[role] = len(way)
            for receiver in sent[role]:
                walk(receiver, (*way, role))

    walk(first, ())
    return found


def _type_name(kind: Any) -> str:
    if kind is None:
        return "None"
    if isinstance(kind, type):
        return kind.__name__
    return str(kind).replace("typing.", "")
