"""What a run is: what its decisions depend on, and all that is needed to build it again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from microagents.errors import InvalidUsage, JournalMismatch

QUESTION = "question"
"""The field of what is asked at a place, which shows only there: for ``--accept-change``."""

Change = tuple[str, str, str]
"""Field, before, after."""


class Recipe(Struct, frozen=True, kw_only=True):
    """All that is needed to build a run again: where its code is, and its options."""

    task: str
    options: dict[str, Any]
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

    def changes(self, given: Experiment, accepted: Sequence[str]) -> list[Change]:
        """What differs from the recorded experiment, all of it accepted; a field may be named by its last part.

        Raises:
            JournalMismatch: something differs that is not.
            InvalidUsage: there is no field of an accepted name.
        """
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
        return [*changes, *[(QUESTION, "as recorded", "as asked now")] * (QUESTION in accepted)]


def _differences(recorded: dict[str, str], given: dict[str, str]) -> Iterator[Change]:
    for field in {**recorded, **given}:
        before, after = recorded.get(field, "nothing"), given.get(field, "nothing")
        if before != after:
            yield field, before, after
