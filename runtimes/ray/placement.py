"""Which Ray actor each replica of a role lives in, and what it needs there."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

from microagents.actors import Deployment
from microagents.errors import InvalidDefinition
from microagents.runtimes.role_group import DRIVER, replica_names


class ActorSlot(Struct, kw_only=True):
    """One Ray actor: what lives in it, and what it needs."""

    name: str
    seats: dict[str, Deployment]
    num_cpus: float
    resources: dict[str, float]
    actor: Any = None
    """The handle of its process now."""
    is_ready: bool = False
    """Whether that process runs."""
    incarnation: int = 0
    deaths: deque[float] = field(default_factory=deque)
    cause: str | None = None
    """Why we ended its process ourselves."""


def slots_of(deployments: Sequence[Deployment]) -> list[ActorSlot]:
    """One actor a replica; roles with one ``colocate`` share an actor, replica by replica.

    Raises:
        InvalidDefinition: roles that are to share actors have different numbers of replicas.
    """
    found: dict[str, ActorSlot] = {}
    for deployment in deployments:
        if deployment.in_driver:
            continue
        for replica, seat in enumerate(replica_names(deployment)):
            name = f"{deployment.colocate}/{replica}" if deployment.colocate else seat
            place = found.setdefault(name, ActorSlot(name=name, seats={}, num_cpus=0, resources={}))
            place.seats[seat] = deployment
            place.num_cpus += deployment.num_cpus
            for resource, amount in deployment.resources.items():
                place.resources[resource] = place.resources.get(resource, 0) + amount
    roles = [each.role.__name__ for each in deployments]
    for label in {each.colocate: None for each in deployments if each.colocate}:
        if label in roles:
            raise InvalidDefinition(f"colocate={label!r} is the name of a role; name what roles share otherwise")
        replicas = {each.role.__name__: each.num_replicas for each in deployments if each.colocate == label}
        if len(set(replicas.values())) > 1:
            shown = ", ".join(f"{role} {number}" for role, number in replicas.items())
            raise InvalidDefinition(f"roles that share actors (colocate={label!r}) need as many replicas each; there are: {shown}")
    return list(found.values())


def homes_of(deployments: Sequence[Deployment], places: Sequence[ActorSlot]) -> dict[str, str]:
    """Which dispatcher each replica lives in."""
    of_driver = {name: DRIVER for each in deployments if each.in_driver for name in replica_names(each)}
    return {**of_driver, **{seat: place.name for place in places for seat in place.seats}}
