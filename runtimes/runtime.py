"""The interface of a runtime, as a run uses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, Self

from microagents.actors.role import Deployment
from microagents.runtimes.dispatcher import RoleMessenger


class Runtime(AbstractAsyncContextManager["Runtime"], Protocol):
    """Carries roles: on entry they start in the order of their deployments, on exit they stop in reverse."""

    messenger: RoleMessenger
    """The driver's messenger, which may send every message that a deployed role handles."""

    start_s: Mapping[str, float]
    """Seconds that each part of its start took; empty for one that starts nothing."""

    async def __aenter__(self) -> Self: ...

    @classmethod
    def placement(cls, deployments: Sequence[Deployment], settings: Mapping[str, Any], /) -> dict[str, str]:
        """Name the process of each replica in a run of one input, before anything is started."""

    async def flush(self) -> None:
        """Wait until all messages sent by `Role.tell` so far have arrived at their replicas."""
