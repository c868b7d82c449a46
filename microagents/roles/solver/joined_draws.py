"""Groups: the draws of one election that a solver sends as one request for several samples."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing

from microagents.base.errors import MicroagentsError
from microagents.elections.election import total_usd
from microagents.models.model import Call, Model, Most, as_taken, checked_sample
from microagents.models.rates import Rate
from microagents.replies.chat import Sample, Usage
from microagents.roles.solver.backends import Backend


class Group:
    """Draws that wait for the samples of one request.

    Args:
        backend: their model.
        loop: the running event loop.
    """

    def __init__(self, backend: Backend, loop: asyncio.AbstractEventLoop) -> None:
        self.backend = backend
        self.request: asyncio.Task[None] | None = None
        """Sends the request, and gives the samples out."""
        self._loop = loop
        self._waiting: list[tuple[Call, asyncio.Future[Sample | int]]] = []
        self._part: dict[int, Group] = {}
        """The group that each draw ended up in, by seq."""

    @property
    def calls(self) -> list[Call]:
        """Calls whose samples are still wanted, in launch order."""
        return [call for call, drawn in self._waiting if not drawn.done()]

    async def sample(self, call: Call) -> Sample | int:
        """Wait for the sample of a call, or for the number of attempts made if it must be drawn singly."""
        drawn: asyncio.Future[Sample | int] = self._loop.create_future()
        self._waiting.append((call, drawn))
        try:
            return await drawn
        except asyncio.CancelledError:
            part = self._part.get(call.id.seq)
            if part is not None and part.request is not None and not part.calls:
                part.request.cancel()
            raise

    def parts(self) -> Iterator[Group]:
        """Yield the group in parts, each for one request; draws without a partner are left to be drawn singly."""
        most = self.backend.model.max_samples
        parts: list[list[tuple[Call, asyncio.Future[Sample | int]]]] = []
        for each in sorted(
            ((call, drawn) for call, drawn in self._waiting if not drawn.done()), key=lambda each: each[0].id.seq
        ):
            follows = parts and each[0].id.seq == parts[-1][-1][0].id.seq + 1  # choice i is the i-th seq from the first
            if follows and len(parts[-1]) < most:
                parts[-1].append(each)
            else:
                parts.append([each])
        for waiting in parts:
            part = Group(self.backend, self._loop)
            part._waiting = waiting
            if len(waiting) == 1:
                part.leave(0)
                continue
            self._part.update({call.id.seq: part for call, _ in waiting})
            yield part

    def give(self, call: Call, sample: Sample) -> None:
        """Give a sample to its draw, which may have been cancelled."""
        for each, drawn in self._waiting:
            if each.id == call.id and not drawn.done():
                drawn.set_result(sample)

    def leave(self, attempts: int) -> None:
        """Leave all draws that have no sample to be drawn singly, after these attempts."""
        for _, drawn in self._waiting:
            if not drawn.done():
                drawn.set_result(attempts)

    def fail(self, error: MicroagentsError) -> None:
        """Fail all draws that have no sample."""
        for _, drawn in self._waiting:
            if not drawn.done():
                drawn.set_exception(error)


class Several(Model):
    """A model that takes several samples in one request, and stands for it as one call.

    Args:
        model: the model.
        calls: a call for each sample.
        group: gets the samples as they arrive.
        joined: called for each sample after the first.
    """

    def __init__(self, model: Model, calls: Sequence[Call], group: Group, joined: Callable[[], None]) -> None:
        self.calls = [as_taken(call, model) for call in calls]
        self._model = model
        self._group = group
        self._joined = joined

    @property
    def takes_turns(self) -> bool:  # type: ignore[override]  # the model's
        """Whether the model takes turns."""
        return self._model.takes_turns

    @property
    def refused(self) -> Mapping[str, str | None]:
        """Parameters that the model refuses."""
        return self._model.refused

    @property
    def rates(self) -> Mapping[str, Rate]:
        """Rates of the model."""
        return self._model.rates

    def at_most(self, call: Call) -> Most | None:
        """Return the most that the request can use."""
        return self._model.at_most(call)

    async def complete(self, call: Call) -> Sample:
        """Send the request, for as many samples as the call says; returns a sample without text, with the usage of all.

        Raises:
            ModelUnavailable: no reply arrived.
        """
        self.calls = self.calls[: call.samples]
        usages: list[Usage] = []
        async with aclosing(self._model.complete_several(self.calls)) as samples:
            async for each, sample in samples:
                checked = checked_sample(sample, type(self._model).__name__)
                usages.append(checked.usage)
                if len(usages) > 1:
                    self._joined()
                self._group.give(each, checked)
        return Sample(text="", usage=_sum(usages))


def _sum(usages: Sequence[Usage]) -> Usage:
    return Usage(
        input_tokens=_total([each.input_tokens for each in usages]),
        output_tokens=_total([each.output_tokens for each in usages]),
        reasoning_tokens=_total([each.reasoning_tokens for each in usages]),
        cost_usd=total_usd([each.cost_usd for each in usages]),
        cached_tokens=sum(each.cached_tokens for each in usages),
        cache_write_tokens=sum(each.cache_write_tokens for each in usages),
        flaw=next((each.flaw for each in usages if each.flaw), ""),
    )


def _total(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    if len(known) != len(counts):
        return None
    return sum(known)
