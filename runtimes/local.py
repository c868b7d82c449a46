"""Runtimes in one process: all roles in one dispatcher, or in two with a link between them that encodes every message."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from microagents.actors.role import Context, Deployment, Role, asked_by, check_graph
from microagents.base.aio import finish
from microagents.runtimes.dispatcher import Dispatcher, RoleMessenger
from microagents.runtimes.link import Link
from microagents.runtimes.role_group import DRIVER, RoleGroup, replica_names


class LocalRuntime:
    """All roles in one dispatcher.

    An async context manager: on entry roles start in the order of their deployments, on exit they stop in reverse.
    """

    def __init__(self, context: Context, deployments: Sequence[Deployment]) -> None:
        self.start_s: Mapping[str, float] = {}
        self._context = context
        self._deployments = deployments
        self._dispatchers = self._create_dispatchers()
        self._dispatcher_by_replica = self.placement(deployments, context.settings)
        self._groups = {
            name: RoleGroup(dispatcher, deployments, self._dispatcher_by_replica)
            for name, dispatcher in self._dispatchers.items()
        }
        self.messenger: RoleMessenger = self._groups[DRIVER].messenger(DRIVER)
        """The driver's messenger, which may send every message that a deployed role handles."""

    async def __aenter__(self) -> Self:
        replicas = [(name, deployment) for deployment in self._deployments for name in replica_names(deployment)]
        for name, deployment in replicas:
            self._groups[self._dispatcher_by_replica[name]].build(name, deployment, self._context)
        for group in self._groups.values():
            group.connect()
        try:
            for name, _ in replicas:
                await self._groups[self._dispatcher_by_replica[name]].start(name)
        except BaseException:
            await finish(self._stop)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await finish(self._stop)

    async def flush(self) -> None:
        """Wait until all one-way messages sent so far, or in this iteration of the event loop, have arrived at their replicas."""
        for dispatcher in self._dispatchers.values():
            await dispatcher.flush()

    def _create_dispatchers(self) -> dict[str, Dispatcher]:
        """Create the dispatchers by name, connected to each other."""
        return {DRIVER: Dispatcher(DRIVER)}

    @classmethod
    def placement(cls, deployments: Sequence[Deployment], _: Mapping[str, Any], /) -> dict[str, str]:
        """Name a dispatcher for each replica."""
        return {name: DRIVER for deployment in deployments for name in replica_names(deployment)}

    async def _stop(self) -> None:
        async with AsyncExitStack() as steps:  # in reverse order, each even if one before it fails or is cancelled
            for dispatcher in self._dispatchers.values():
                # Again: a message of a role that stopped may have found a new reader.
                steps.push_async_callback(dispatcher.close)
            for dispatcher in self._dispatchers.values():
                # After the roles, since they may send messages while they stop.
                steps.callback(dispatcher.disconnect)
            for replica, dispatcher_name in self._dispatcher_by_replica.items():
                steps.push_async_callback(self._groups[dispatcher_name].stop, replica)
            for dispatcher in self._dispatchers.values():
                steps.push_async_callback(dispatcher.close)


class LinkedRuntime(LocalRuntime):
    """Two dispatchers in one process, with a link that encodes every message, so that roles cannot rely on shared memory."""

    OTHER = "other"
    """Name of the second dispatcher."""

    def _create_dispatchers(self) -> dict[str, Dispatcher]:
        both = {name: Dispatcher(name) for name in (DRIVER, self.OTHER)}
        both[DRIVER].connect(self.OTHER, self._link(DRIVER, both[self.OTHER]))
        both[self.OTHER].connect(DRIVER, self._link(self.OTHER, both[DRIVER]))
        return both

    def _link(self, sender: str, receiver: Dispatcher) -> Link:
        return LoopLink(sender, receiver)

    @classmethod
    def placement(cls, deployments: Sequence[Deployment], _: Mapping[str, Any], /) -> dict[str, str]:
        """Place each role opposite to the first role that asks it, so that the messages of an election cross the link."""
        handled = check_graph(deployments)
        placed: dict[type[Role], str] = {}
        for deployment in deployments:
            callers = (
                there
                for caller, there in placed.items()
                for message in asked_by(caller, handled)
                if handled[message].role is deployment.role
            )
            opposite = cls.OTHER if next(callers, DRIVER) == DRIVER else DRIVER
            placed[deployment.role] = DRIVER if deployment.in_driver else opposite
        return {name: placed[deployment.role] for deployment in deployments for name in replica_names(deployment)}


class LoopLink:
    """A link between dispatchers on the same event loop."""

    linger_s = 0.0

    def __init__(self, sender: str, receiver: Dispatcher) -> None:
        self._sender = sender
        self._receiver = receiver

    def send(self, batch: bytes) -> None:
        """Deliver a batch in the next iteration of the event loop."""
        asyncio.get_running_loop().call_soon(self._receiver.receive, self._sender, batch)

    async def flush(self) -> None:
        """Wait until all batches have arrived."""
        arrived = asyncio.Event()
        asyncio.get_running_loop().call_soon(arrived.set)
        await arrived.wait()

    def close(self) -> None:
        """Do nothing: a dispatcher that is disconnected takes no batch."""
