"""What a run needs of a runtime."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol, Self

from microagents.runtimes.dispatcher import RoleMessenger


class Runtime(AbstractAsyncContextManager["Runtime"], Protocol):
    """Carries roles: on entry they start in the order of their deployments, on exit they stop in reverse."""

    messenger: RoleMessenger
    """The driver's own post: it may ask everybody."""

    async def __aenter__(self) -> Self: ...

    async def settled(self) -> None:
        """Wait until what roles have told has arrived."""
        ...
