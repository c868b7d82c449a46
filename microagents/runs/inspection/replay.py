"""Replay of the work on an input from its journal, without models: up to the question at one path, or as far as it is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct, structs

from microagents.actors.role import Messenger, Role
from microagents.base.aio import run_to_end
from microagents.base.errors import InvalidUsage, JournalMismatch, MicroagentsError, Undecided
from microagents.base.messages import Message
from microagents.elections.election import Elect, Follow, Question, Verdict
from microagents.journal.messages import Recall, Recalled, Recollection
from microagents.journal.reading import Reader
from microagents.roles.executor import LOST, Execute, Executor
from microagents.runs.plan import RunPlan
from microagents.tools.observations import Called
from microagents.work.conductor import Conduct
from microagents.work.durable import DurableRequest, DurableRole
from microagents.work.elections import answer_to, verdict_of
from microagents.work.notes import Note, NotRecorded, Records

MAX_REPLAY_S = 60.0
"""Longest replay. Everything answers at once, so a longer one waits for something that will not come."""


def replayed_question(
    reader: Reader, plan: RunPlan, path: str, work: Callable[[Messenger], Awaitable[object]]
) -> Question:
    """Return the question that some work, such as `conducted`, puts at a path, if every call before it is answered as recorded.

    Roles with durable calls are run again, in this process; no other role is, no model is asked, and no tool is called.
    """
    replay = replay_of(reader, plan, path)

    async def replayed() -> Question:
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

    return run_to_end(replayed())


def conducted(of_input: int) -> Callable[[Messenger], Awaitable[object]]:
    """Return the whole work on an input, to be replayed."""
    return lambda messenger: messenger.ask(Conduct(input=of_input), None)


def drawn_work(reader: Reader, plan: RunPlan, of_input: int) -> Struct:
    """Return the work on an input as its conductor notes it, as far as it is recorded. A user's code may raise anything.

    Raises:
        InvalidUsage: the code as it is now asks other questions than the recorded ones, or its conductor notes nothing.
    """
    rows, open_elections = reader.holding(str(of_input)).of_input(of_input)
    notes = list[Note]()
    replay = Replay(plan, rows.get, is_changed=bool(reader.changes()), listener=notes.append)

    async def replayed() -> None:
        async with asyncio.timeout(MAX_REPLAY_S):
            try:
                await replay.ask(Conduct(input=of_input), None)
            except JournalMismatch as error:
                raise InvalidUsage(
                    f"the task as it is now asks another question than {error.args[1]}; its code, its options or this microagents "
                    "differ from the run's"
                ) from None
            except MicroagentsError:  # it ends with the records, or as the run did
                if not notes:
                    raise

    run_to_end(replayed())
    if not notes:
        raise InvalidUsage(f"its conductor, {plan.strategy.conductor.__qualname__}, notes nothing")
    return notes[0].drawn(notes, Records(of_input, rows, open_elections))


def replay_of(reader: Reader, plan: RunPlan, sought: str = "") -> Replay:
    """Return the messenger that answers from a journal, up to the question at a path."""
    return Replay(plan, reader.decision_at, is_changed=bool(reader.changes()), sought=sought)


class Replay:
    """Messenger of all roles: requests to durable roles are handled at once, and the keeper's answers come from the journal.

    The question that is ``sought`` counts as not recorded.
    """

    def __init__(
        self,
        plan: RunPlan,
        recorded: Callable[[str], Recalled | None],
        *,
        is_changed: bool,
        sought: str = "",
        listener: Callable[[Note], None] | None = None,
    ) -> None:
        self.found: Question | None = None
        self._recorded = recorded
        self._sought = sought
        self._is_changed = is_changed
        context = structs.replace(plan.context(), listener=listener)
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
            case Execute():
                return self._called(f"{request.input}/{request.at}")
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
        row = None if path == self._sought else self._recorded(path)
        if row is not None and self._is_changed:
            return structs.replace(row, changed=True)
        return row

    def _called(self, path: str) -> Called:
        """Return the record of a call; it is unknown if a person was asked because the process that made it died."""
        for row in (self._recalled(f"{path}/outcome"), self._recalled(f"{path}/unknown")):
            if row is not None and row.value is not None:
                return msgspec.json.decode(row.value, type=Called)
        if self._recalled(f"{path}/found") is not None:
            return LOST
        raise NotRecorded(path)

    def _verdict(self, request: Elect | Follow) -> Verdict:
        """Return the recorded verdict of an election; `JournalMismatch` if another question is decided there."""
        path, question = request.id.path, request.question
        row = self._recalled(path)
        if row is None and path == self._sought:
            self.found = question
        answer = answer_to(request.id, row)
        if answer is None:
            raise NotRecorded(path)
        return verdict_of(request.id, question, answer)
