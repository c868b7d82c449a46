"""A solver that notes how long every sample took, for critical paths."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import ClassVar

from microagents import Deployment, Sample
from microagents.elections.election import Draw
from microagents.roles import Solver


class TimedSolver(Solver):
    """Notes how long every sample took, by path and seq."""

    took_s: ClassVar[dict[tuple[str, int], float]] = {}

    async def draw(self, request: Draw) -> Sample:
        began_s = asyncio.get_running_loop().time()
        sample = await super().draw(request)
        self.took_s[request.id.election.path, request.id.seq] = asyncio.get_running_loop().time() - began_s
        return sample


def with_times(deployments: Iterable[Deployment]) -> list[Deployment]:
    """The same deployments with such a solver."""
    return [Deployment(role=TimedSolver) if each.role is Solver else each for each in deployments]
