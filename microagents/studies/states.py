"""States to measure in, other than the oracle's: of an earlier run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from microagents.actors.registry import TASKS
from microagents.base.errors import InvalidUsage
from microagents.base.messages import address_of
from microagents.base.plain_values import read_by_pydantic
from microagents.base.user_code import called
from microagents.journal.sharded import reader_of
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
    if not given:
        raise InvalidUsage(f"run {run_id!r} has no state of a step")
    return States(source=f"run {run_id!r}", given=tuple(given))


def has_oracle(task: Task, states: States) -> bool:
    """Whether code knows the right reply in the first of the states."""
    if not isinstance(task, ChainTask):
        return False
    state = msgspec.json.decode(
        msgspec.json.encode(states.given[0].state), type=chain_types(type(task))[0], dec_hook=read_by_pydantic
    )
    return called(task.oracle, state) is not None


def _plain(value: Struct) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))
