"""Chains without a margin: each step by the plurality of a fixed number of samples, the baseline of MAKER's vote."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from microagents.elections.election import Verdict
from microagents.strategies.chain import Chain
from microagents.task import ChainTask
from microagents.work.durable import Work


class PluralityChain(Chain):
    """A chain whose steps take the most frequent of the valid replies. Ties go to the reply that was launched first.

    The strategy's rule must end with all samples drawn (`FirstValid`). Flagged samples are not drawn again.
    """

    def __init__(self, work: Work[ChainTask[Any, Any], Any], *, samples: int, first_temperature: float, temperature: float) -> None:
        sampling = structs.replace(work.task.sampling, first_temperature=first_temperature, temperature=temperature)
        super().__init__(work, max_draws=samples, sampling=sampling)

    def as_taken(self, verdict: Verdict) -> Verdict:
        """The most frequent reply decides. A step without a valid reply is undecided, and so is one whose votes are improbable."""
        if verdict.outcome == "undecided" and verdict.leader is not None:
            return structs.replace(verdict, outcome="decided")
        return super().as_taken(verdict)
