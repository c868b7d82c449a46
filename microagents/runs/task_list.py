"""Many tasks of one class: kept as the differences of their options, each built when it is needed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, overload

import msgspec
from pydantic_core import PydanticSerializationError

from microagents.actors import Strategy
from microagents.errors import InvalidDefinition, InvalidUsage
from microagents.journal.experiment import options_of
from microagents.runs.settings import validated
from microagents.task import Task

REMEMBERED = 4096
"""Number of built tasks that are kept: more than a run has open at a time."""


class TaskList(Sequence[Task]):
    """Tasks that are built on access: a hundred thousand built ones take fifty megabytes.

    Args:
        kind: their class.
        first: the options of the first one.
        own: the options of each that differ from the first one's, as JSON.
    """

    def __init__(self, kind: type[Task], first: dict[str, Any], own: Sequence[str]) -> None:
        self._kind = kind
        self.first = first
        self.own = own
        self._built: OrderedDict[int, Task] = OrderedDict()

    def __len__(self) -> int:
        return len(self.own)

    @overload
    def __getitem__(self, index: int) -> Task: ...

    @overload
    def __getitem__(self, index: slice) -> list[Task]: ...

    def __getitem__(self, index: int | slice) -> Task | list[Task]:
        if isinstance(index, slice):
            return [self[each] for each in range(len(self))[index]]
        found = self._built.get(index)
        if found is None:
            (options,) = options_of(self.first, [self.own[index]])
            found = self._built[index] = validated(self._kind, f"input {index}", options)
            if len(self._built) > REMEMBERED:
                self._built.popitem(last=False)
        return found


def tasks_of(given: Task | Sequence[Task]) -> Sequence[Task]:
    """One task, or tasks of one class, as a list.

    Raises:
        InvalidUsage: there is none, or two classes are mixed.
    """
    if isinstance(given, Task):
        return [given]
    if isinstance(given, TaskList):
        return given
    tasks = list(given)
    if not tasks:
        raise InvalidUsage("there are no inputs: give a run one task, or a list with at least one")
    for number, task in enumerate(tasks):
        if not isinstance(task, Task):
            raise InvalidUsage(f"input {number} is no task: {task!r:.100}")
        if type(task) is not type(tasks[0]):
            raise InvalidUsage(
                f"input {number} is a {type(task).__name__}, input 0 a {type(tasks[0]).__name__}; the inputs of a run are of one class: "
                "begin a run for each"
            )
    return tasks


def written_down(tasks: Iterable[Task]) -> tuple[dict[str, Any], list[str]]:
    """The options of the first task, and for each task its options that differ from them, as JSON."""
    first: dict[str, Any] = {}
    own: list[str] = []
    for task in tasks:
        options = dumped(task)
        if not own:
            first = options
        differing = {name: value for name, value in options.items() if name not in first or value != first[name]}
        own.append(msgspec.json.encode(differing).decode())
    return first, own


def dumped(options: Task | Strategy) -> dict[str, Any]:
    """The options of a task or a strategy, as JSON-like values.

    Raises:
        InvalidDefinition: one of them cannot be written as JSON.
    """
    try:
        return options.model_dump(mode="json")
    except PydanticSerializationError as error:
        raise InvalidDefinition(f"the options of {type(options).__qualname__} cannot be kept in a journal: {error}") from None
