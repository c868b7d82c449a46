"""The interface of a runtime, as a run uses it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol, Self

from microagents.runtimes.dispatcher import RoleMessenger


class Runtime(AbstractAsyncContextManager["Runtime"], Protocol):
    """Carries roles: on entry they start in the order of their deployments, on exit they stop in reverse."""

    messenger: RoleMessenger
    """The driver's messenger, which may send every message that a deployed role handles."""

    async def __aenter__(self) -> Self: ...

    async def flush(self) -> None:
        """Wait until all messages sent by `Role.tell` so far have arrived at their replicas."""
