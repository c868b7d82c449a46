"""The roles that live in one dispatcher: built with their posts, started in order, stopped in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import structlog
from msgspec import structs

from microagents.actors import Context, Deployment, Role, asked_by, check_graph
from microagents.errors import MicroagentsError, RoleFailed
from microagents.messages import Message
from microagents.runtimes.dispatcher import Dispatcher, RoleMessenger, Route
from microagents.runtimes.local_ref import is_cancelled, said

DRIVER = "driver"
"""The name of the dispatcher in the process that drives the run."""
STOP_S = 30.0
"""How long a role may take to stop."""


def replica_names(deployment: Deployment) -> list[str]:
    """The names of a role's replicas, such as ``Solver/0``."""
    return [f"{deployment.role.__name__}/{replica}" for replica in range(deployment.num_replicas)]


class RoleGroup:
    """Builds roles in a dispatcher, each with a post that reaches the roles it asks, wherever these live."""

    def __init__(self, dispatcher: Dispatcher, deployments: Sequence[Deployment], homes: Mapping[str, str]) -> None:
        self._dispatcher = dispatcher
        self._handled = check_graph(deployments)
        self._homes = homes
        """Dispatchers by name of the replica that they host."""
        self._messengers: list[tuple[RoleMessenger, Iterable[type[Message]]]] = []
        self._roles: dict[str, Role] = {}
        self._started: list[str] = []

    def messenger(self, owner: str, asks: Iterable[type[Message]] | None = None) -> RoleMessenger:
        """A post from which some messages may be sent; None: all that anybody handles."""
        messenger = RoleMessenger(owner)
        self._messengers.append((messenger, self._handled if asks is None else asks))
        return messenger

    def build(self, name: str, deployment: Deployment, context: Context) -> None:
        """Build a replica of a role.

        Raises:
            RoleFailed: its constructor raised.
        """
        role = deployment.role
        messenger = self.messenger(role.__name__, asked_by(role))
        try:
            built = role(structs.replace(context, name=name, options=deployment.options), messenger)
        except MicroagentsError:
            raise
        except (Exception, SystemExit) as error:
            raise RoleFailed(name, "building it", said(error)) from error
        self._roles[name] = built
        self._dispatcher.host(name, built)

    def connect(self) -> None:
        """Let everybody reach those whom they ask; once all that live here are built."""
        for messenger, asks in self._messengers:
            messenger.connect({message: self._route(message) for message in asks})

    def _route(self, message: type[Message]) -> Route:
        names = replica_names(self._handled[message])
        return Route([self._dispatcher.seat(name, self._homes[name]) for name in names], message.route_by)

    async def start(self, name: str) -> None:
        """Start a replica.

        Raises:
            RoleFailed: its ``start`` raised.
        """
        try:
            await self._roles[name].start()
        except MicroagentsError:
            raise
        except (Exception, SystemExit) as error:
            raise RoleFailed(name, "start", said(error)) from error
        self._started.append(name)

    async def stop(self, name: str) -> None:
        """Stop a replica, if it was started; one that cannot is left as it is.

        Raises:
            CancelledError: the caller was cancelled meanwhile; the replica is stopped all the same.
        """
        if name not in self._started:
            return
        self._started.remove(name)
        try:
            async with asyncio.timeout(STOP_S):
                await self._roles[name].stop()
        except (Exception, asyncio.CancelledError, SystemExit) as error:
            structlog.get_logger().warning("a role did not stop cleanly", role=type(self._roles[name]).__name__, error=repr(error))
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise
