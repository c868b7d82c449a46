"""Roles in this process: all in one dispatcher, or in two with a link between them that encodes every message."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from microagents.actors import Context, Deployment, Role, asked_by, check_graph
from microagents.runtimes.dispatcher import Dispatcher, RoleMessenger
from microagents.runtimes.link import Link
from microagents.runtimes.role_group import DRIVER, RoleGroup, replica_names


class LocalRuntime:
    """One dispatcher.

    An async context manager: on entry roles start in the order of their deployments, on exit they stop in reverse.
    """

    def __init__(self, context: Context, deployments: Sequence[Deployment]) -> None:
        self._context = context
        self._deployments = deployments
        self._dispatchers = self._connected()
        self._homes = self._placed()
        self._groups = {name: RoleGroup(dispatcher, deployments, self._homes) for name, dispatcher in self._dispatchers.items()}
        self.messenger: RoleMessenger = self._groups[DRIVER].messenger(DRIVER)
        """The driver's own post: it may ask everybody."""

    async def __aenter__(self) -> Self:
        seats = [(name, deployment) for deployment in self._deployments for name in replica_names(deployment)]
        for name, deployment in seats:
            self._groups[self._homes[name]].build(name, deployment, self._context)
        for group in self._groups.values():
            group.connect()
        try:
            for name, _ in seats:
                await self._groups[self._homes[name]].start(name)
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._stop()

    async def settled(self) -> None:
        """Wait until what roles have told in this turn of the loop has arrived."""
        for dispatcher in self._dispatchers.values():
            await dispatcher.settled()

    def _connected(self) -> dict[str, Dispatcher]:
        return {DRIVER: Dispatcher(DRIVER)}

    def _placed(self) -> dict[str, str]:
        """Which dispatcher each replica lives in."""
        return {name: DRIVER for deployment in self._deployments for name in replica_names(deployment)}

    async def _stop(self) -> None:
        for dispatcher in self._dispatchers.values():
            await dispatcher.close()
        interrupted: asyncio.CancelledError | None = None
        for name, home in reversed(self._homes.items()):
            try:
                await self._groups[home].stop(name)
            except asyncio.CancelledError as error:  # one that is interrupted must not keep the others from stopping
                interrupted = error
        for dispatcher in self._dispatchers.values():
            dispatcher.disconnect()
        if interrupted is not None:
            raise interrupted


class LinkedRuntime(LocalRuntime):
    """Two dispatchers in this process behind a link that encodes every message: what works here owes nothing to shared memory."""

    OTHER = "other"

    def _connected(self) -> dict[str, Dispatcher]:
        both = {name: Dispatcher(name) for name in (DRIVER, self.OTHER)}
        both[DRIVER].connect(self.OTHER, self._link(DRIVER, both))
        both[self.OTHER].connect(DRIVER, self._link(self.OTHER, both))
        return both

    def _link(self, sender: str, dispatchers: dict[str, Dispatcher]) -> Link:
        return LoopLink(sender, dispatchers)

    def _placed(self) -> dict[str, str]:
        """Each role opposite to the first one that asks it, so that the asks of an election cross the link."""
        handled = check_graph(self._deployments)
        places: dict[type[Role], str] = {}
        for deployment in self._deployments:
            askers = (there for asker, there in places.items() for message in asked_by(asker) if handled[message].role is deployment.role)
            opposite = self.OTHER if next(askers, DRIVER) == DRIVER else DRIVER
            places[deployment.role] = DRIVER if deployment.in_driver else opposite
        return {name: places[deployment.role] for deployment in self._deployments for name in replica_names(deployment)}


class LoopLink:
    """Carries what is sent to dispatchers on the same event loop."""

    resend_s = 0.25
    acknowledge_s = 0.02
    linger_s = 0.0

    def __init__(self, sender: str, dispatchers: dict[str, Dispatcher]) -> None:
        self._sender = sender
        self._dispatchers = dispatchers

    def send(self, peer: str, batch: bytes) -> None:
        """Hand over at the next turn of the loop."""
        asyncio.get_running_loop().call_soon(self._dispatchers[peer].receive, self._sender, batch)
