"""The roles in one dispatcher: built with their messengers, started in order, stopped in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from msgspec import structs

from microagents.actors.role import Context, Deployment, Role, asked_by, check_graph
from microagents.base.aio import is_cancellation, loop_has_threads
from microagents.base.errors import OWN_FAILURES, MicroagentsError
from microagents.base.logs import log
from microagents.base.messages import Message
from microagents.base.user_code import role_failed
from microagents.journal.messages import Record
from microagents.runtimes.dispatcher import Dispatcher, RoleMessenger, Route

DRIVER = "driver"
"""Name of the dispatcher in the process that drives the run."""
STOP_S = 30.0
"""Seconds that a role may take to stop."""


def replica_names(deployment: Deployment) -> list[str]:
    """Name a role's replicas, such as ``Solver/0``."""
    return [f"{deployment.role.__name__}/{replica}" for replica in range(deployment.num_replicas)]


def in_lane(names: Sequence[str], lane: int, lanes: int) -> list[str]:
    """Choose the replicas of a role that serve one lane: a message that stays in its lane need not leave its actor.

    The sending role has a replica for each lane.
    """
    if len(names) < lanes:
        return [names[lane % len(names)]]
    return [name for number, name in enumerate(names) if number % lanes == lane]


class RoleGroup:
    """Builds, starts and stops the replicas in one dispatcher.

    Args:
        dispatcher: hosts the replicas.
        deployments: all deployments of the run, also for other dispatchers.
        dispatcher_by_replica: names of dispatchers by the names of the replicas that they host.

    Raises:
        NoHandler: a role asks for a message that no deployed role handles.
        InvalidDefinition: two roles handle one message, or a role with bounded ``concurrency`` can reach itself.
    """

    def __init__(
        self, dispatcher: Dispatcher, deployments: Sequence[Deployment], dispatcher_by_replica: Mapping[str, str]
    ) -> None:
        self._dispatcher = dispatcher
        self._handled = check_graph(deployments)
        self._replicas_of = {each.role.__name__: each.num_replicas for each in deployments}
        self._dispatcher_by_replica = dispatcher_by_replica
        self._messengers: list[tuple[RoleMessenger, Iterable[type[Message]], str | None]] = []
        """The messengers of these roles, with the messages that each may send, and the name of the replica that sends."""
        self._roles: dict[str, Role] = {}
        """By name of the replica."""
        self._begun: list[str] = []
        self._reporter = self.messenger("the loads", (Record,)) if Record in self._handled else None
        """Reports the loads of the replicas; None without a keeper."""

    def messenger(
        self, owner: str, asks: Iterable[type[Message]] | None = None, replica: str | None = None
    ) -> RoleMessenger:
        """Create a messenger of a replica for ``asks``; by default one for every message that a deployed role handles."""
        messenger = RoleMessenger(owner)
        self._messengers.append((messenger, self._handled if asks is None else asks, replica))
        return messenger

    def build(self, name: str, deployment: Deployment, context: Context) -> None:
        """Build a replica of a role.

        Raises:
            RoleFailed: its constructor raised.
        """
        role = deployment.role
        messenger = self.messenger(role.__name__, asked_by(role, self._handled), name)
        try:
            built = role(structs.replace(context, name=name, options=deployment.options), messenger)
        except MicroagentsError:
            raise
        except OWN_FAILURES as error:
            raise role_failed(name, "building it", error) from error
        self._roles[name] = built
        self._dispatcher.host(name, built)

    def connect(self) -> None:
        """Give all messengers their routes; called once all replicas of this dispatcher are built and all peers are connected."""
        for messenger, asks, replica in self._messengers:
            messenger.connect({message: self._route(message, replica) for message in asks})

    def _route(self, message: type[Message], sender: str | None) -> Route:
        """Choose the replicas in the sender's lane. Messages to the sender's own role spread the work over all."""
        names = replica_names(self._handled[message])
        if sender is not None:
            role, _, number = sender.rpartition("/")
            if names[0].rpartition("/")[0] != role:
                names = in_lane(names, int(number), self._replicas_of[role])
        return Route(
            [self._dispatcher.ref(name, self._dispatcher_by_replica[name]) for name in names], message.route_by
        )

    def extend(self, deployments: Sequence[Deployment], dispatcher_by_replica: Mapping[str, str]) -> None:
        """Send to the replicas of these deployments from now on; their dispatchers are connected."""
        self._handled = check_graph(deployments)
        self._replicas_of = {each.role.__name__: each.num_replicas for each in deployments}
        self._dispatcher_by_replica = dispatcher_by_replica
        self.connect()

    async def start(self, name: str) -> None:
        """Start a replica.

        Raises:
            RoleFailed: its ``start`` raised.
        """
        self._begun.append(name)  # before it starts: a start that fails may have begun tasks, which its stop ends
        try:
            await self._roles[name].start()
        except MicroagentsError:
            raise
        except OWN_FAILURES as error:
            raise role_failed(name, "start", error) from error
        if self._begun == [name] and self._reporter is not None and loop_has_threads():
            self._dispatcher.report_loads(self._reporter)

    async def stop(self, name: str) -> None:
        """Stop a replica whose start began; if it fails or takes longer than `STOP_S` seconds, a warning is logged."""
        if name not in self._begun:
            return
        self._begun.remove(name)
        try:
            async with asyncio.timeout(STOP_S):
                await self._roles[name].stop()
        except OWN_FAILURES as error:
            log().warning("a role did not stop cleanly", role=type(self._roles[name]).__name__, error=repr(error))
            # A role may also await a future that was cancelled, which is its failure; only the caller's own cancellation is passed on.
            if is_cancellation(error):
                raise
