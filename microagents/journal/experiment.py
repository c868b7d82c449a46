"""What a run is: what its decisions depend on, and all that is needed to build it again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from microagents.errors import InvalidUsage, JournalMismatch

QUESTION = "question"
"""The field of what is asked at a place, which shows only there: for ``--accept-change``."""

INPUTS = "inputs"
"""The field of what inputs a run has, where it was given a list of them."""
FIRST_PROMPT = "prompt"
"""The field of what is asked first."""

Change = tuple[str, str, str]
"""Field, before, after."""


class Recipe(Struct, frozen=True, kw_only=True):
    """All that is needed to build a run again: where its code is, and its options."""

    task: str
    options: dict[str, Any]
    """Those of the task; of a list of inputs, those of the first."""
    strategy: str
    strategy_options: dict[str, Any]
    settings: dict[str, Any]


class Experiment(Struct, frozen=True, kw_only=True):
    """A journal belongs to one."""

    run_id: str
    identity: dict[str, str]
    """What decisions depend on, field by field, for people to read."""
    recipe: Recipe
    inputs: int
    in_order: bool
    """Whether decisions are taken in the order of their paths."""
    cuts_problems: bool = False
    """Whether there is a tree of sub-problems."""
    listed: bool = False
    """Whether it was given a list of inputs: then each has a row of its own, with the options that differ from the first's."""

    def changes(self, given: Experiment, accepted: Sequence[str]) -> list[Change]:
        """What differs from the recorded experiment, all of it accepted; a field may be named by its last part.

        Raises:
            JournalMismatch: something differs that is not.
            InvalidUsage: there is no field of an accepted name, or one task has become a list of inputs.
        """
        if self.listed != given.listed:
            before, now = [("one task", "a list of inputs")[each.listed] for each in (self, given)]
            raise InvalidUsage(f"this run was started with {before}, now it is {now}; nothing was changed; begin another run")
        fields = list(dict.fromkeys([*self.identity, *given.identity, QUESTION]))
        for name in accepted:
            if name not in fields and name not in [field.rpartition(".")[2] for field in fields]:
                raise InvalidUsage(
                    f"no field of a run is called {name!r}, so no change of it can be accepted; there are {', '.join(fields)}"
                )
        changes = list(_differences(self.identity, given.identity))
        for change in changes:
            if change[0] not in accepted and change[0].rpartition(".")[2] not in accepted:
                raise JournalMismatch(*change)
        if given.inputs < self.inputs:
            raise InvalidUsage(
                f"the run was started with {self.inputs:,} inputs, now there are {given.inputs:,}; nothing was changed; inputs may be "
                "added or changed, but not taken away: begin another run"
            )
        return [*changes, *[(QUESTION, "as recorded", "as asked now")] * (QUESTION in accepted)]

    def check_there(self, inputs: Iterable[int]) -> None:
        """Refuse a number that no input has.

        Raises:
            InvalidUsage: there is one.
        """
        for each in inputs:
            if not 0 <= each < self.inputs:
                there = f"inputs 0 to {self.inputs - 1}" if self.inputs > 1 else "only input 0"
                raise InvalidUsage(f"there is no input {each} in run {self.run_id}: it has {there}")


def _differences(recorded: dict[str, str], given: dict[str, str]) -> Iterator[Change]:
    for field in {**recorded, **given}:
        if field == FIRST_PROMPT and INPUTS in recorded and not (field in recorded and field in given):
            continue  # the first of many inputs failed then, or fails now; what is asked at each place is compared there
        before, after = recorded.get(field, "nothing"), given.get(field, "nothing")
        if before != after:
            yield field, before, after


def options_of(first: dict[str, Any], own: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The options of each input, from those of the first and what of its own differs from them, as JSON."""
    for each in own:
        yield {**first, **msgspec.json.decode(each, type=dict[str, Any])}
