"""Roles in this process: all in one dispatcher, or in two with a link between them that encodes every message."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

import msgspec
import structlog

from microagents.actors import Context, Deployment, Role, asked_by, check_graph
from microagents.errors import MicroagentsError, RoleFailed
from microagents.messages import Message
from microagents.runtimes.dispatcher import Desk, Dispatcher, Route
from microagents.runtimes.link import Link
from microagents.runtimes.seats import is_cancelled, said

DRIVER = "driver"
STOP_S = 30.0
"""How long a role may take to stop."""


class LocalRuntime:
    """One dispatcher.

    An async context manager: on entry roles start in the order of their deployments, on exit they stop in reverse.
    """

    def __init__(self, context: Context, deployments: Sequence[Deployment]) -> None:
        self._handled = check_graph(deployments)
        self._context = context
        self._deployments = deployments
        self._dispatchers = self._connected()
        self._homes: dict[type[Role], str] = {}
        self._started: list[Role] = []
        self.desk = Desk(DRIVER)
        """The driver's own post: it may ask everybody."""

    async def __aenter__(self) -> Self:
        desks: list[tuple[Desk, str, Iterable[type[Message]]]] = [(self.desk, DRIVER, self._handled)]
        roles: list[tuple[str, Role]] = []
        for deployment in self._deployments:
            home = self._homes[deployment.role] = self._place(deployment)
            for name in _seat_names(deployment):
                context = msgspec.structs.replace(self._context, name=name, options=deployment.options)
                desk = Desk(deployment.role.__name__)
                role = _built(name, deployment.role, context, desk)
                self._dispatchers[home].host(name, role)
                desks.append((desk, home, asked_by(deployment.role)))
                roles.append((name, role))
        for desk, home, asks in desks:
            desk.connect({message: self._route(message, home) for message in asks})
        try:
            for name, role in roles:
                await _start(name, role)
                self._started.append(role)
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._stop()

    def _connected(self) -> dict[str, Dispatcher]:
        return {DRIVER: Dispatcher(DRIVER)}

    def _place(self, deployment: Deployment) -> str:  # noqa: ARG002 - the one place there is
        return DRIVER

    def _route(self, message: type[Message], home: str) -> Route:
        deployment = self._handled[message]
        there = self._homes[deployment.role]
        here = self._dispatchers[home]
        return Route([here.seat(name, there) for name in _seat_names(deployment)], message.route_by)

    async def _stop(self) -> None:
        for dispatcher in self._dispatchers.values():
            await dispatcher.close()
        interrupted: asyncio.CancelledError | None = None
        for role in reversed(self._started):
            try:
                async with asyncio.timeout(STOP_S):
                    await role.stop()
            except (Exception, asyncio.CancelledError, SystemExit) as error:  # noqa: BLE001 - one role's failure must not keep the others from stopping
                structlog.get_logger().warning("a role did not stop cleanly", role=type(role).__name__, error=repr(error))
                if isinstance(error, asyncio.CancelledError) and is_cancelled():
                    interrupted = error
        self._started.clear()
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

    def _place(self, deployment: Deployment) -> str:
        """Each role opposite to the first one that asks it, so that the asks of an election cross the link."""
        if deployment.in_driver:
            return DRIVER
        for asker, home in self._homes.items():
            if any(self._handled[message].role is deployment.role for message in asked_by(asker)):
                return DRIVER if home == self.OTHER else self.OTHER
        return self.OTHER


class LoopLink:
    """Carries what is sent to dispatchers on the same event loop."""

    def __init__(self, sender: str, dispatchers: dict[str, Dispatcher]) -> None:
        self._sender = sender
        self._dispatchers = dispatchers

    def send(self, peer: str, batch: bytes) -> None:
        """Hand over at the next turn of the loop."""
        asyncio.get_running_loop().call_soon(self._dispatchers[peer].receive, self._sender, batch)


def _seat_names(deployment: Deployment) -> list[str]:
    return [f"{deployment.role.__name__}/{replica}" for replica in range(deployment.num_replicas)]


def _built(name: str, role: type[Role], context: Context, desk: Desk) -> Role:
    try:
        return role(context, desk)
    except MicroagentsError:
        raise
    except (Exception, SystemExit) as error:
        raise RoleFailed(name, "building it", said(error)) from error


async def _start(name: str, role: Role) -> None:
    try:
        await role.start()
    except MicroagentsError:
        raise
    except (Exception, SystemExit) as error:
        raise RoleFailed(name, "start", said(error)) from error
