"""Replay of the work on an input from its journal, without models, up to the question at one path."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import msgspec
from msgspec import structs

from microagents.actors.role import Messenger, Role
from microagents.base.errors import InvalidUsage, Undecided
from microagents.base.messages import Message
from microagents.elections.count import Count
from microagents.elections.election import Elect, Follow, Question, Verdict
from microagents.journal.messages import Recall, Recalled, Recollection
from microagents.journal.reading import Reader
from microagents.roles.executor import Execute, Executor
from microagents.runs.plan import RunPlan
from microagents.tools.calling import Called
from microagents.work.conductor import Conduct
from microagents.work.durable import DurableRequest, DurableRole

MAX_REPLAY_S = 60.0
"""Longest replay. Everything answers at once, so a longer one waits for something that will not come."""


def replayed_question(
    reader: Reader, plan: RunPlan, path: str, work: Callable[[Messenger], Awaitable[object]]
) -> Question:
    """Return the question that some work puts at a path, if every call before it is answered as recorded.

    Roles with durable calls are run again, in this process; no other role is, no model is asked, and no tool is called.

    Args:
        reader: the journal.
        plan: the run.
        path: where the question is put.
        work: does the work, with a messenger that answers from the journal; such as `conducted`.
    """

    async def replayed() -> Question:
        replay = Replay(reader, plan, path)
        try:
            async with asyncio.timeout(MAX_REPLAY_S):
                await work(replay)
        except Exception as error:
            if replay.found is None and isinstance(error, Undecided):
                raise InvalidUsage(f"the work stops before it, since nothing is decided at {error.path}") from None
            if replay.found is None:
                raise
        if replay.found is None:
            raise InvalidUsage("the work as it is now does not come to a question at this path")
        return replay.found

    return asyncio.run(replayed())


def conducted(of_input: int) -> Callable[[Messenger], Awaitable[object]]:
    """Return the whole work on an input, to be replayed."""
    return lambda messenger: messenger.ask(Conduct(input=of_input), None)


class Replay:
    """Messenger of all roles: requests to durable roles are handled at once, and the recorder's answers come from the journal."""

    def __init__(self, reader: Reader, plan: RunPlan, path: str) -> None:
        self.found: Question | None = None
        self._reader = reader
        self._path = path
        self._is_changed = bool(reader.changes())
        context = plan.context()
        kinds: list[type[Role]] = [
            plan.strategy.conductor,
            *(deployment.role for deployment in plan.strategy.deployments()),
        ]
        roles = [
            kind(context, self) for kind in kinds if issubclass(kind, DurableRole) and not issubclass(kind, Executor)
        ]
        self._handlers: dict[type[Message], Any] = {
            message: getattr(role, name) for role in roles for message, name in type(role).handlers.items()
        }

    async def ask(self, request: Any, timeout_s: float | None) -> Any:  # noqa: ARG002 - everything answers at once
        """Handle a request, or answer it from the journal."""
        match request:
            case Recall(path=path):
                return Recollection(has_records=True, decision=self._recalled(path) if "/" in path else None)
            case Elect():
                return self._verdict(request)
            case Execute() if (
                row := self._recalled(f"{request.input}/{request.at}/outcome")
            ) is not None and row.value is not None:
                return msgspec.json.decode(row.value, type=Called)
            case Conduct() | DurableRequest() if type(request) in self._handlers:
                return await self._handlers[type(request)](request)
        raise InvalidUsage(
            f"the work sends {type(request).__name__} before it comes to this path, and its answer is not recorded"
        )

    async def stream(self, request: Any, timeout_s: float | None) -> AsyncGenerator[Any]:  # noqa: ARG002 - as above
        """Answer as `ask` does."""
        yield self._verdict(request) if isinstance(request, Follow) else await self.ask(request, None)

    def tell(self, request: object) -> None:
        """Do nothing: all records are there."""

    def reaches_eager(self, message: type[Message]) -> bool:  # noqa: ARG002 - no draws are made
        """No."""
        return False

    def _recalled(self, path: str) -> Recalled | None:
        row = None if path == self._path else self._reader.decision_at(path)
        return None if row is None else structs.replace(row, changed=self._is_changed)

    def _verdict(self, request: Elect | Follow) -> Verdict:
        """Return the recorded verdict of an election.

        Raises:
            Undecided: its question is the one to be found, or nothing is recorded for it. So other branches of the work go on.
        """
        path, question = request.id.path, request.question
        row = self._recalled(path)
        if row is None or row.question_digest != request.id.question_digest:
            if path == self._path:
                self.found = question
            raise Undecided(path, 0, "not recorded")
        count = Count(request.id, question)
        for ballot in row.ballots:
            count.add(ballot)
        return count.verdict()
