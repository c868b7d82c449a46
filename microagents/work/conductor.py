"""Conductors: roles that do the whole work on an input."""

from __future__ import annotations

from typing import ClassVar, Generic

from microagents.actors.role import G, T
from microagents.base.messages import Message, Request
from microagents.base.plain_values import encode
from microagents.base.round_trips import lost_part
from microagents.base.user_code import unkept
from microagents.journal.messages import Recall
from microagents.work.durable import DurableRole, Work


class Conduct(Request[str], frozen=True, kw_only=True):
    """Do the whole work on one input. The reply is its result, as JSON."""

    route_by = "input"
    input: int
    recalls: bool = False
    """Whether the journal has answers of this sitting, since the work is done again."""


class Conductor(DurableRole, Generic[T, G]):
    """A role that does the work on inputs, many at a time. A subclass overrides `conduct`."""

    asks: ClassVar[tuple[type[Message], ...]] = (Recall,)
    handles_no_message: ClassVar[tuple[str, ...]] = ("conduct",)

    async def conduct(self, work: Work[T, G]) -> object:
        """Do the work on one input; returns its result, which can be written as JSON.

        A resumed run calls this method again from the start, so apart from the durable calls of ``work`` it must be deterministic. One
        conductor works on many inputs at a time, so the state of an input belongs in local variables.
        """
        raise NotImplementedError

    async def conduct_input(self, request: Conduct) -> str:
        """Conduct one input.

        Raises:
            TaskFailed: the result has a value that JSON lacks.
        """
        path = str(request.input)
        found = await self.ask(Recall(path=path))
        work: Work[T, G] = Work(self, request.input, recalls=request.recalls, checkpoint=found.checkpoint)
        try:
            result = await self.conduct(work)
            if (lost := lost_part(result, "result", encode)) is not None:
                raise unkept(self.conduct, lost)
            return encode(result).decode()
        finally:
            work.tell_progress()
