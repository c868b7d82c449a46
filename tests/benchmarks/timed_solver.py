"""A solver that notes how long every sample took, for critical paths."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from microagents import Deployment, Result, Sample, run
from microagents.elections.election import Draw
from microagents.journal.messages import Recalled
from microagents.journal.reading import Reader
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


async def timed_run(task: Any, **how: Any) -> tuple[float, dict[str, Recalled]]:
    """The virtual duration of a run in seconds, and its decisions."""
    TimedSolver.took_s.clear()
    with TemporaryDirectory() as folder:
        await run(task, **how, runs_dir=folder, run_id="timed")
        took_s = asyncio.get_running_loop().time()
        with Reader(Path(folder, "timed.sqlite")) as reader:
            return took_s, dict(reader.decisions())


def digests_of(result: Result) -> tuple[str, str]:
    """The digests of a run's decisions and ballots."""
    return result.account.decisions_sha256, result.account.ballots_sha256
