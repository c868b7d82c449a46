"""Slots: the Ray actors of a run, and the replicas of roles that live in each."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from microagents.actors.role import Deployment
from microagents.base.errors import InvalidDefinition
from microagents.runtimes.ray.lanes import LANE
from microagents.runtimes.role_group import DRIVER, replica_names


class ActorSlot:
    """A Ray actor of a run: its replicas, the resources that it needs, and its current process.

    The process may die; another one takes the slot then, with the next incarnation.

    Args:
        name: name of the slot and of its dispatcher.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.replicas: dict[str, Deployment] = {}
        """By name of the replica."""
        self.num_cpus = 0.0
        self.resources: dict[str, float] = {}
        self.process: tuple[Any, int] = (None, 0)
        """Ray's handle of the last created process, None before the first, and its incarnation. The two change together: a peer that knew
        a dead process as its successor would never look for another."""
        self.incarnation = 0
        """Number of processes that the slot had before the current one, or before the one that is about to be created."""
        self.node: str | None = None
        """Id of the node of the last process that was ready; None before."""
        self.is_ready = False
        """Whether the current process has answered and the slot is not given up."""
        self.kill_cause: str | None = None
        """Reason for which the driver killed the current process; None if it did not."""
        self.is_unreachable = False
        """Whether the current process was killed because no connection to it was left: its node may have gone."""
        self.waits_since_s: float | None = None
        """Time of the event loop's clock since which it waits for a node; None if it does not."""
        self._deaths: deque[float] = deque()
        """Times of deaths, in seconds of the event loop's clock."""

    @property
    def actor(self) -> Any:
        """Ray's handle of the last created process; None before the first."""
        return self.process[0]

    @property
    def kind(self) -> str:
        """Name of its actor's class: of its only role, else the label that its roles share."""
        label = self.name.partition("/")[0].replace("-", "_")
        return label[:1].upper() + label[1:]

    @property
    def is_lane(self) -> bool:
        """Whether it has the roles of a lane, and none with needs of its own."""
        return self.name.partition("/")[0] == LANE

    @property
    def number(self) -> int:
        """Number of its replicas: their lane's."""
        return int(self.name.rpartition("/")[2])

    def add(self, replica: str, deployment: Deployment) -> None:
        """Place a replica in the slot."""
        self.replicas[replica] = deployment
        self.num_cpus += deployment.num_cpus
        for resource, amount in deployment.resources.items():
            self.resources[resource] = self.resources.get(resource, 0) + amount

    def mark_ready(self, node: str) -> None:
        """Note that the current process answers, on this node."""
        self.is_ready = True
        self.node = node
        self.waits_since_s = None

    def begin_incarnation(self) -> None:
        """Prepare the slot for another process."""
        self.incarnation += 1
        self.is_ready = self.is_unreachable = False
        self.kill_cause = None

    def count_death(self, now_s: float, within_s: float) -> int:
        """Note a death of the current process at this time of the event loop; returns the number of deaths in the last seconds."""
        self._deaths.append(now_s)
        while self._deaths[0] < now_s - within_s:
            self._deaths.popleft()
        return len(self._deaths)


def slots_of(deployments: Sequence[Deployment]) -> list[ActorSlot]:
    """Make one slot per replica; roles with the same ``colocate`` share slots, replica by replica.

    Raises:
        InvalidDefinition: roles that share slots have different numbers of replicas, or ``colocate`` is the name of a role.
    """
    slots: dict[str, ActorSlot] = {}
    for deployment in deployments:
        if deployment.in_driver:
            continue
        for number, replica in enumerate(replica_names(deployment)):
            name = f"{deployment.colocate}/{number}" if deployment.colocate else replica
            slots.setdefault(name, ActorSlot(name)).add(replica, deployment)
    _check_colocation(deployments)
    return list(slots.values())


def _check_colocation(deployments: Sequence[Deployment]) -> None:
    roles = [each.role.__name__ for each in deployments]
    for label in {each.colocate: None for each in deployments if each.colocate}:
        if label in roles:
            raise InvalidDefinition(f"colocate must be a name that no role has, not {label!r}")
        replicas = {each.role.__name__: each.num_replicas for each in deployments if each.colocate == label}
        if len(set(replicas.values())) > 1:
            shown = ", ".join(f"{role} {number}" for role, number in replicas.items())
            raise InvalidDefinition(
                f"roles that share actors (colocate={label!r}) need equal numbers of replicas; there are: {shown}"
            )


def place_replicas(deployments: Sequence[Deployment], slots: Sequence[ActorSlot]) -> dict[str, str]:
    """Name a dispatcher for each replica: the driver's, or its slot's."""
    in_driver = {name: DRIVER for each in deployments if each.in_driver for name in replica_names(each)}
    return {**in_driver, **{replica: slot.name for slot in slots for replica in slot.replicas}}
