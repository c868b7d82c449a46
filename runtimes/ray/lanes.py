"""Lanes: replicas that work together. Replica i of each role belongs to lane i, and the messages of an input's work stay in its lane.

An engine that is cut across actors works less, not more: half of all messages of a step would leave their actor. So more actors mean more
work only as whole engines side by side, each with a conductor, a voter, a solver and so on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from microagents.actors.role import Deployment
from microagents.runtimes.ray.cluster import free_cpus, living_nodes

AUTO = "auto"
"""One lane a CPU of the cluster."""
LANE = "lane"
"""The label of the roles that share an actor in each lane."""


def number_of_lanes(wanted: str | None, inputs: int, cpus: int) -> int:
    """Count the lanes of a run.

    Args:
        wanted: a number, or ``auto``; None: ``auto`` for many inputs, else one lane.
        inputs: number of inputs of the run. Further lanes would have nothing to do, unless they are asked for.
        cpus: number of CPUs that its lanes have or may get.
    """
    if wanted not in (None, AUTO):
        return int(wanted)
    if wanted != AUTO and inputs <= 1:
        return 1
    return max(1, min(cpus, inputs))


def cpus_for_lanes(reserved: float, avoided: Collection[str] = (), *, is_shared: bool) -> int:
    """Count the CPUs that the lanes of a run have or may get on the cluster that this process is connected to.

    Args:
        reserved: CPUs that they have reserved.
        avoided: ids of nodes that no lane may have: Ray takes a silent one for alive for more than a minute.
        is_shared: whether other runs may be on the cluster, whose CPUs are not counted.
    """
    cpus = sum(cpus for _, cpus in living_nodes(avoided))
    if is_shared:
        cpus = min(cpus, free_cpus(avoided) + int(reserved))
    return cpus


def with_lanes(deployments: Sequence[Deployment], lanes: int) -> list[Deployment]:
    """Deploy a replica in each lane, unless something else is asked for.

    Args:
        deployments: all roles of the run.
        lanes: number of lanes.
    """
    return [each if each.in_driver else _in_lanes(each, lanes) for each in deployments]


def _in_lanes(deployment: Deployment, lanes: int) -> Deployment:
    given = deployment.model_fields_set
    if "num_replicas" in given:  # such as one solver with a GPU for several lanes
        return deployment
    update: dict[str, Any] = {"num_replicas": lanes}
    if not given & {"colocate", "num_cpus", "resources"}:
        update["colocate"] = LANE
    return deployment.model_copy(update=update)


def nodes_for_lanes() -> list[str]:
    """List node ids in rounds, each as often as it has CPUs. Lane i goes to the i-th; after the last begins the first."""
    nodes = living_nodes()
    rounds = max((cpus for _, cpus in nodes), default=0)
    return [node for done in range(rounds) for node, cpus in nodes if done < cpus]
