"""States to measure in, other than the oracle's: of an earlier run, or from a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from microagents.actors.registry import TASKS
from microagents.base.errors import InvalidUsage, read_failure
from microagents.base.files import read_text
from microagents.base.messages import address_of
from microagents.base.user_code import called
from microagents.journal.reading import reader_of
from microagents.runs.inspection.rebuilding import decided_steps
from microagents.studies.measuring import GivenState, chosen_among
from microagents.task import ChainTask, Task, chain_types


class States(Struct, frozen=True, kw_only=True):
    """States of steps, and their origin."""

    source: str
    """For texts, such as ``run 'r'``."""
    given: tuple[GivenState, ...]

    def chosen(self, count: int, seed: int) -> tuple[GivenState, ...]:
        """Choose random ones, at most all."""
        total = len(self.given)
        numbers = chosen_among(total, min(count, total), seed)
        return tuple([each for number, each in enumerate(self.given) if number in numbers])


def states_of_run(runs_dir: Path, run_id: str, task: Task) -> States:
    """Read the states of the decided steps of a run of the same task, and their replies. It may have had other options.

    Raises:
        InvalidUsage: the run is unknown, is another task's, or decided no step of a chain.
    """
    own = TASKS.name_of(address_of(type(task)))
    with reader_of(runs_dir, run_id) as reader:
        theirs = TASKS.name_of(reader.experiment.recipe.task)
        if theirs != own:
            raise InvalidUsage(
                f"run {run_id!r} is a run of {theirs}, not of {own}, so its states are no states of {own}"
            )
        given = [
            GivenState(number=at, state=_plain(state), reply=_plain(reply))
            for at, state, reply in decided_steps(reader)
        ]
    return _states(f"run {run_id!r}", given)


def states_in_file(path: Path, task: Task) -> States:
    """Read the states of a file: one JSON object a line.

    Raises:
        InvalidUsage: the file cannot be read, holds no state, or a line is not a state of the task. The message names the line.
    """
    if not isinstance(task, ChainTask):
        raise InvalidUsage(f"{type(task).__name__} is not a chain of steps, so it has no states")
    kind = chain_types(type(task))[0]
    try:
        lines = read_text(path).split("\n")  # not `splitlines`: a text of JSON may hold other ends of lines
    except (OSError, ValueError) as error:
        raise InvalidUsage(f"{str(path)!r} cannot be read: {read_failure(error)}") from None
    given = []
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        where = f"line {number + 1} of {str(path)!r}"
        try:
            state, unknown = msgspec.json.decode(line, type=kind), _unknown(line, kind)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise InvalidUsage(f"{where} is no {kind.__name__}: {error}") from None
        if unknown:
            raise InvalidUsage(f"{where} is no {kind.__name__}: it has no {unknown!r}")
        if called(task.done, state, gives=bool, at=number):
            raise InvalidUsage(f"{where} is a last state, in which no step is asked")
        given.append(GivenState(number=number, state=_plain(state)))
    return _states(repr(str(path)), given)


def _states(source: str, given: Sequence[GivenState]) -> States:
    if not given:
        raise InvalidUsage(f"{source} has no state of a step")
    return States(source=source, given=tuple(given))


def has_oracle(task: Task, states: States) -> bool:
    """Whether code knows the right reply in the first of the states."""
    if not isinstance(task, ChainTask):
        return False
    state = msgspec.json.decode(msgspec.json.encode(states.given[0].state), type=chain_types(type(task))[0])
    return called(task.oracle, state) is not None


def _unknown(line: str, kind: Any) -> str | None:
    """Find a name in a line that the class of states lacks: it would be ignored."""
    if not (isinstance(kind, type) and issubclass(kind, Struct)):
        return None
    names = {*kind.__struct_encode_fields__, kind.__struct_config__.tag_field}
    return min(msgspec.json.decode(line, type=dict[str, Any]).keys() - names, default=None)


def _plain(value: Struct) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))
