"""The experiment of a journal: its identity, and the recipe to build the run again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any

import msgspec
from msgspec import Struct

from microagents.actors.registry import has_name
from microagents.base.errors import InvalidUsage, JournalMismatch
from microagents.journal.rows import RunPart

QUESTION = "question"
"""The field that ``--accept-change`` names to accept another question at a place. The change is found only when the question is asked."""

INPUTS = "inputs"
"""The identity field for the inputs of a run with a list of inputs."""
FIRST_PROMPT = "prompt"
"""The identity field for the first prompt."""
CODE = "code"
"""The identity field for the code of the task and the strategy, where it can be read."""
CODE_CHANGED = (
    "the code of the task or of the strategy was edited; take the edit back, begin another run, or pass --accept-change code to go on "
    "with it"
)

Change = tuple[str, str, str]
"""A changed field: its name, the recorded value, the value now."""


class Recipe(Struct, frozen=True, kw_only=True):
    """Sources of a run's classes and their options, from which the run can be built again."""

    task: str
    options: dict[str, Any]
    """Options of the task; with a list of inputs, options of the first."""
    strategy: str
    strategy_options: dict[str, Any]
    settings: dict[str, Any]

    @property
    def needs_program(self) -> bool:
        """Whether only the program that began the run can continue it: its task, strategy or a model is an object or code of its own."""
        named = [self.task, self.strategy, *chain.from_iterable(self.settings["models"].values())]
        return not all(map(has_name, named))

    @property
    def deciding_votes(self) -> int | None:
        """Strategy's `deciding_votes`, which are recorded as its option ``k``."""
        k = self.strategy_options.get("k")
        if not isinstance(k, int) or self.strategy_options.get("rule") == "certify":
            return None
        return k


class Experiment(Struct, frozen=True, kw_only=True):
    """Everything that decisions of a run depend on. A journal belongs to one experiment."""

    run_id: str
    identity: dict[str, str]
    """The values that decisions depend on, by field, in readable form."""
    recipe: Recipe
    inputs: int
    draws_solution: bool = False
    """Whether the strategy can show how the work on an input went."""
    unit: str = "step"
    """Name of a unit of progress."""
    listed: bool = False
    """Whether the run has a list of inputs. The journal then has a row for each, with the options that differ from the first."""
    shards: int = 0
    """Number of the runs that do the inputs; 0 of a run that does them itself."""
    of_inputs: int | None = None
    """Of one of these: the inputs of all, whose numbers its own ones have; None of any other run."""

    @property
    def numbered(self) -> int:
        """Number that all numbers of inputs are below."""
        return self.inputs if self.of_inputs is None else self.of_inputs

    def changes(self, given: Experiment, accepted: Sequence[str]) -> list[Change]:
        """Return the differences of another experiment from this recorded one, all of them accepted. A higher cap of draws always is.

        Args:
            given: the other experiment.
            accepted: names of fields that may differ; the last part of a name is enough.

        Raises:
            JournalMismatch: a difference is not accepted.
            InvalidUsage: an accepted name is not a field, one task has become a list of inputs or the reverse, or inputs were removed.
        """
        if self.listed != given.listed:
            before, now = [("one task", "a list of inputs")[each.listed] for each in (self, given)]
            raise InvalidUsage(
                f"this run was started with {before}, now it is {now}; nothing was changed; begin another run"
            )
        if self.shards != given.shards:
            before = f"{self.shards} shards" if self.shards else "one process"
            raise InvalidUsage(f"this run was begun in {before}; nothing was changed; continue it with `resume`")
        fields = list(dict.fromkeys([*self.identity, *given.identity, QUESTION]))
        for name in accepted:
            if name not in fields and name not in [field.rpartition(".")[2] for field in fields]:
                raise InvalidUsage(
                    f"no field of a run is called {name!r}, so no change of it can be accepted; there are {', '.join(fields)}"
                )
        changes = list(_differences(self.identity, given.identity))
        for change in changes:
            if change[0] not in accepted and change[0].rpartition(".")[2] not in accepted and not _raises_cap(change):
                raise JournalMismatch(*change, *[CODE_CHANGED] * (change[0] == CODE))
        if given.inputs < self.inputs:
            raise InvalidUsage(
                f"the run was started with {self.inputs:,} inputs, now there are {given.inputs:,}; nothing was changed; inputs may be "
                "added or changed, but not taken away: begin another run"
            )
        return [*changes, *[(QUESTION, "as recorded", "as asked now")] * (QUESTION in accepted)]

    def check_there(self, inputs: Iterable[int]) -> None:
        """Check that inputs exist.

        Raises:
            InvalidUsage: no input has one of these numbers.
        """
        for each in inputs:
            if not 0 <= each < self.numbered:
                there = f"inputs 0 to {self.numbered - 1}" if self.numbered > 1 else "only input 0"
                raise InvalidUsage(f"there is no input {each} in run {self.run_id}: it has {there}")


class RunRecord(RunPart, frozen=True, kw_only=True):
    """The run, as its user's list of journals knows it."""

    part = "record"
    id: str
    version: str
    """Version of microagents."""
    created_at: str
    """In UTC."""
    experiment: Experiment


def _raises_cap(change: Change) -> bool:
    """Whether a change only allows more draws: no decision is another one then, and an undecided election may be decided."""
    field, before, now = change
    return field == "strategy.max_draws" and before.isdecimal() and now.isdecimal() and int(now) > int(before)


def _differences(recorded: dict[str, str], given: dict[str, str]) -> Iterator[Change]:
    for name in {**recorded, **given}:
        if name == CODE and not (name in recorded and name in given):
            continue  # a notebook has no file to read it from; prompts and replies are compared all the same
        if name == FIRST_PROMPT and INPUTS in recorded and not (name in recorded and name in given):
            # The first of many inputs failed then, or fails now, so one of the two has no first prompt. The durable calls compare the
            # question at each place anyway.
            continue
        before, after = recorded.get(name, "nothing"), given.get(name, "nothing")
        if before != after:
            yield name, before, after


class InputsDigest:
    """Number and digest of the options of all inputs: there may be too many to compare each time a journal is opened."""

    def __init__(self, first: dict[str, Any]) -> None:
        self._count = 0
        self._digest = blake2b(msgspec.json.encode(first), digest_size=16)

    def adding(self, own: Iterable[str]) -> Iterator[str]:
        """Yield the options of each input that differ from the first one's, as JSON, and add them."""
        for each in own:
            self._count += 1
            self._digest.update(f"\n{each}".encode())
            yield each

    @classmethod
    def of(cls, first: dict[str, Any], own: Iterable[str]) -> InputsDigest:
        """Return the digest of all inputs."""
        digest = cls(first)
        for _ in digest.adding(own):
            pass
        return digest

    def __str__(self) -> str:
        return f"{self._count:,} with the digest {self._digest.hexdigest()}"


def options_of(first: dict[str, Any], own: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the options of each input, from the first one's and the input's own differences as JSON."""
    for each in own:
        yield {**first, **msgspec.json.decode(each, type=dict[str, Any])}
