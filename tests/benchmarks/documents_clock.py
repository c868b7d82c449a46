"""SeqCV with a clock, in a module that Ray actors can import."""

from __future__ import annotations

import time
from typing import Any

from microagents import Work
from microagents.systems.documents.seqcv import SeqCV, SeqCVConductor


class TimedConductor(SeqCVConductor):
    """Its result is the time of its work in seconds, without the start of roles and their end."""

    async def conduct(self, work: Work[Any, Any]) -> Any:
        began_s = time.perf_counter()
        await super().conduct(work)
        return time.perf_counter() - began_s


class Timed(SeqCV):
    """SeqCV with a clock."""

    conductor = TimedConductor
