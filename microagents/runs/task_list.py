"""Lists of tasks of one class: stored as differences of their options, and built on access."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from pydantic_core import PydanticSerializationError

from microagents.actors.role import Strategy
from microagents.base.errors import InvalidDefinition, InvalidUsage
from microagents.base.round_trips import difference, lost_part
from microagents.journal.experiment import options_of
from microagents.runs.on_access import MadeOnAccess
from microagents.runs.settings import validated
from microagents.runs.spool import Spool
from microagents.task import Task

MAX_BUILT = 4096
"""Number of built tasks that are kept: more than the inputs that a run has open at a time."""


class TaskList(MadeOnAccess[Task]):
    """A sequence of tasks that are built on access: a hundred thousand built tasks take fifty megabytes.

    Each has ``own`` options, as JSON, that differ from the first one's, and the ``form`` of replies that the run asks for. With ``numbers``
    they are some of the inputs of a larger run, and have its numbers, in their order; number 0 is its first task in any case.
    """

    def __init__(
        self,
        kind: type[Task],
        first: dict[str, Any],
        own: Sequence[str],
        form: Mapping[str, object] = MappingProxyType({}),
        numbers: Sequence[int] | None = None,
    ) -> None:
        self._kind = kind
        self.numbers = numbers
        self.first = first
        self.own = own
        self._form = form
        self._built: OrderedDict[int, Task] = OrderedDict()

    def __len__(self) -> int:
        return len(self.own)

    def made(self, index: int) -> Task:
        """Build a task, unless it is built."""
        found = self._built.get(index)
        if found is None:
            (options,) = options_of(self.first, [self._own(index)])
            found = self._built[index] = validated(self._kind, f"input {index}", options)
            vars(found).update(self._form)
            if len(self._built) > MAX_BUILT:
                self._built.popitem(last=False)
        return found

    def _own(self, index: int) -> str:
        if index == 0:
            return "{}"
        if self.numbers is None:
            return self.own[index]
        return self.own[bisect_left(self.numbers, index)]

    def asked_in(self, form: Mapping[str, object]) -> TaskList:
        """Return the same tasks, their replies in another form."""
        return TaskList(self._kind, self.first, self.own, form, self.numbers)


def numbers_of(tasks: Sequence[Task]) -> Sequence[int]:
    """Return the numbers of tasks, in their order."""
    numbers = tasks.numbers if isinstance(tasks, TaskList) else None
    return range(len(tasks)) if numbers is None else numbers


def asked_in(tasks: Sequence[Task], form: Mapping[str, object]) -> Sequence[Task]:
    """Return copies of tasks whose replies have another ``format`` or ``reasoning`` than their class says."""
    if isinstance(tasks, TaskList):
        return tasks.asked_in(form)
    copies = [task.model_copy() for task in tasks]
    for each in copies:
        vars(each).update(form)
    return copies


Tasks = Task | Sequence[Task]
"""A task, or a list of inputs."""


def tasks_of(given: Tasks) -> Sequence[Task]:
    """Return the inputs of a run as a sequence of tasks of one class."""
    if isinstance(given, Task):
        return [given]
    if isinstance(given, TaskList):
        return given
    value: object = given
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        if isinstance(given, type):
            written = f"write {given.__name__}(...)"
        else:
            written = "give an instance of a task, or a list of them"
        raise InvalidUsage(f"{given!r:.100} is not a task: {written}; nothing was started")
    tasks = list(given)
    if not tasks:
        raise InvalidUsage("there are no inputs: give a run one task, or a list with at least one")
    for number, task in enumerate(tasks):
        if not isinstance(task, Task):
            raise InvalidUsage(f"input {number} is not a task: {task!r:.100}")
        if type(task) is not type(tasks[0]):
            raise InvalidUsage(
                f"input {number} is a {type(task).__name__}, input 0 a {type(tasks[0]).__name__}; the inputs of a run are of one class: "
                "begin a run for each class"
            )
    return tasks


def compact_options(tasks: Iterable[Task]) -> tuple[dict[str, Any], Spool]:
    """Compact the options of many tasks: all options of the first one, and for each task, as JSON, its differences from them."""
    first: dict[str, Any] = {}
    own = Spool()
    for task in tasks:
        options = dump_options(task)
        if not own:
            first = options
        # A task may leave out options that are None.
        differing = {name: options.get(name) for name in {**first, **options} if options.get(name) != first.get(name)}
        own.append(msgspec.json.encode(differing).decode())
    return first, own


def dump_options(options: Task | Strategy) -> dict[str, Any]:
    """Return the options of a task or a strategy, as JSON-like values from which they can be built again.

    Raises:
        InvalidDefinition: they cannot; the message names the option.
    """
    kind = type(options)
    refused = f"the options of {kind.__qualname__} cannot be kept in a journal"
    try:
        found = options.model_dump(mode="json")
        written = msgspec.json.encode(found)
    except (PydanticSerializationError, UnicodeEncodeError) as error:
        raise InvalidDefinition(f"{refused}: {error}") from None
    try:
        read = validated(kind, refused, msgspec.json.decode(written))
    except InvalidUsage as error:
        parts = (lost_part(getattr(options, name), name) for name in found)
        raise InvalidDefinition(f"{refused}: {next(filter(None, parts), error)}") from None
    for name in found:
        if (lost := difference(getattr(options, name), getattr(read, name), name)) is not None:
            raise InvalidDefinition(f"{refused}: {lost}; give a value of the field's type, which JSON has")
    return found
